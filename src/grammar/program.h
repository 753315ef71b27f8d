// SPDX-License-Identifier: MIT
//
// GrammarProgram: a grammar compiled to nodes over bytes, which the automaton runs.
//
// Nodes of a rule are joined to those behind them; a use of a rule is a call, and a repetition with
// counts is a frame that counts, never copies of what it repeats. Sets of characters are automata
// over the bytes of UTF-8. A program never changes, and any number of threads may read it.

#ifndef QSF_GRAMMAR_PROGRAM_H_
#define QSF_GRAMMAR_PROGRAM_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "grammar/rules.h"
#include "grammar/token_slices.h"

namespace qsf {

using NodeId = std::uint32_t;

// How many of high_chars() a class has.
enum class HighChars : std::uint8_t { kNone, kSome, kAll };

struct ProgramNode {
  enum class Op : std::uint8_t {
    kByte,       // `arg` is a byte, `next` follows
    kClass,      // `arg` is the state that a character begins in, `next` follows
    kSplit,      // all of targets[arg .. arg + next)
    kCall,       // `arg` is the first node of a rule, `next` where it returns to
    kTailCall,   // the same where nothing is left to do behind it
    kRepeat,     // begins repetition `arg`
    kRepeatEnd,  // ends one turn of repetition `arg`
    kReturn,     // ends a rule
  };
  Op op;
  HighChars high = HighChars::kNone;  // of a class
  NodeId next = 0;
  std::uint32_t arg = 0;
};

struct ProgramRepeat {
  NodeId body;
  NodeId exit;
  std::uint32_t least;
  std::uint32_t most;
  bool nullable;  // a turn may be empty; `least` is 0 then
};

struct CharEdge {
  std::uint8_t first;
  std::uint8_t last;
  std::uint32_t next;  // a state, or kCharDone
};
inline constexpr std::uint32_t kCharDone = 0;

struct SliceClass {
  std::uint8_t byte_class;
  std::uint8_t n_bytes;  // of the slice
};

class GrammarProgram {
 public:
  // Fails  kInvalidArgument: a rule is left-recursive, which is named with its cycle; or the
  //        program becomes too large
  static Result<GrammarProgram> compile(const GrammarRules& rules);

  NodeId entry() const noexcept { return entry_; }
  const ProgramNode& node(NodeId id) const noexcept { return nodes_[id]; }
  std::size_t n_nodes() const noexcept { return nodes_.size(); }
  std::span<const NodeId> targets(const ProgramNode& split) const noexcept {
    return std::span(targets_).subspan(split.arg, split.next);
  }
  const ProgramRepeat& repeat(std::uint32_t index) const noexcept { return repeats_[index]; }
  std::span<const CharEdge> edges(std::uint32_t state) const noexcept {
    return std::span(edges_).subspan(edge_starts_[state],
                                     edge_starts_[state + 1] - edge_starts_[state]);
  }

  // Bytes that no node tells apart are one class.
  std::uint32_t n_byte_classes() const noexcept { return n_byte_classes_; }
  std::uint8_t byte_class(std::uint8_t byte) const noexcept { return byte_classes_[byte]; }
  std::uint8_t byte_of_class(std::uint32_t byte_class) const noexcept {
    return class_bytes_[byte_class];
  }
  // The classes that the ASCII characters of a slice of the vocabulary belong to.
  std::span<const SliceClass> slice_classes(std::size_t slice) const noexcept {
    return slice_classes_[slice];
  }

 private:
  friend class GrammarCompiler;
  GrammarProgram() = default;

  NodeId entry_ = 0;
  std::vector<ProgramNode> nodes_;
  std::vector<NodeId> targets_;
  std::vector<ProgramRepeat> repeats_;
  std::vector<CharEdge> edges_;
  std::vector<std::uint32_t> edge_starts_;
  std::uint32_t n_byte_classes_ = 0;
  std::array<std::uint8_t, 256> byte_classes_{};
  std::array<std::uint8_t, 256> class_bytes_{};
  std::array<std::vector<SliceClass>, kTokenSlices> slice_classes_;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_PROGRAM_H_
