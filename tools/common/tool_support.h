// SPDX-License-Identifier: MIT
//
// What the command-line tools have in common: exit codes, one-line errors, files, progress.

#ifndef QSF_TOOLS_COMMON_TOOL_SUPPORT_H_
#define QSF_TOOLS_COMMON_TOOL_SUPPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qsf_tools {

enum ExitCode : int { kSuccess = 0, kFailure = 1, kUsage = 2 };

// Prints "tool: message" as one line on stderr.
void print_error(std::string_view tool, std::string_view message);

// Returns whether `path` names a regular file, links followed.
bool is_regular_file(const std::string& path);

// Reads a whole file, or standard input for "-". On failure returns nothing and says in `error`
// where and why. More than `max_bytes` is a failure.
std::optional<std::string> read_text(const std::string& path, std::size_t max_bytes,
                                     std::string& error);

// Returns `text` with every byte that is no UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

// Returns UTF-8 text with U+FFFD for what would command a terminal instead of showing in it: the
// control characters but newline and tab, also those of two bytes.
std::string for_terminal(std::string_view text);

// Returns "12.3 MB" (10^6 bytes).
std::string megabytes(std::uint64_t bytes);

// Returns `count` per second, 0 for no time.
double per_second(std::uint64_t count, std::uint64_t ns);

double seconds(std::uint64_t ns);

// Shows how far long work is: on a terminal one line that is drawn over, otherwise plain lines.
// Nothing in the first second, so that quick work stays quiet.
class ProgressLine {
 public:
  ProgressLine(std::string_view tool, bool enabled);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // True when it is time to show something again.
  bool due();
  void show(const std::string& text);
  // Removes the line from the terminal.
  void clear();

 private:
  std::string tool_;
  bool enabled_;
  bool terminal_;
  bool drawn_ = false;
  std::uint64_t next_ns_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_TOOL_SUPPORT_H_
