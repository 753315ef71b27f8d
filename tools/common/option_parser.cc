// SPDX-License-Identifier: MIT

#include "tools/common/option_parser.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string_view>
#include <utility>

#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

// The column of the descriptions. Two spaces stand behind the longest name: scripts/cli_help.py
// separates a name from its description by these.
constexpr std::size_t kNameColumns = 32;

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

template <typename T>
std::string check_integer(const std::string& text, T min, T max) {
  const std::optional<T> value = parse_number<T>(text);
  if (value && *value >= min && *value <= max) return {};
  return "expected an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

template <typename T>
OptionParser::Check fits() {
  constexpr T kMin = std::is_signed_v<T> ? std::numeric_limits<T>::min() : 0;
  return [](const std::string& text) {
    return check_integer<T>(text, kMin, std::numeric_limits<T>::max());
  };
}

std::string check_number(const std::string& text) {
  return parse_number<double>(text) ? "" : "expected a number";
}

std::string list_words(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return list;
}

// Where a value of an option goes: `set` receives the last value, or each of a repeated option.
using Set = std::function<void(const std::string&)>;

std::string& name_of_program() {
  static std::string name = "qsf";
  return name;
}

}  // namespace

const std::string& program_name() {
  return name_of_program();
}

void set_program_name(std::string name) {
  name_of_program() = std::move(name);
}

