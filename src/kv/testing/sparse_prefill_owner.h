// SPDX-License-Identifier: MIT
//
// An SparsePrefillState with the memory it lies in, and what tests do with one all the time.

#ifndef QSF_KV_TESTING_SPARSE_PREFILL_OWNER_H_
#define QSF_KV_TESTING_SPARSE_PREFILL_OWNER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/f16.h"
#include "base/rng.h"
#include "kv/sparse_prefill_state.h"

namespace qsf {

class SparsePrefillOwner {
 public:
  explicit SparsePrefillOwner(const SparsePrefillShape& shape)
      : lines_(SparsePrefillState::region_bytes(shape) / sizeof(Line), Line{{std::byte{0xA5}}}),
        state_(
            SparsePrefillState::create(shape, std::as_writable_bytes(std::span(lines_))).value()) {}

  SparsePrefillState* operator->() { return &state_; }
  SparsePrefillState& operator*() { return state_; }

  float score(std::uint32_t layer, std::uint32_t kv_head, std::uint32_t position) {
    return to_f32(state_.scores(layer)[score_index(kv_head, position)]);
  }
  // Gives a position a score as if queries had paid it, whether it is a member or not.
  void set_score(std::uint32_t layer, std::uint32_t kv_head, std::uint32_t position, float value) {
    state_.scores(layer)[score_index(kv_head, position)] = to_bf16(value);
    const auto members = state_.members(layer, kv_head);
    const auto wanted = static_cast<std::int32_t>(position);
    const auto at = std::lower_bound(members.begin(), members.end(), wanted);
    if (at == members.end() || *at != wanted) return;
    state_.accumulators(layer)[std::size_t{kv_head} * state_.shape().memory_size() +
                               static_cast<std::size_t>(at - members.begin())] = value;
  }
  std::set<std::int32_t> member_set(std::uint32_t layer, std::uint32_t kv_head) const {
    const auto members = state_.members(layer, kv_head);
    return {members.begin(), members.end()};
  }
  // Every byte of the region.
  std::vector<std::byte> bytes() const {
    const auto all = std::as_bytes(std::span(lines_));
    return {all.begin(), all.end()};
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::size_t score_index(std::uint32_t kv_head, std::uint32_t position) const {
    return std::size_t{kv_head} * state_.shape().kv_size + position;
  }

  std::vector<Line> lines_;
  SparsePrefillState state_;
};

// Uniform numbers of [low, high).
inline std::vector<float> uniform_floats(Rng& rng, std::size_t n, float low, float high) {
  std::vector<float> values(n);
  for (float& value : values) value = low + (high - low) * rng.next_f32();
  return values;
}

}  // namespace qsf

#endif  // QSF_KV_TESTING_SPARSE_PREFILL_OWNER_H_
