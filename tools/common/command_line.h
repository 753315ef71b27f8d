// SPDX-License-Identifier: MIT
//
// Command lines of the tools: how they are parsed, and checks of values that the library of options
// does not have. Apart from tool_support.h, because that library takes seconds to compile.

#ifndef QSF_TOOLS_COMMON_COMMAND_LINE_H_
#define QSF_TOOLS_COMMON_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>

namespace qsf_tools {

// Parses the command line. Returns the exit code when the program is to end here: help and version
// were printed on stdout, or what is wrong as one line on stderr.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// Check the value of an option: a whole decimal number, a number in [min, max] or in (min, max].
CLI::Validator integer_in(std::int64_t min, std::int64_t max);
CLI::Validator unsigned_integer();
CLI::Validator number_in(double min, double max);
CLI::Validator number_above(double min, double max = std::numeric_limits<double>::max());

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_COMMAND_LINE_H_
