// SPDX-License-Identifier: MIT

#include "grammar/automaton.h"

#include <algorithm>

#include "base/check.h"
#include "base/ranges.h"
#include "grammar/region_carver.h"

namespace qsf {

namespace {

using Op = ProgramNode::Op;

constexpr std::size_t kFrames = 16384;
constexpr std::size_t kItems = 32768;
constexpr std::uint32_t kNoEntry = 0xFFFFFFFF;

std::uint32_t mix(std::uint32_t hash, std::uint32_t value) noexcept {
  std::uint64_t x = (std::uint64_t{hash} << 32 | value) * 0x9E3779B97F4A7C15U;
  x ^= x >> 29;
  return static_cast<std::uint32_t>(x * 0xBF58476D1CE4E5B9U >> 32);
}

std::size_t power_of_two(std::size_t least) noexcept {
  std::size_t n = 1;
  while (n < least) n *= 2;
  return n;
}

}  // namespace

std::size_t AutomatonScratch::region_bytes() {
  return carved_bytes<Place>(kMaxVisited) + carved_bytes<Visited>(2 * kMaxVisited) +
         carved_bytes<GrammarItem>(kMaxItems);
}

AutomatonScratch::AutomatonScratch(MutableByteSpan region) {
  RegionCarver carver(region);
  open = carver.take<Place>(kMaxVisited);
  visited = carver.take<Visited>(2 * kMaxVisited);
  items = carver.take<GrammarItem>(kMaxItems);
}

GrammarAutomaton::GrammarAutomaton(const GrammarProgram& program, MutableByteSpan region,
                                   AutomatonScratch& scratch, MaskCache& masks)
    : program_(program), scratch_(scratch), masks_(masks), n_classes_(program.n_byte_classes()) {
  RegionCarver carver(region);
  frames_ = carver.take<GrammarFrame>(kFrames);
  frame_index_ = carver.take<std::uint32_t>(2 * kFrames);
  items_ = carver.take<GrammarItem>(kItems);
  const std::size_t taken = carved_bytes<GrammarFrame>(kFrames) +
                            carved_bytes<std::uint32_t>(2 * kFrames) +
                            carved_bytes<GrammarItem>(kItems) + 3 * kCarveAlign;
  // A hash table of at most four entries a state.
  const std::size_t state_bytes =
      n_classes_ * sizeof(StateId) + sizeof(State) + 4 * sizeof(std::uint32_t);
  const std::size_t n = (kAutomatonBytes - taken) / state_bytes;
  rows_ = carver.take<StateId>(n * n_classes_);
  states_ = carver.take<State>(n);
  state_index_ = carver.take<std::uint32_t>(power_of_two(2 * n));
  ranges::fill(frame_index_, kNoEntry);
  ranges::fill(state_index_, kNoEntry);
  std::fill_n(rows_.begin(), 2 * n_classes_, kDeadState);
  for (State& state : states_.first(2)) state = {0, 0, 0, kNoMask, false};
  holders_.reserve(64);
}

GrammarAutomaton::~GrammarAutomaton() {
  for (StateId id = kDeadState; id < n_states_; ++id) {
    if (states_[id].mask != kNoMask) masks_.release(states_[id].mask);
  }
}

void GrammarAutomaton::hold(StateId* holder) {
  holders_.push_back(holder);
}

void GrammarAutomaton::release(StateId* holder) noexcept {
  const auto found = ranges::find(holders_, holder);
  QSF_CHECK(found != holders_.end());
  *found = holders_.back();
  holders_.pop_back();
}

StateId GrammarAutomaton::start() {
  if (start_ != kUnknownState) return start_;
  make_room();
  begin_items();
  close(program_.entry(), kEmptyStack);
  start_ = intern();
  return start_;
}

StateId GrammarAutomaton::find_next(StateId from, std::uint32_t byte_class) {
  if (!has_room()) {  // `from` is held like a state of the walk
    const std::size_t n = n_walk_;
    QSF_CHECK(n < walk_.size());
    walk_[n] = from;
    n_walk_ = n + 1;
    collect();
    n_walk_ = n;
    from = walk_[n];
  }
  begin_items();
  const std::uint8_t byte = program_.byte_of_class(byte_class);
  for (const GrammarItem& item : items(from)) advance(item, byte);
  const StateId to = intern();
  rows_[from * n_classes_ + byte_class] = to;
  return to;
}

bool GrammarAutomaton::has_room() const noexcept {
  return n_states_ < states_.size() && n_items_ + kMaxItems <= items_.size() &&
         n_frames_ + kFrames / 2 <= frames_.size();
}

void GrammarAutomaton::make_room() {
  if (!has_room()) collect();
}

void GrammarAutomaton::begin_items() {
  n_made_ = 0;
  n_visited_ = 0;
  made_can_end_ = false;
  made_too_many_ = false;
  if (++scratch_.round == 0) {
    ranges::fill(scratch_.visited, AutomatonScratch::Visited{});
    scratch_.round = 1;
  }
}

void GrammarAutomaton::advance(const GrammarItem& item, std::uint8_t byte) {
  ++n_steps_;
  const ProgramNode& node = program_.node(item.node);
  if (node.op == Op::kByte) {
    if (node.arg == byte) close(node.next, item.stack);
    return;
  }
  for (const CharEdge& edge : program_.edges(item.char_state)) {
    if (byte > edge.last) continue;
    if (byte < edge.first) break;
    if (edge.next == kCharDone) {
      close(node.next, item.stack);
    } else {
      add_item({item.node, edge.next, item.stack});
    }
    break;
  }
}

void GrammarAutomaton::add_item(const GrammarItem& item) {
  if (n_made_ == scratch_.items.size()) {
    made_too_many_ = true;
    return;
  }
  scratch_.items[n_made_++] = item;
}

// Adds a place that is not known yet in this round.
void GrammarAutomaton::open_place(NodeId node, StackId stack, std::uint32_t fresh) {
  ++n_steps_;
  const std::size_t n_slots = scratch_.visited.size();
  for (std::size_t slot = mix(node, stack) & (n_slots - 1);; slot = (slot + 1) & (n_slots - 1)) {
    AutomatonScratch::Visited& entry = scratch_.visited[slot];
    if (entry.round == scratch_.round) {
      if (entry.node == node && entry.stack == stack) return;
      continue;
    }
    if (n_visited_ == kMaxVisited) {
      made_too_many_ = true;
      return;
    }
    ++n_visited_;
    entry = {scratch_.round, node, stack};
    break;
  }
  if (n_open_ == scratch_.open.size()) {
    made_too_many_ = true;
    return;
  }
  scratch_.open[n_open_++] = {node, stack, fresh};
}

// Follows everything that takes no byte, and adds the items that it leads to.
void GrammarAutomaton::close(NodeId first, StackId first_stack) {
  n_open_ = 0;
  open_place(first, first_stack, 0);
  while (n_open_ > 0 && !made_too_many_) {
    const auto [id, stack, fresh] = scratch_.open[--n_open_];
    const ProgramNode& node = program_.node(id);
    const std::uint32_t fresh_below = fresh > 0 ? fresh - 1 : 0;
    switch (node.op) {
      case Op::kByte: add_item({id, 0, stack}); break;
      case Op::kClass: add_item({id, node.arg, stack}); break;
      case Op::kSplit:
        for (const NodeId target : program_.targets(node)) open_place(target, stack, fresh);
        break;
      case Op::kTailCall: open_place(node.arg, stack, fresh); break;
      case Op::kCall: {
        const StackId frame = push(node.next, 0, stack);
        if (frame != kEmptyStack) open_place(node.arg, frame, fresh + 1);
        break;
      }
      case Op::kReturn:
        if (stack == kEmptyStack) {
          made_can_end_ = true;
        } else {
          open_place(frames_[stack].key, frames_[stack].parent, fresh_below);
        }
        break;
      case Op::kRepeat: {
        const ProgramRepeat& repeat = program_.repeat(node.arg);
        if (repeat.least == 0) open_place(repeat.exit, stack, fresh);
        const StackId frame = push(GrammarFrame::kRepeatFrame | node.arg, 0, stack);
        if (frame != kEmptyStack) open_place(repeat.body, frame, fresh + 1);
        break;
      }
      case Op::kRepeatEnd: {
        const ProgramRepeat& repeat = program_.repeat(node.arg);
        if (fresh > 0 && repeat.nullable) break;  // an empty turn leads nowhere new
        const GrammarFrame top = frames_[stack];
        std::uint32_t count = top.count + 1;
        if (repeat.most == kUnbounded) count = std::min(count, repeat.least);
        if (count >= repeat.least) open_place(repeat.exit, top.parent, fresh_below);
        if (count < repeat.most) {
          const StackId frame = push(top.key, count, top.parent);
          if (frame != kEmptyStack) open_place(repeat.body, frame, fresh_below + 1);
        }
        break;
      }
    }
  }
}

// Returns the stack with one more frame, or kEmptyStack when it would be too deep.
StackId GrammarAutomaton::push(std::uint32_t key, std::uint32_t count, StackId parent) {
  const std::uint32_t depth = parent == kEmptyStack ? 1 : frames_[parent].depth + 1;
  if (depth > kMaxStackDepth) return kEmptyStack;
  const std::size_t n_slots = frame_index_.size();
  std::size_t slot = mix(mix(key, count), parent) & (n_slots - 1);
  for (; frame_index_[slot] != kNoEntry; slot = (slot + 1) & (n_slots - 1)) {
    const GrammarFrame& frame = frames_[frame_index_[slot]];
    if (frame.key == key && frame.count == count && frame.parent == parent) {
      return frame_index_[slot];
    }
  }
  if (n_frames_ == frames_.size()) {
    made_too_many_ = true;
    return kEmptyStack;
  }
  frames_[n_frames_] = {key, count, parent, depth};
  frame_index_[slot] = n_frames_;
  return n_frames_++;
}

std::uint32_t GrammarAutomaton::hash_items(std::span<const GrammarItem> items,
                                           bool can_end) const noexcept {
  std::uint32_t hash = can_end ? 1 : 0;
  for (const GrammarItem& item : items) {
    hash = mix(mix(mix(hash, item.node), item.char_state), item.stack);
  }
  return hash;
}

// Makes a state of the items, or finds it.
StateId GrammarAutomaton::intern() {
  if (made_too_many_) {
    overflowed_ = true;
    return kDeadState;
  }
  std::span<GrammarItem> made = scratch_.items.first(n_made_);
  ranges::sort(made);
  made = made.first(static_cast<std::size_t>(ranges::unique(made).begin() - made.begin()));
  if (made.empty() && !made_can_end_) return kDeadState;
  const std::uint32_t hash = hash_items(made, made_can_end_);
  const std::size_t n_slots = state_index_.size();
  std::size_t slot = hash & (n_slots - 1);
  for (; state_index_[slot] != kNoEntry; slot = (slot + 1) & (n_slots - 1)) {
    const StateId id = state_index_[slot];
    const State& state = states_[id];
    if (state.hash == hash && state.can_end == made_can_end_ && ranges::equal(items(id), made)) {
      return id;
    }
  }
  if (n_states_ == states_.size() || n_items_ + made.size() > items_.size()) {
    overflowed_ = true;
    return kDeadState;
  }
  const StateId id = n_states_++;
  states_[id] = {n_items_, static_cast<std::uint32_t>(made.size()), hash, kNoMask, made_can_end_};
  ranges::copy(made, items_.begin() + n_items_);
  n_items_ += static_cast<std::uint32_t>(made.size());
  std::fill_n(rows_.begin() + static_cast<std::ptrdiff_t>(id) * n_classes_, n_classes_,
              kUnknownState);
  state_index_[slot] = id;
  return id;
}

void GrammarAutomaton::index_frame(StackId id) noexcept {
  const GrammarFrame& frame = frames_[id];
  const std::size_t n_slots = frame_index_.size();
  std::size_t slot = mix(mix(frame.key, frame.count), frame.parent) & (n_slots - 1);
  while (frame_index_[slot] != kNoEntry) slot = (slot + 1) & (n_slots - 1);
  frame_index_[slot] = id;
}

void GrammarAutomaton::index_state(StateId id) noexcept {
  const std::size_t n_slots = state_index_.size();
  std::size_t slot = states_[id].hash & (n_slots - 1);
  while (state_index_[slot] != kNoEntry) slot = (slot + 1) & (n_slots - 1);
  state_index_[slot] = id;
}

// Drops the states that nobody holds, and the frames that only they had. Numbers keep their order,
// so that items stay sorted and a frame's parent comes before it.
void GrammarAutomaton::collect() {
  // The hash tables are made again, and hold the new numbers until then.
  const std::span<std::uint32_t> new_state = state_index_.first(n_states_);
  const std::span<std::uint32_t> new_frame = frame_index_.first(n_frames_);
  ranges::fill(new_state, kNoEntry);
  ranges::fill(new_frame, kNoEntry);
  const auto mark = [&](StateId id) { new_state[id] = 0; };
  for (const StateId* holder : holders_) mark(*holder);
  for (std::size_t i = 0; i < n_walk_; ++i) mark(walk_[i]);
  if (start_ != kUnknownState) mark(start_);
  mark(kUnknownState);
  mark(kDeadState);
  for (StateId id = 0; id < n_states_; ++id) {
    if (new_state[id] == kNoEntry) {
      if (states_[id].mask != kNoMask) masks_.release(states_[id].mask);
      continue;
    }
    for (const GrammarItem& item : items(id)) {
      for (StackId at = item.stack; at != kEmptyStack && new_frame[at] == kNoEntry;
           at = frames_[at].parent) {
        new_frame[at] = 0;
      }
    }
  }
  new_frame[kEmptyStack] = kEmptyStack;
  std::uint32_t n_frames = 1;
  for (StackId id = 1; id < n_frames_; ++id) {
    if (new_frame[id] == kNoEntry) continue;
    frames_[n_frames] = frames_[id];
    frames_[n_frames].parent = new_frame[frames_[id].parent];
    new_frame[id] = n_frames++;
  }
  std::uint32_t n_states = 0;
  std::uint32_t n_items = 0;
  for (StateId id = 0; id < n_states_; ++id) {
    if (new_state[id] == kNoEntry) continue;
    State state = states_[id];
    for (std::uint32_t i = 0; i < state.n_items; ++i) {
      GrammarItem item = items_[state.first_item + i];
      item.stack = new_frame[item.stack];
      items_[n_items + i] = item;
    }
    state.first_item = n_items;
    n_items += state.n_items;
    state.hash = hash_items(items_.subspan(state.first_item, state.n_items), state.can_end);
    if (state.mask != kNoMask) masks_.move(state.mask, n_states);
    states_[n_states] = state;
    new_state[id] = n_states++;
  }
  for (StateId* holder : holders_) *holder = new_state[*holder];
  for (std::size_t i = 0; i < n_walk_; ++i) walk_[i] = new_state[walk_[i]];
  start_ = new_state[start_];
  n_states_ = n_states;
  n_items_ = n_items;
  n_frames_ = n_frames;
  std::fill_n(rows_.begin() + 2 * n_classes_, (n_states_ - 2) * n_classes_, kUnknownState);
  ranges::fill(state_index_, kNoEntry);
  ranges::fill(frame_index_, kNoEntry);
  for (StateId id = 2; id < n_states_; ++id) index_state(id);
  for (StackId id = 1; id < n_frames_; ++id) index_frame(id);
}

bool GrammarAutomaton::takes_high_alike(StateId state) const noexcept {
  return ranges::none_of(items(state), [this](const GrammarItem& item) {
    const ProgramNode& node = program_.node(item.node);
    if (node.op == Op::kByte) return node.arg >= 0xC0;  // others do not begin a character
    return item.char_state == node.arg && node.high == HighChars::kSome;
  });
}

}  // namespace qsf