std::optional<std::uint64_t> parse_size_in_mb(const std::string& text) {
  constexpr double kMaxBytes = 1e15;
  double unit = 1e6;
  std::string_view number = text;
  if (!number.empty()) {
    const char suffix = number.back();
    if (suffix == 'k' || suffix == 'K') unit = 1e3;
    if (suffix == 'g' || suffix == 'G') unit = 1e9;
    const bool has_suffix = unit != 1e6 || suffix == 'm' || suffix == 'M';
    if (has_suffix) number.remove_suffix(1);
  }
  const std::optional<double> value = parse_number<double>(number);
  if (!value) return std::nullopt;
  const double bytes = *value * unit + 0.5;
  if (!(bytes >= 1.0 && bytes <= kMaxBytes)) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

struct OptionParser::Option::State {
  Impl* parser = nullptr;
  CLI::Option* option = nullptr;
  CLI::Option* hidden_twin = nullptr;  // of the aliases
  std::string type;
  std::string words;  // of a choice, with commas between
  std::string default_text;
  Set set;
  std::vector<Check> checks;
  bool repeats = false;
  bool hidden = false;

  // The newest check is the narrowest: its message names the range of the option, not that of the
  // type.
  std::string problem_of(const std::string& text) const {
    for (auto check = checks.rbegin(); check != checks.rend(); ++check) {
      const std::string problem = (*check)(text);
      if (!problem.empty()) return std::string("'").append(text).append("', ").append(problem);
    }
    return {};
  }
};

struct OptionParser::Impl {
  Impl(const std::string& description, const std::string& name) : app(description, name) {
    // Else an option on Windows: a path that begins with a slash is a path there too.
    app.allow_windows_style_options(false);
  }

  CLI::App app;
  std::deque<Option::State> options;  // whose addresses stay

  CLI::Option* add(const std::string& names, const std::string& help, const Option::State& state) {
    const Set set = state.set;
    CLI::Option* option = app.add_option(
        names,
        [set](const CLI::results_t& values) {
          for (const std::string& value : values) set(value);
          return true;
        },
        help);
    option->check(
        CLI::Validator([&state](const std::string& text) { return state.problem_of(text); }, ""));
    if (state.repeats) {
      // An option takes one value each time that it is given, arguments without a name all there
      // are.
      const bool by_position = names.front() != '-';
      option->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(by_position);
    }
    return option;
  }

  Option value(const std::string& names, const std::string& help, Set set, const std::string& type,
               std::string default_text, bool repeats = false) {
    Option::State& state = options.emplace_back();
    state.parser = this;
    state.set = std::move(set);
    state.default_text = std::move(default_text);
    state.repeats = repeats;
    state.option = add(names, help, state);
    Option option(&state);
    option.type_name(type);
    return option;
  }

  template <typename T, typename Target>
  Option integer(const std::string& names, Target& target, const std::string& help,
                 const std::string& default_text) {
    return value(
               names, help, [&target](const std::string& text) { target = *parse_number<T>(text); },
               "N", default_text)
        .check(fits<T>());
  }
  template <typename T, typename Target>
  Option real(const std::string& names, Target& target, const std::string& help,
              const std::string& default_text) {
    return value(
               names, help,
               [&target](const std::string& text) {
                 target = static_cast<T>(*parse_number<double>(text));
               },
               "F", default_text)
        .check(check_number);
  }
};

using Option = OptionParser::Option;

Option& Option::type_name(const std::string& word) {
  state_->type = word;
  const std::string& words = state_->words;
  state_->option->type_name(words.empty() ? word : word + ":{" + words + "}");
  return *this;
}

Option& Option::required() {
  state_->option->required();
  return *this;
}

Option& Option::show_default() {
  state_->option->default_str(state_->default_text);
  return *this;
}

Option& Option::hidden() {
  state_->hidden = true;
  return *this;
}

Option& Option::alias(const std::string& names) {
  state_->hidden_twin = state_->parser->add(names, "", *state_);
  const CLI::Option* option = state_->option;
  state_->hidden_twin->type_name(option->get_type_name());
  return *this;
}

Option& Option::group(const std::string& heading) {
  state_->option->group(heading);
  return *this;
}

Option& Option::integer_in(std::int64_t min, std::int64_t max) {
  return check(
      [=](const std::string& text) { return check_integer<std::int64_t>(text, min, max); });
}

Option& Option::number_in(double min, double max) {
  return check([=](const std::string& text) -> std::string {
    const std::optional<double> value = parse_number<double>(text);
    if (value && *value >= min && *value <= max) return {};
    return "expected a number from " + shown(min) + " to " + shown(max);
  });
}

Option& Option::number_above(double min, double max) {
  return check([=](const std::string& text) -> std::string {
    const std::optional<double> value = parse_number<double>(text);
    if (value && *value > min && *value <= max) return {};
    return "expected a number above " + shown(min) + " and at most " + shown(max);
  });
}

Option& Option::one_of(std::vector<std::string> words) {
  std::string& listed = state_->words;
  listed.clear();
  for (const std::string& word : words) listed += (listed.empty() ? "" : ",") + word;
  type_name(state_->type);
  return check([words = std::move(words)](const std::string& text) -> std::string {
    for (const std::string& word : words) {
      if (word == text) return {};
    }
    return "expected " + list_words(words);
  });
}

Option& Option::check(Check check) {
  state_->checks.push_back(std::move(check));
  return *this;
}

OptionParser::OptionParser(const std::string& description, const std::string& name)
    : impl_(std::make_unique<Impl>(description, name)) {
  impl_->app.get_formatter()->column_width(kNameColumns);
  // The version stands behind one word, whatever the command.
  const std::string program = name.substr(0, name.find(' '));
  impl_->app.set_version_flag("--version", program + " " QSF_VERSION, "Print the version");
  impl_->app.set_help_flag("-h,--help", "Print this help");
}

OptionParser::~OptionParser() = default;

Option OptionParser::value(const std::string& names, std::string& value, const std::string& help) {
  return impl_->value(
      names, help, [&value](const std::string& text) { value = text; }, "TEXT", value);
}

Option OptionParser::value(const std::string& names, std::optional<std::string>& value,
                           const std::string& help) {
  return impl_->value(
      names, help, [&value](const std::string& text) { value = text; }, "TEXT", value.value_or(""));
}

Option OptionParser::value(const std::string& names, std::vector<std::string>& value,
                           const std::string& help) {
  return impl_->value(
      names, help, [&value](const std::string& text) { value.push_back(text); }, "TEXT", "", true);
}

Option OptionParser::value(const std::string& names, int& value, const std::string& help) {
  return impl_->integer<int>(names, value, help, std::to_string(value));
}
Option OptionParser::value(const std::string& names, std::optional<int>& value,
                           const std::string& help) {
  return impl_->integer<int>(names, value, help, value ? std::to_string(*value) : "");
}
Option OptionParser::value(const std::string& names, std::uint32_t& value,
                           const std::string& help) {
  return impl_->integer<std::uint32_t>(names, value, help, std::to_string(value));
}
Option OptionParser::value(const std::string& names, std::optional<std::uint32_t>& value,
                           const std::string& help) {
  return impl_->integer<std::uint32_t>(names, value, help, value ? std::to_string(*value) : "");
}
Option OptionParser::value(const std::string& names, std::int64_t& value, const std::string& help) {
  return impl_->integer<std::int64_t>(names, value, help, std::to_string(value));
}
Option OptionParser::value(const std::string& names, std::uint64_t& value,
                           const std::string& help) {
  return impl_->integer<std::uint64_t>(names, value, help, std::to_string(value));
}
Option OptionParser::value(const std::string& names, std::optional<std::uint64_t>& value,
                           const std::string& help) {
  return impl_->integer<std::uint64_t>(names, value, help, value ? std::to_string(*value) : "");
}
Option OptionParser::value(const std::string& names, float& value, const std::string& help) {
  return impl_->real<float>(names, value, help, shown(static_cast<double>(value)));
}
Option OptionParser::value(const std::string& names, double& value, const std::string& help) {
  return impl_->real<double>(names, value, help, shown(value));
}
Option OptionParser::value(const std::string& names, std::optional<double>& value,
                           const std::string& help) {
  return impl_->real<double>(names, value, help, value ? shown(*value) : "");
}

Option OptionParser::size_in_mb(const std::string& names, std::uint64_t& bytes,
                                const std::string& help) {
  const auto set = [&bytes](const std::string& text) { bytes = *parse_size_in_mb(text); };
  const auto check = [](const std::string& text) -> std::string {
    if (parse_size_in_mb(text)) return {};
    return "expected a size in MB (10^6 bytes), such as 200, 2.6M or 4G";
  };
  return impl_->value(names, help, set, "SIZE", shown(static_cast<double>(bytes) / 1e6))
      .check(check);
}

Option OptionParser::choice(const std::string& names, std::string& value,
                            std::vector<std::string> words, const std::string& help) {
  return this->value(names, value, help).type_name("NAME").one_of(std::move(words));
}

Option OptionParser::flag(const std::string& names, bool& value, const std::string& help) {
  Option::State& state = impl_->options.emplace_back();
  state.parser = impl_.get();
  state.option = impl_->app.add_flag_callback(
      names, [&value] { value = true; }, help);
  return Option(&state);
}

std::optional<int> OptionParser::parse(int argc, const char* const* argv) {
  try {
    impl_->app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    // Not before: messages do not name options without a group.
    for (const Option::State& state : impl_->options) {
      if (state.hidden) state.option->group("");
      if (state.hidden_twin != nullptr) state.hidden_twin->group("");
    }
    return impl_->app.exit(done) == 0 ? kSuccess : kFailure;
  } catch (const CLI::ParseError& wrong) {
    return usage_error(wrong.what());
  }
  return std::nullopt;
}

std::size_t OptionParser::count(const std::string& name) const {
  std::size_t n = impl_->app.count(name);
  for (const Option::State& state : impl_->options) {
    if (state.hidden_twin != nullptr && state.option->check_name(name)) {
      n += state.hidden_twin->count();
    }
  }
  return n;
}

int OptionParser::usage_error(const std::string& problem) const {
  const std::string& name = impl_->app.get_name();
  print_error(name, problem + "; see " + name + " --help");
  return kUsage;
}

}  // namespace qsf_tools
