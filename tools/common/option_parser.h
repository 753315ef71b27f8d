// SPDX-License-Identifier: MIT
//
// Declares the options of a program, parses its command line and prints its help.
//
// Guarantees: --help and --version print on stdout and end with exit code 0; a wrong command line
//   prints one line "tool: what is wrong; see TOOL --help" on stderr and ends with exit code 2.
//   Numbers are decimal: a leading 0 does not make one octal.
// Threads: one.
//
// option_parser.cc is the only file that includes the library behind it, which takes seconds to
// compile.

#ifndef QSF_TOOLS_COMMON_OPTION_PARSER_H_
#define QSF_TOOLS_COMMON_OPTION_PARSER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qsf_tools {

// Returns the bytes of a size: a number is MB (10^6 bytes), a suffix k, M or G stands for 10^3,
// 10^6 or 10^9 bytes. "200" and "200M" are 200,000,000. Nothing for any other text, for less than
// one byte and for more than 10^15.
std::optional<std::uint64_t> parse_size_in_mb(const std::string& text);

// The name in messages and help: "qsf run", or "qsf-run" where the program was started as that.
const std::string& program_name();
void set_program_name(std::string name);

class OptionParser {
 public:
  // Returns what is wrong with a value, as "expected ..."; empty for nothing.
  using Check = std::function<std::string(const std::string& value)>;

  // An option that was declared; each function changes it and returns it.
  class Option {
   public:
    // The word for the value in the help, such as FILE; "" for none.
    Option& type_name(const std::string& word);
    Option& required();
    // Prints the value that the target has before parsing as the default.
    Option& show_default();
    // Parsed as any other, but left out of the help, the man page and the completions.
    Option& hidden();
    // Takes these names too, which the help leaves out.
    Option& alias(const std::string& names);
    // The heading of the help that the option stands below; "Options" without one.
    Option& group(const std::string& heading);
    // The values that are allowed: whole numbers from min to max, numbers from min to max, numbers
    // above min and at most max, or these words.
    Option& integer_in(std::int64_t min, std::int64_t max);
    Option& number_in(double min, double max);
    Option& number_above(double min, double max = std::numeric_limits<double>::max());
    Option& one_of(std::vector<std::string> words);
    Option& check(Check check);

   private:
    friend class OptionParser;
    struct State;
    explicit Option(State* state) : state_(state) {}
    State* state_;
  };

  // `description` is one paragraph a line. `name`: program_name() by default.
  explicit OptionParser(const std::string& description, const std::string& name = program_name());
  ~OptionParser();
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;

  // A value with a name ("-n,--max-tokens") or, where the name has no dash, by its position. What
  // `value` refers to is set by parse(), and keeps its value where the option is not given. Whole
  // numbers are checked to fit the type; vectors take an option that may be given several times.
  Option value(const std::string& names, std::string& value, const std::string& help);
  Option value(const std::string& names, std::optional<std::string>& value,
               const std::string& help);
  Option value(const std::string& names, std::vector<std::string>& value, const std::string& help);
  Option value(const std::string& names, int& value, const std::string& help);
  Option value(const std::string& names, std::optional<int>& value, const std::string& help);
  Option value(const std::string& names, std::uint32_t& value, const std::string& help);
  Option value(const std::string& names, std::optional<std::uint32_t>& value,
               const std::string& help);
  Option value(const std::string& names, std::int64_t& value, const std::string& help);
  Option value(const std::string& names, std::uint64_t& value, const std::string& help);
  Option value(const std::string& names, std::optional<std::uint64_t>& value,
               const std::string& help);
  Option value(const std::string& names, float& value, const std::string& help);
  Option value(const std::string& names, double& value, const std::string& help);
  Option value(const std::string& names, std::optional<double>& value, const std::string& help);
  // A size in MB; `bytes` receives bytes. See parse_size_in_mb().
  Option size_in_mb(const std::string& names, std::uint64_t& bytes, const std::string& help);
  // One of some words, which the help lists.
  Option choice(const std::string& names, std::string& value, std::vector<std::string> words,
                const std::string& help);
  Option flag(const std::string& names, bool& value, const std::string& help);

  // Parses the command line. Returns the exit code when the program is to end here.
  std::optional<int> parse(int argc, const char* const* argv);

  // How often an option was given, aliases included. `name`: one of its names, dashes included.
  std::size_t count(const std::string& name) const;

  // Prints "tool: problem; see TOOL --help" and returns the exit code for a wrong command line.
  int usage_error(const std::string& problem) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_OPTION_PARSER_H_
