// SPDX-License-Identifier: MIT
//
// The output of a run: its text on standard output, its statistics on standard error.

#ifndef QSF_TOOLS_RUN_RUN_OUTPUT_H_
#define QSF_TOOLS_RUN_RUN_OUTPUT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "qsf/qsf.h"

namespace qsf_tools {

// Requires  SIGPIPE is ignored, so that a closed pipe is an error and not the end of the process.
class TextOutput {
 public:
  // Writes a piece. Returns false when this or an earlier write failed.
  bool write(std::string_view text);

  // Ends the text with a newline when there is a text that does not end in one.
  bool end_line();

  // Ends a text that Ctrl-C cut. A terminal shows ^C behind the text, so a newline is due there
  // even after a text that ends in one.
  bool end_interrupted_line();

  bool failed() const { return error_ != 0; }
  // True when the reader closed its end, as `head` does: no reason to complain.
  bool reader_left() const;
  // Why a write failed, for people.
  const char* reason() const;

 private:
  int error_ = 0;  // errno of the first failure
  char last_ = '\n';
};

// Prints the model, every region of the memory plan, kernels and threads.
void print_plan(QSFEngine* engine);

// Prints the short summary: tokens and speed, memory and loading.
void print_summary(QSFEngine* engine, const qsf_generate_result& result, std::uint64_t seed);

// Prints memory, reading and where the weights are, the end of the summary.
void print_memory(QSFEngine* engine);
// How many drafted tokens were accepted; nothing where none were drafted.
void print_drafts(QSFEngine* engine);

// Returns what a line of progress says of the process's memory: ", 198.2 MB in memory".
std::string memory_now(QSFEngine* engine);

// Prints what one answer of a chat took.
void print_answer(const qsf_chat_result& result);

// Prints where the time went.
void print_times(QSFEngine* engine, const qsf_generate_result& result);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_OUTPUT_H_
