// SPDX-License-Identifier: MIT
//
// StateCache: what layers without keys and values carry from row to row, for every sequence.
//
// A state has a fixed size whatever the text's length: the last inputs of a convolution. It cannot
// be taken back row by row, so a sequence returns to kept points alone: 0, the end of its rows, the
// end before its last pass, and the end at which keep() was called or prompt rows and generated
// rows met, whatever was last. Each point is a whole state in one of three buffers. A pass reads
// the newest and writes another, so a pass that fails leaves no trace.
//
// All memory lies in a region that the caller plans; nothing is allocated after creation.

#ifndef QSF_KV_STATE_CACHE_H_
#define QSF_KV_STATE_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "kv/row.h"

namespace qsf {

struct StateShape {
  std::uint32_t n_layers = 0;    // with a state; 0: the model has none
  std::uint32_t layer_size = 0;  // f32 of one

  constexpr std::size_t n_values() const noexcept { return std::size_t{n_layers} * layer_size; }
};

class StateCache {
 public:
  static constexpr std::uint32_t kBuffers = 3;

  // Returns the bytes of the region that `max_sequences` sequences need.
  static std::uint64_t region_bytes(const StateShape& shape, std::uint32_t max_sequences) noexcept;
  // Requires  memory has region_bytes(), is aligned to 64 bytes and outlives the cache
  static StateCache create(const StateShape& shape, std::uint32_t max_sequences,
                           MutableByteSpan memory);

  const StateShape& shape() const noexcept { return shape_; }
  // Rows that the newest state of a sequence has seen; 0 for a new one.
  std::uint32_t n_rows(SequenceId sequence) const noexcept;
  // The most rows, `n_rows` at most, that a sequence can return to.
  std::uint32_t longest_kept(SequenceId sequence, std::uint32_t n_rows) const noexcept;
  // Returns to longest_kept(n_rows), and returns that.
  std::uint32_t truncate(SequenceId sequence, std::uint32_t n_rows) noexcept;
  // Makes `to` a sequence of the rows of `from`, without its other points.
  void fork(SequenceId from, SequenceId to) noexcept;

  // Keeps the end of the sequence's rows until the next such point.
  void keep(SequenceId sequence) noexcept;
  // Starts a pass with rows of this role in the sequence.
  void begin(SequenceId sequence, RowRole role) noexcept;
  // The state in front of the pass, and where that behind it goes. Layers are numbered among those
  // with a state. Requires  between begin() and commit()
  std::span<const float> before(SequenceId sequence, std::uint32_t layer) const noexcept;
  std::span<float> after(SequenceId sequence, std::uint32_t layer) noexcept;
  // Ends a pass that has written the whole state behind its `n_new` rows. A pass that failed has no
  // commit().
  void commit(SequenceId sequence, std::uint32_t n_new) noexcept;

  // The newest state of all layers, to be saved.
  std::span<const float> saved(SequenceId sequence) const noexcept;
  // Where a saved state of `n_rows` rows goes, which becomes the newest. Requires  a new sequence;
  // the values are then those of a state
  std::span<float> restore(SequenceId sequence, std::uint32_t n_rows) noexcept;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  struct Sequence {
    std::array<std::uint32_t, kBuffers> rows = {0, kNone, kNone};  // kNone: holds no point
    std::uint32_t newest = 0;
    std::uint32_t mark = 0;  // of keep(), or where the role last changed
    std::uint32_t target = 1;
    bool generates = false;  // the last rows were not a prompt's
  };

  StateCache(const StateShape& shape, std::uint32_t max_sequences, std::span<float> values);
  std::span<float> buffer(SequenceId sequence, std::uint32_t index) const noexcept;
  void clear(SequenceId sequence) noexcept;

  StateShape shape_;
  std::span<float> values_;  // [sequences][kBuffers][layers][layer_size]
  std::vector<Sequence> sequences_;
};

}  // namespace qsf

#endif  // QSF_KV_STATE_CACHE_H_
