// SPDX-License-Identifier: MIT
//
// GrammarAutomaton: the states of a text under a grammar, made when they are first reached.
//
// A state is the set of all places where the grammar may be: a node of the program with its stack
// of calls and counted repetitions. Stacks are shared lists, and equal states are one state, so
// that the next byte is a look-up once a state is known. All memory is of a fixed size: when it is
// full, the states that nobody holds are dropped and made again when they are needed, which changes
// no result.

#ifndef QSF_GRAMMAR_AUTOMATON_H_
#define QSF_GRAMMAR_AUTOMATON_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "grammar/mask_cache.h"
#include "grammar/program.h"
#include "grammar/token_vocabulary.h"

namespace qsf {

using StateId = std::uint32_t;
using StackId = std::uint32_t;

inline constexpr StateId kUnknownState = 0;
inline constexpr StateId kDeadState = 1;  // no text goes on like that
inline constexpr StackId kEmptyStack = 0;

// Memory of one automaton.
inline constexpr std::size_t kAutomatonBytes = 2 << 20;
// Bounds of one state, and of the work to find what follows it.
inline constexpr std::size_t kMaxItems = 6000;
inline constexpr std::size_t kMaxVisited = 16384;
inline constexpr std::uint32_t kMaxStackDepth = 2048;
// States that a search for a mask holds: behind the bytes of a token and those of a slice.
inline constexpr std::size_t kMaxWalkStates = kMaxMaskedBytes + kMaxSliceChars + 3;

struct GrammarItem {
  NodeId node;
  std::uint32_t char_state;  // of a class node, inside a character
  StackId stack;
  auto operator<=>(const GrammarItem&) const = default;
};

struct GrammarFrame {
  std::uint32_t key;    // where a call returns to, or kRepeatFrame and a repetition
  std::uint32_t count;  // turns of the repetition that are complete
  StackId parent;
  std::uint32_t depth;
  static constexpr std::uint32_t kRepeatFrame = 0x80000000;
};

// Working memory of the automata that one thread at a time uses.
class AutomatonScratch {
 public:
  static std::size_t region_bytes();
  explicit AutomatonScratch(MutableByteSpan region);

 private:
  friend class GrammarAutomaton;
  struct Place {
    NodeId node;
    StackId stack;
    std::uint32_t fresh;  // frames on top of the stack that this byte has pushed
  };
  struct Visited {
    std::uint32_t round;
    NodeId node;
    StackId stack;
  };
  std::span<Place> open;
  std::span<Visited> visited;
  std::span<GrammarItem> items;
  std::uint32_t round = 0;
};

class GrammarAutomaton {
 public:
  // Requires  everything outlives the automaton; region [kAutomatonBytes]
  GrammarAutomaton(const GrammarProgram& program, MutableByteSpan region, AutomatonScratch& scratch,
                   MaskCache& masks);
  ~GrammarAutomaton();
  GrammarAutomaton(const GrammarAutomaton&) = delete;
  GrammarAutomaton& operator=(const GrammarAutomaton&) = delete;

  const GrammarProgram& program() const noexcept { return program_; }

  // Keeps the state in `*holder` alive, and its number right, until release().
  void hold(StateId* holder);
  void release(StateId* holder) noexcept;
  // States of a walk over tokens, from the bottom up: held as well, as many as n_walk says.
  std::array<StateId, kMaxWalkStates>& walk() noexcept { return walk_; }
  void set_walk(std::size_t n) noexcept { n_walk_ = n; }

  // The state of the empty text.
  StateId start();
  // The state behind one more byte of this class. Numbers of states may change: `from` is a held
  // one, and is read before.
  StateId next(StateId from, std::uint32_t byte_class) {
    const StateId known = rows_[from * n_classes_ + byte_class];
    return known != kUnknownState ? known : find_next(from, byte_class);
  }
  StateId next_byte(StateId from, std::uint8_t byte) {
    return next(from, program_.byte_class(byte));
  }

  bool can_end(StateId state) const noexcept { return states_[state].can_end; }
  std::span<const GrammarItem> items(StateId state) const noexcept {
    return items_.subspan(states_[state].first_item, states_[state].n_items);
  }
  const GrammarFrame& frame(StackId id) const noexcept { return frames_[id]; }

  // Whether all of high_chars() lead to one state, or to none.
  bool takes_high_alike(StateId state) const noexcept;

  MaskSlot mask(StateId state) const noexcept { return states_[state].mask; }
  void set_mask(StateId state, MaskSlot slot) noexcept { states_[state].mask = slot; }
  void forget_mask(StateId state) noexcept { states_[state].mask = kNoMask; }

  // Steps of work so far; and whether a state was too large, which was then taken for a dead one.
  std::uint64_t n_steps() const noexcept { return n_steps_; }
  bool overflowed() const noexcept { return overflowed_; }
  void clear_overflow() noexcept { overflowed_ = false; }

 private:
  struct State {
    std::uint32_t first_item;
    std::uint32_t n_items;
    std::uint32_t hash;
    MaskSlot mask;
    bool can_end;
  };

  StateId find_next(StateId from, std::uint32_t byte_class);
  void begin_items();
  void close(NodeId node, StackId stack);
  void open_place(NodeId node, StackId stack, std::uint32_t fresh);
  void add_item(const GrammarItem& item);
  void advance(const GrammarItem& item, std::uint8_t byte);
  StackId push(std::uint32_t key, std::uint32_t count, StackId parent);
  StateId intern();
  bool has_room() const noexcept;
  void make_room();
  void collect();
  void index_frame(StackId id) noexcept;
  void index_state(StateId id) noexcept;
  std::uint32_t hash_items(std::span<const GrammarItem> items, bool can_end) const noexcept;

  const GrammarProgram& program_;
  AutomatonScratch& scratch_;
  MaskCache& masks_;
  std::uint32_t n_classes_;
  std::span<StateId> rows_;  // [states, classes]
  std::span<State> states_;
  std::span<std::uint32_t> state_index_;  // hash table of states
  std::span<GrammarItem> items_;
  std::span<GrammarFrame> frames_;
  std::span<std::uint32_t> frame_index_;  // hash table of frames
  std::uint32_t n_states_ = 2;
  std::uint32_t n_items_ = 0;
  std::uint32_t n_frames_ = 1;
  std::vector<StateId*> holders_;
  std::array<StateId, kMaxWalkStates> walk_{};
  std::size_t n_walk_ = 0;
  // The items being made, in scratch_.items.
  std::size_t n_made_ = 0;
  std::size_t n_open_ = 0;
  std::size_t n_visited_ = 0;
  bool made_can_end_ = false;
  bool made_too_many_ = false;
  StateId start_ = kUnknownState;
  std::uint64_t n_steps_ = 0;
  bool overflowed_ = false;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_AUTOMATON_H_
