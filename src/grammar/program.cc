// SPDX-License-Identifier: MIT

#include "grammar/program.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <string>
#include <utility>

#include "base/ranges.h"

namespace qsf {

namespace {

using Kind = Expression::Kind;
using Op = ProgramNode::Op;

constexpr std::size_t kMaxNodes = 500'000;  // 12 bytes each
constexpr std::size_t kMaxEdges = 500'000;  // 8 bytes each
constexpr std::size_t kMaxNullablePasses = 200;

}  // namespace

class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarRules& rules) : rules_(rules) {}

  Result<GrammarProgram> run() {
    QSF_RETURN_IF_ERROR(find_nullable());
    QSF_RETURN_IF_ERROR(check_left_recursion());
    entries_.assign(rules_.n_rules(), kNoNode);
    out_.edge_starts_ = {0, 0};  // state 0 is kCharDone
    add({.op = Op::kReturn});    // node 0
    entry_of(rules_.root);
    while (!waiting_.empty() && !too_large_) {
      const RuleId rule = waiting_.back();
      waiting_.pop_back();
      // Rules begin at the node that was set aside for them.
      const NodeId body = compile(rules_.definition(rule), 0);
      out_.nodes_[entries_[rule]].arg = add_targets({body});
    }
    if (too_large_) return invalid_argument("the grammar is too large once it is compiled");
    out_.entry_ = entries_[rules_.root];
    number_byte_classes();
    return std::move(out_);
  }

 private:
  static constexpr NodeId kNoNode = 0xFFFFFFFF;

  // Which expressions and rules may be empty.
  Status find_nullable() {
    nullable_.assign(rules_.n_expressions(), false);
    nullable_rules_.assign(rules_.n_rules(), false);
    bool changed = true;
    for (std::size_t pass = 0; changed; ++pass) {
      if (pass == kMaxNullablePasses) {
        return invalid_argument("grammar: too long a chain of rules that may be empty");
      }
      changed = false;
      // Parts of an expression come before it.
      for (ExprId id = 0; id < nullable_.size(); ++id) nullable_[id] = is_nullable(id);
      for (RuleId rule = 0; rule < nullable_rules_.size(); ++rule) {
        if (nullable_rules_[rule] || !nullable_[rules_.definition(rule)]) continue;
        nullable_rules_[rule] = true;
        changed = true;
      }
    }
    return ok_status();
  }

  bool is_nullable(ExprId id) const {
    const Expression& e = rules_.expression(id);
    const auto nullable = [this](ExprId part) { return nullable_[part]; };
    switch (e.kind) {
      case Kind::kLiteral: return e.count == 0;
      case Kind::kClass: return false;
      case Kind::kSequence: return ranges::all_of(rules_.parts(e), nullable);
      case Kind::kChoice: return ranges::any_of(rules_.parts(e), nullable);
      case Kind::kRepeat: return e.count == 0 || nullable_[e.first];
      case Kind::kRule:  // whose definition often comes before, and is found in the same pass
        return nullable_rules_[e.first] || nullable_[rules_.definition(e.first)];
    }
    return false;
  }

  // Adds the rules that `id` may begin with.
  void left_rules(ExprId id, std::vector<RuleId>& out) const {
    const Expression& e = rules_.expression(id);
    if (e.kind == Kind::kRule) out.push_back(e.first);
    if (e.kind == Kind::kRepeat && e.most > 0) left_rules(e.first, out);
    if (e.kind != Kind::kSequence && e.kind != Kind::kChoice) return;
    for (const ExprId part : rules_.parts(e)) {
      left_rules(part, out);
      if (e.kind == Kind::kSequence && !nullable_[part]) break;
    }
  }

  Status check_left_recursion() const {
    enum class Mark : std::uint8_t { kNew, kOpen, kDone };
    std::vector<Mark> marks(rules_.n_rules(), Mark::kNew);
    struct Visit {
      RuleId rule;
      std::vector<RuleId> left;
      std::size_t next = 0;
    };
    std::vector<Visit> path;
    const auto open = [&](RuleId rule) {
      marks[rule] = Mark::kOpen;
      path.push_back({rule, {}, 0});
      left_rules(rules_.definition(rule), path.back().left);
    };
    for (RuleId start = 0; start < marks.size(); ++start) {
      if (marks[start] == Mark::kNew) open(start);
      while (!path.empty()) {
        Visit& top = path.back();
        if (top.next == top.left.size()) {
          marks[top.rule] = Mark::kDone;
          path.pop_back();
          continue;
        }
        const RuleId next = top.left[top.next++];
        if (marks[next] == Mark::kNew) {
          open(next);
          continue;
        }
        if (marks[next] == Mark::kDone) continue;
        std::string cycle;
        const auto first = ranges::find(path, next, &Visit::rule);
        for (auto it = first; it != path.end() && it - first < 8; ++it) {
          cycle += rules_.rule_name(it->rule) + " -> ";
        }
        return invalid_argument(
            "grammar: rule \"%s\" is left-recursive (%s%s): it begins with itself; write it as a "
            "repetition",
            rules_.rule_name(next).c_str(), cycle.c_str(), rules_.rule_name(next).c_str());
      }
    }
    return ok_status();
  }

  NodeId add(ProgramNode node) {
    if (out_.nodes_.size() >= kMaxNodes) {
      too_large_ = true;
      return 0;
    }
    out_.nodes_.push_back(node);
    return static_cast<NodeId>(out_.nodes_.size() - 1);
  }

  std::uint32_t add_targets(std::span<const NodeId> targets) {
    const auto first = static_cast<std::uint32_t>(out_.targets_.size());
    out_.targets_.insert(out_.targets_.end(), targets.begin(), targets.end());
    return first;
  }
  std::uint32_t add_targets(std::initializer_list<NodeId> targets) {
    return add_targets(std::span(targets.begin(), targets.size()));
  }

  NodeId entry_of(RuleId rule) {
    if (entries_[rule] == kNoNode) {
      entries_[rule] = add({.op = Op::kSplit, .next = 1});
      waiting_.push_back(rule);
    }
    return entries_[rule];
  }

  // Returns the first node of an expression that `next` follows.
  NodeId compile(ExprId id, NodeId next) {
    if (too_large_) return 0;
    const Expression& e = rules_.expression(id);
    switch (e.kind) {
      case Kind::kLiteral: {
        const std::string_view bytes = rules_.literal_bytes(e);
        for (std::size_t i = bytes.size(); i > 0; --i) {
          next =
              add({.op = Op::kByte, .next = next, .arg = static_cast<unsigned char>(bytes[i - 1])});
        }
        return next;
      }
      case Kind::kClass: {
        const auto [first, high] = class_of(e.first);
        return add({.op = Op::kClass, .high = high, .next = next, .arg = first});
      }
      case Kind::kSequence: {
        const std::span<const ExprId> parts = rules_.parts(e);
        for (std::size_t i = parts.size(); i > 0; --i) next = compile(parts[i - 1], next);
        return next;
      }
      case Kind::kChoice: {
        std::vector<NodeId> targets;
        for (const ExprId part : rules_.parts(e)) targets.push_back(compile(part, next));
        const auto n = static_cast<NodeId>(targets.size());
        return add({.op = Op::kSplit, .next = n, .arg = add_targets(targets)});
      }
      case Kind::kRule: {
        const bool is_last = out_.nodes_[next].op == Op::kReturn;
        return add(
            {.op = is_last ? Op::kTailCall : Op::kCall, .next = next, .arg = entry_of(e.first)});
      }
      case Kind::kRepeat: return compile_repeat(e, next);
    }
    return next;
  }

  NodeId compile_repeat(const Expression& e, NodeId next) {
    const bool nullable = nullable_[e.first];
    const std::uint32_t least = nullable ? 0 : e.count;
    if (e.most == 0) return next;
    if (e.most == 1) {  // and at least 0: a repetition of once is none
      const NodeId body = compile(e.first, next);
      return least == 1 ? body
                        : add({.op = Op::kSplit, .next = 2, .arg = add_targets({body, next})});
    }
    if (e.most == kUnbounded && least <= 1) {
      const NodeId loop = add({.op = Op::kSplit, .next = 2});
      const NodeId body = compile(e.first, loop);
      out_.nodes_[loop].arg = add_targets({body, next});
      return least == 0 ? loop : body;
    }
    const auto index = static_cast<std::uint32_t>(out_.repeats_.size());
    out_.repeats_.push_back({0, next, least, e.most, nullable});
    const NodeId end = add({.op = Op::kRepeatEnd, .arg = index});
    const NodeId body = compile(e.first, end);
    out_.repeats_[index].body = body;
    return add({.op = Op::kRepeat, .arg = index});
  }

  // Character classes.

  struct ClassStart {
    std::uint32_t state;
    HighChars high;
  };

  ClassStart class_of(std::uint32_t set_index) {
    const auto known = classes_.find(set_index);
    if (known != classes_.end()) return known->second;
    const CharSet& set = rules_.set_at(set_index);
    std::vector<CharState> states(1);
    for (const CharRange& range : set.ranges()) {
      std::uint32_t first = range.first;
      for (const std::uint32_t last : {0x7FU, 0x7FFU, 0xFFFFU, kLastCodePoint}) {
        if (first > last || first > range.last) continue;
        const std::uint32_t n_bytes = last == 0x7F ? 1 : last == 0x7FF ? 2 : last == 0xFFFF ? 3 : 4;
        add_sequences(states, first, std::min(range.last, last), n_bytes);
        first = last + 1;
      }
    }
    const auto base = static_cast<std::uint32_t>(out_.edge_starts_.size() - 1);
    for (const CharState& state : states) {
      for (CharEdge edge : state) {
        if (edge.next != kCharDone) edge.next += base;
        out_.edges_.push_back(edge);
      }
      out_.edge_starts_.push_back(static_cast<std::uint32_t>(out_.edges_.size()));
    }
    if (out_.edges_.size() > kMaxEdges) too_large_ = true;
    HighChars high = HighChars::kNone;
    if (set.contains(high_chars())) {
      high = HighChars::kAll;
    } else if (!set.without(high_chars().complement()).empty()) {
      high = HighChars::kSome;
    }
    return classes_.emplace(set_index, ClassStart{base, high}).first->second;
  }

  using CharState = std::vector<CharEdge>;  // next: 0 is kCharDone, else a state of the class

  // Splits a range of characters of one length into sequences of byte ranges.
  static void add_sequences(std::vector<CharState>& states, std::uint32_t first, std::uint32_t last,
                            std::uint32_t n_bytes) {
    for (std::uint32_t i = 1; i < n_bytes; ++i) {
      const std::uint32_t low = (1U << 6 * i) - 1;
      if ((first & ~low) == (last & ~low)) continue;
      if ((first & low) != 0) {
        add_sequences(states, first, first | low, n_bytes);
        return add_sequences(states, (first | low) + 1, last, n_bytes);
      }
      if ((last & low) != low) {
        add_sequences(states, first, (last & ~low) - 1, n_bytes);
        return add_sequences(states, last & ~low, last, n_bytes);
      }
    }
    const auto byte = [n_bytes](std::uint32_t code_point, std::uint32_t i) {
      const std::uint32_t shift = 6 * (n_bytes - 1 - i);
      if (i > 0) return static_cast<std::uint8_t>(0x80 | (code_point >> shift & 0x3F));
      constexpr std::array<std::uint8_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
      return static_cast<std::uint8_t>(kLead[n_bytes] | code_point >> shift);
    };
    std::uint32_t at = 0;
    for (std::uint32_t i = 0; i < n_bytes; ++i) {
      const std::uint8_t from = byte(first, i);
      const std::uint8_t to = byte(last, i);
      // Ranges come in order, so that a shared beginning is that of the newest edge.
      const bool is_last = i + 1 == n_bytes;
      if (!is_last && !states[at].empty() && states[at].back().first == from &&
          states[at].back().last == to) {
        at = states[at].back().next;
        continue;
      }
      const auto next = is_last ? kCharDone : static_cast<std::uint32_t>(states.size());
      states[at].push_back({from, to, next});
      if (!is_last) states.emplace_back();
      at = next;
    }
  }

  void number_byte_classes() {
    std::bitset<257> begins;
    begins.set(0);
    const auto cut = [&begins](unsigned first, unsigned last) {
      begins.set(first);
      begins.set(last + 1);
    };
    for (const ProgramNode& node : out_.nodes_) {
      if (node.op == Op::kByte) cut(node.arg, node.arg);
    }
    for (const CharEdge& edge : out_.edges_) cut(edge.first, edge.last);
    std::uint32_t n = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (begins[byte]) out_.class_bytes_[n++] = static_cast<std::uint8_t>(byte);
      out_.byte_classes_[byte] = static_cast<std::uint8_t>(n - 1);
    }
    out_.n_byte_classes_ = n;
    for (std::size_t slice = 0; slice < kTokenSlices; ++slice) {
      std::array<std::uint8_t, 256> n_bytes{};
      for (std::uint8_t byte = 0; byte < 0x80; ++byte) {
        if (token_slices()[slice].ascii[byte]) ++n_bytes[out_.byte_classes_[byte]];
      }
      for (std::uint32_t i = 0; i < n; ++i) {
        if (n_bytes[i] == 0) continue;
        out_.slice_classes_[slice].push_back({static_cast<std::uint8_t>(i), n_bytes[i]});
      }
    }
  }

  const GrammarRules& rules_;
  GrammarProgram out_;
  std::vector<bool> nullable_;
  std::vector<bool> nullable_rules_;
  std::vector<NodeId> entries_;
  std::vector<RuleId> waiting_;
  std::map<std::uint32_t, ClassStart> classes_;  // by set
  bool too_large_ = false;
};

Result<GrammarProgram> GrammarProgram::compile(const GrammarRules& rules) {
  return GrammarCompiler(rules).run();
}

}  // namespace qsf
