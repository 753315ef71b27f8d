// SPDX-License-Identifier: MIT

#include "kv/state_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {

std::uint64_t StateCache::region_bytes(const StateShape& shape,
                                       std::uint32_t max_sequences) noexcept {
  return std::uint64_t{max_sequences} * kBuffers * shape.n_values() * sizeof(float);
}

StateCache StateCache::create(const StateShape& shape, std::uint32_t max_sequences,
                              MutableByteSpan memory) {
  QSF_CHECK(shape.n_layers > 0 && shape.layer_size > 0);
  QSF_CHECK(memory.size() >= region_bytes(shape, max_sequences));
  return {shape,
          max_sequences,
          {reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)}};
}

StateCache::StateCache(const StateShape& shape, std::uint32_t max_sequences,
                       std::span<float> values)
    : shape_(shape), values_(values), sequences_(max_sequences) {
  for (SequenceId sequence = 0; sequence < max_sequences; ++sequence) clear(sequence);
}

std::span<float> StateCache::buffer(SequenceId sequence, std::uint32_t index) const noexcept {
  QSF_DCHECK(sequence < sequences_.size() && index < kBuffers);
  return values_.subspan((std::size_t{sequence} * kBuffers + index) * shape_.n_values(),
                         shape_.n_values());
}

// A text begins with a state of zeros.
void StateCache::clear(SequenceId sequence) noexcept {
  sequences_[sequence] = {};
  ranges::fill(buffer(sequence, 0), 0.0F);
}

std::uint32_t StateCache::n_rows(SequenceId sequence) const noexcept {
  const Sequence& s = sequences_[sequence];
  return s.rows[s.newest];
}

std::uint32_t StateCache::longest_kept(SequenceId sequence, std::uint32_t n_rows) const noexcept {
  std::uint32_t longest = 0;
  for (const std::uint32_t rows : sequences_[sequence].rows) {
    if (rows != kNone && rows <= n_rows) longest = std::max(longest, rows);
  }
  return longest;
}

std::uint32_t StateCache::truncate(SequenceId sequence, std::uint32_t n_rows) noexcept {
  Sequence& s = sequences_[sequence];
  if (n_rows >= s.rows[s.newest]) return s.rows[s.newest];
  const std::uint32_t kept = longest_kept(sequence, n_rows);
  if (kept == 0) {
    clear(sequence);
    return 0;
  }
  s.newest = static_cast<std::uint32_t>(ranges::find(s.rows, kept) - s.rows.begin());
  for (std::uint32_t& rows : s.rows) {
    if (rows != kNone && rows > kept) rows = kNone;  // of other rows from now on
  }
  // Which role its last rows had is forgotten: the next pass keeps this point.
  s.mark = s.newest;
  return kept;
}

void StateCache::fork(SequenceId from, SequenceId to) noexcept {
  const Sequence& origin = sequences_[from];
  sequences_[to] = {};
  sequences_[to].rows[0] = origin.rows[origin.newest];
  sequences_[to].generates = origin.generates;
  ranges::copy(buffer(from, origin.newest), buffer(to, 0).begin());
}

void StateCache::keep(SequenceId sequence) noexcept {
  sequences_[sequence].mark = sequences_[sequence].newest;
}

void StateCache::begin(SequenceId sequence, RowRole role) noexcept {
  Sequence& s = sequences_[sequence];
  const bool generates = role != RowRole::kPrompt;
  if (generates != s.generates || s.rows[s.mark] == kNone) s.mark = s.newest;
  s.generates = generates;
  s.target = 0;
  while (s.target == s.newest || s.target == s.mark) ++s.target;
  s.rows[s.target] = kNone;
}

std::span<const float> StateCache::before(SequenceId sequence, std::uint32_t layer) const noexcept {
  QSF_DCHECK(layer < shape_.n_layers);
  return buffer(sequence, sequences_[sequence].newest)
      .subspan(std::size_t{layer} * shape_.layer_size, shape_.layer_size);
}

std::span<float> StateCache::after(SequenceId sequence, std::uint32_t layer) noexcept {
  QSF_DCHECK(layer < shape_.n_layers);
  return buffer(sequence, sequences_[sequence].target)
      .subspan(std::size_t{layer} * shape_.layer_size, shape_.layer_size);
}

void StateCache::commit(SequenceId sequence, std::uint32_t n_new) noexcept {
  Sequence& s = sequences_[sequence];
  s.rows[s.target] = s.rows[s.newest] + n_new;
  s.newest = s.target;
}

std::span<const float> StateCache::saved(SequenceId sequence) const noexcept {
  return buffer(sequence, sequences_[sequence].newest);
}

std::span<float> StateCache::restore(SequenceId sequence, std::uint32_t n_rows) noexcept {
  QSF_CHECK(this->n_rows(sequence) == 0);
  sequences_[sequence] = {};
  sequences_[sequence].rows[0] = n_rows;
  return buffer(sequence, 0);
}

}  // namespace qsf
