// SPDX-License-Identifier: MIT
//
// HiddenRows: the newest rows that a model has computed of each sequence, behind its final norm.
//
// A block for multi-token prediction is fed with them (draft_model.h). Of a sequence they are
// neighbours: those of the positions [begin, end). All have room that was planned.
//
// Threads  one at a time

#ifndef QSF_ENGINE_HIDDEN_ROWS_H_
#define QSF_ENGINE_HIDDEN_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "kv/row.h"

namespace qsf {

class HiddenRows {
 public:
  static std::uint64_t region_bytes(std::uint32_t n_sequences, std::uint32_t most_rows,
                                    std::uint32_t n_cols) noexcept;

  // Requires  region.size() >= region_bytes(); it outlives this
  HiddenRows(std::uint32_t n_sequences, std::uint32_t most_rows, std::uint32_t n_cols,
             MutableByteSpan region);

  std::uint32_t begin(SequenceId sequence) const noexcept { return places_[sequence].begin; }
  std::uint32_t end(SequenceId sequence) const noexcept { return places_[sequence].end; }
  std::uint32_t n_rows(SequenceId sequence) const noexcept {
    return end(sequence) - begin(sequence);
  }
  // How many rows there is room for.
  std::uint32_t n_free(SequenceId sequence) const noexcept { return most_rows_ - n_rows(sequence); }

  void clear(SequenceId sequence) noexcept { places_[sequence] = {}; }
  // Drops the rows from a position on, or those before it.
  void cut(SequenceId sequence, std::uint32_t end) noexcept;
  void drop_before(SequenceId sequence, std::uint32_t begin) noexcept;
  // Appends a row; alone where it is not the next one. Requires  n_free() != 0
  void add(SequenceId sequence, std::uint32_t position, std::span<const float> row) noexcept;
  void copy(SequenceId from, SequenceId to) noexcept;

  // Shapes    [n_rows, n_cols]
  // Requires  the positions are kept
  std::span<const float> rows(SequenceId sequence, std::uint32_t first,
                              std::uint32_t n_rows) const noexcept;

 private:
  struct Place {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };
  std::span<float> all_of(SequenceId sequence) const noexcept {
    return values_.subspan(sequence * std::size_t{most_rows_} * n_cols_,
                           std::size_t{most_rows_} * n_cols_);
  }

  std::uint32_t most_rows_;
  std::uint32_t n_cols_;
  std::vector<Place> places_;  // by SequenceId
  std::span<float> values_;    // [sequences][most_rows][n_cols], the first kept row in front
};

}  // namespace qsf

#endif  // QSF_ENGINE_HIDDEN_ROWS_H_
