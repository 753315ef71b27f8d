// SPDX-License-Identifier: MIT

#include "grammar/json_multiple.h"

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace qsf {

namespace {

// Enough for steps up to some 2,000 without bounds.
constexpr std::size_t kMaxStates = 40'000;
constexpr std::size_t kPoint = 10;  // behind the ten digits

// What a number's digits so far are beside the bound's digits at the same places.
enum class Order : std::int8_t { kLess = -1, kEqual = 0, kGreater = 1 };

Order refined(Order before, char digit, char limit) {
  if (before != Order::kEqual || digit == limit) return before;
  return digit < limit ? Order::kLess : Order::kGreater;
}

// A bound of the distance from 0. Comparing begins without knowing how many digits will come.
class Limit {
 public:
  explicit Limit(const NumberBound& bound)
      : whole_(bound.value.whole.empty() ? "0" : bound.value.whole),
        fraction_(bound.value.fraction),
        exclusive_(bound.exclusive) {}

  bool exclusive() const { return exclusive_; }
  std::size_t n_whole() const { return whole_.size(); }
  Order after_whole_digit(Order before, std::size_t i, char digit) const {
    return i < whole_.size() ? refined(before, digit, whole_[i]) : Order::kGreater;
  }
  // Once all whole digits are there.
  Order at_point(Order before, std::size_t n_whole) const {
    return n_whole < whole_.size() ? Order::kLess : before;
  }
  Order after_fraction_digit(Order before, std::size_t i, char digit) const {
    return refined(before, digit, i < fraction_.size() ? fraction_[i] : '0');
  }
  Order at_end(Order before, std::size_t n_fraction) const {
    return before == Order::kEqual && n_fraction < fraction_.size() ? Order::kLess : before;
  }

 private:
  std::string whole_;
  std::string fraction_;
  bool exclusive_;
};

// Numbers without a sign. States with the same continuations become one rule.
class MultipleWriter {
 public:
  MultipleWriter(GrammarRules& rules, const NumberStep& step, bool is_integer)
      : rules_(rules), step_(step), is_integer_(is_integer) {}

  // Nothing when no number is within the limits.
  std::optional<ExprId> write(std::optional<Limit> low, std::optional<Limit> high) {
    low_ = std::move(low);
    high_ = std::move(high);
    states_.clear();
    const int root = reach({});
    if (root == kDead) return std::nullopt;
    return nodes_[static_cast<std::size_t>(root)];
  }
  bool is_too_large() const { return is_too_large_; }

 private:
  static constexpr int kDead = -1;
  struct State {
    std::uint32_t n_whole = 0;
    std::uint32_t n_fraction = 0;
    bool has_point = false;
    bool is_zero = false;  // the whole part is "0", and has ended
    Order low = Order::kEqual;
    Order high = Order::kEqual;
    std::uint64_t remainder = 0;
    auto operator<=>(const State&) const = default;
  };
  // Where each digit and the point lead, and whether the number may end.
  struct Node {
    std::array<int, 11> next;
    bool ends = false;
    bool operator<(const Node& other) const {
      return std::tie(next, ends) < std::tie(other.next, other.ends);
    }
  };

  std::uint64_t appended(std::uint64_t remainder, std::uint32_t digit) const {
    return (remainder * 10 + digit) % step_.units;
  }

  bool may_end(State state) const {
    if (state.n_whole == 0 || (state.has_point && state.n_fraction == 0)) return false;
    for (std::uint32_t i = state.n_fraction; i < step_.n_places; ++i) {
      state.remainder = appended(state.remainder, 0);
    }
    if (state.remainder != 0) return false;
    if (!state.has_point) pass_point(state);
    const auto is_within = [&state](const std::optional<Limit>& limit, Order order, Order wanted) {
      if (!limit.has_value()) return true;
      order = limit->at_end(order, state.n_fraction);
      return order == wanted || (order == Order::kEqual && !limit->exclusive());
    };
    return is_within(low_, state.low, Order::kGreater) &&
           is_within(high_, state.high, Order::kLess);
  }

  void pass_point(State& state) const {
    state.has_point = true;
    if (low_.has_value()) state.low = low_->at_point(state.low, state.n_whole);
    if (high_.has_value()) state.high = high_->at_point(state.high, state.n_whole);
  }

  int after_point(State state) {
    if (is_integer_ || state.n_whole == 0 || state.has_point) return kDead;
    pass_point(state);
    return state.high == Order::kGreater ? kDead : reach(state);
  }

  int after_digit(State state, std::uint32_t digit) {
    const char c = static_cast<char>('0' + digit);
    if (state.has_point) {
      if (state.n_fraction == kMaxNumberDigits) return kDead;
      if (state.n_fraction >= step_.n_places) {
        if (digit != 0 || state.remainder != 0) return kDead;
      } else {
        state.remainder = appended(state.remainder, digit);
      }
      if (low_.has_value()) state.low = low_->after_fraction_digit(state.low, state.n_fraction, c);
      if (high_.has_value())
        state.high = high_->after_fraction_digit(state.high, state.n_fraction, c);
      ++state.n_fraction;
      if (state.high == Order::kGreater || state.low == Order::kLess) return kDead;
    } else {
      if (state.n_whole == kMaxNumberDigits || state.is_zero) return kDead;
      state.is_zero = state.n_whole == 0 && digit == 0;
      state.remainder = appended(state.remainder, digit);
      if (low_.has_value()) state.low = low_->after_whole_digit(state.low, state.n_whole, c);
      if (high_.has_value()) state.high = high_->after_whole_digit(state.high, state.n_whole, c);
      ++state.n_whole;
      if (high_.has_value() && state.n_whole > high_->n_whole()) return kDead;
    }
    return reach(state);
  }

  // Returns the node of a state: at most 37 states stand in each other.
  int reach(const State& state) {
    if (is_too_large_) return kDead;
    const auto known = states_.find(state);
    if (known != states_.end()) return known->second;
    if (states_.size() == kMaxStates) {
      is_too_large_ = true;
      return kDead;
    }
    Node node;
    node.ends = may_end(state);
    bool leads_on = false;
    for (std::uint32_t digit = 0; digit < 10; ++digit) {
      node.next[digit] = after_digit(state, digit);
      leads_on = leads_on || node.next[digit] != kDead;
    }
    node.next[kPoint] = after_point(state);
    leads_on = leads_on || node.next[kPoint] != kDead;
    const int id = node.ends || leads_on ? shared(node) : kDead;
    states_.emplace(state, id);
    return id;
  }

  int shared(const Node& node) {
    const auto known = known_nodes_.find(node);
    if (known != known_nodes_.end()) return known->second;
    const int id = static_cast<int>(nodes_.size());
    nodes_.push_back(expression(node));
    known_nodes_.emplace(node, id);
    return id;
  }

  ExprId expression(const Node& node) {
    std::map<int, CharSet> digits_to;
    for (std::uint32_t digit = 0; digit < 10; ++digit) {
      if (node.next[digit] == kDead) continue;
      const auto c = static_cast<std::uint32_t>('0') + digit;
      digits_to[node.next[digit]].add(c, c);
    }
    std::vector<ExprId> choices;
    for (const auto& [next, digits] : digits_to) {
      choices.push_back(
          rules_.sequence({rules_.char_class(digits), nodes_[static_cast<std::size_t>(next)]}));
    }
    if (const int next = node.next[kPoint]; next != kDead) {
      choices.push_back(
          rules_.sequence({rules_.literal("."), nodes_[static_cast<std::size_t>(next)]}));
    }
    if (choices.empty()) return rules_.empty();
    const ExprId all = rules_.choice(choices);
    return rules_.named("multiple", node.ends ? rules_.optional(all) : all);
  }

  GrammarRules& rules_;
  NumberStep step_;
  bool is_integer_;
  std::optional<Limit> low_;
  std::optional<Limit> high_;
  std::map<State, int> states_;
  std::map<Node, int> known_nodes_;
  std::vector<ExprId> nodes_;
  bool is_too_large_ = false;
};

bool is_below_zero(const std::optional<NumberBound>& bound) {
  return bound.has_value() && bound->value.negative && !bound->value.is_zero();
}

std::optional<Limit> limit_of(const std::optional<NumberBound>& bound) {
  return bound.has_value() ? std::optional<Limit>(*bound) : std::nullopt;
}

}  // namespace

std::optional<NumberStep> read_step(const Decimal& value) {
  if (value.negative || value.is_zero()) return std::nullopt;
  if (value.whole.size() + value.fraction.size() > kMaxNumberDigits) return std::nullopt;
  NumberStep step = {.units = 0, .n_places = static_cast<std::uint32_t>(value.fraction.size())};
  for (const char digit : value.whole + value.fraction) {
    step.units = step.units * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  return step;
}

bool is_multiple(const Decimal& value, const NumberStep& step) {
  if (value.fraction.size() > step.n_places) return false;
  std::uint64_t remainder = 0;
  std::string digits = value.whole + value.fraction;
  digits.append(step.n_places - value.fraction.size(), '0');
  for (const char digit : digits) {
    remainder = (remainder * 10 + static_cast<std::uint64_t>(digit - '0')) % step.units;
  }
  return remainder == 0;
}

Result<ExprId> json_multiple(GrammarRules& rules, const NumberStep& step, bool is_integer,
                             const std::optional<NumberBound>& least,
                             const std::optional<NumberBound>& most) {
  MultipleWriter writer(rules, step, is_integer);
  std::vector<ExprId> choices;
  if (!is_below_zero(most)) {
    const std::optional<Limit> low = is_below_zero(least) ? std::nullopt : limit_of(least);
    if (const auto number = writer.write(low, limit_of(most))) choices.push_back(*number);
  }
  if (!least.has_value() || is_below_zero(least)) {
    const std::optional<Limit> low =
        is_below_zero(most) ? limit_of(most) : Limit({.value = {}, .exclusive = true});
    if (const auto number = writer.write(low, limit_of(least))) {
      choices.push_back(rules.sequence({rules.literal("-"), *number}));
    }
  }
  if (writer.is_too_large()) {
    return unsupported("it needs more than %zu states; use a step of fewer digits", kMaxStates);
  }
  if (choices.empty()) return invalid_argument("no multiple is within the bounds");
  return rules.choice(choices);
}

}  // namespace qsf
