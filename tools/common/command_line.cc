// SPDX-License-Identifier: MIT
//
// Command lines of the tools; see command_line.h.

#include "tools/common/command_line.h"

#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>

#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

// Reads all of `text` as a number; nothing when it is none.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string expected(const std::string& got, const std::string& range) {
  return "'" + got + "', expected " + range;
}

// An integer is handed on in its plainest form: the library would take a leading 0 for octal.
template <typename T>
CLI::Validator integer_check(T min, T max, const std::string& range) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const std::optional<T> value = parse_number<T>(text);
        if (!value || *value < min || *value > max) return expected(text, range);
        text = std::to_string(*value);
        return {};
      },
      "");
}

CLI::Validator number_check(double min, double max, bool with_min, const std::string& range) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        const std::optional<double> value = parse_number<double>(text);
        const bool inside = value && (*value > min || (with_min && *value == min)) && *value <= max;
        return inside ? std::string() : expected(text, range);
      },
      "");
}

}  // namespace

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  // Two spaces behind the longest option: scripts/package/cli_help.py tells it from its text by
  // these.
  constexpr std::size_t kNameColumns = 32;
  app.get_formatter()->column_width(kNameColumns);
  // "qsf convert", where the program was not started by its link; "qsf-parity verify" stays.
  if (app.get_name().find(' ') == std::string::npos) app.name(program_name());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done) == 0 ? kSuccess : kFailure;
  } catch (const CLI::ParseError& wrong) {
    print_error(app.get_name(), std::string(wrong.what()) + "; see " + app.get_name() + " --help");
    return kUsage;
  }
  return std::nullopt;
}

CLI::Validator integer_in(std::int64_t min, std::int64_t max) {
  return integer_check<std::int64_t>(
      min, max, "an integer from " + std::to_string(min) + " to " + std::to_string(max));
}

CLI::Validator unsigned_integer() {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  return integer_check<std::uint64_t>(0, kMax, "an integer from 0 to " + std::to_string(kMax));
}

CLI::Validator number_in(double min, double max) {
  return number_check(min, max, true, "a number from " + shown(min) + " to " + shown(max));
}

CLI::Validator number_above(double min, double max) {
  return number_check(min, max, false,
                      "a number above " + shown(min) + " and at most " + shown(max));
}

}  // namespace qsf_tools
