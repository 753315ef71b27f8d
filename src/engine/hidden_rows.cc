// SPDX-License-Identifier: MIT

#include "engine/hidden_rows.h"

#include <algorithm>

#include "base/check.h"

namespace qsf {

std::uint64_t HiddenRows::region_bytes(std::uint32_t n_sequences, std::uint32_t most_rows,
                                       std::uint32_t n_cols) noexcept {
  return std::uint64_t{n_sequences} * most_rows * n_cols * sizeof(float);
}

HiddenRows::HiddenRows(std::uint32_t n_sequences, std::uint32_t most_rows, std::uint32_t n_cols,
                       MutableByteSpan region)
    : most_rows_(most_rows), n_cols_(n_cols), places_(n_sequences) {
  QSF_CHECK(region.size() >= region_bytes(n_sequences, most_rows, n_cols));
  values_ = {reinterpret_cast<float*>(region.data()),
             std::size_t{n_sequences} * most_rows * n_cols};
}

void HiddenRows::cut(SequenceId sequence, std::uint32_t end) noexcept {
  Place& place = places_[sequence];
  place.end = std::min(place.end, end);
  if (place.end <= place.begin) place = {};
}

void HiddenRows::drop_before(SequenceId sequence, std::uint32_t begin) noexcept {
  Place& place = places_[sequence];
  if (begin <= place.begin) return;
  if (begin >= place.end) return clear(sequence);
  const std::span<float> all = all_of(sequence);
  const auto first =
      all.begin() + static_cast<std::ptrdiff_t>(std::size_t{begin - place.begin} * n_cols_);
  const auto last = first + static_cast<std::ptrdiff_t>(std::size_t{place.end - begin} * n_cols_);
  std::copy(first, last, all.begin());
  place.begin = begin;
}

void HiddenRows::add(SequenceId sequence, std::uint32_t position,
                     std::span<const float> row) noexcept {
  QSF_DCHECK(row.size() == n_cols_);
  Place& place = places_[sequence];
  if (place.begin == place.end || place.end != position) place = {position, position};
  QSF_DCHECK(n_free(sequence) != 0);
  std::copy(row.begin(), row.end(),
            all_of(sequence).begin() +
                static_cast<std::ptrdiff_t>(std::size_t{n_rows(sequence)} * n_cols_));
  ++place.end;
}

void HiddenRows::copy(SequenceId from, SequenceId to) noexcept {
  places_[to] = places_[from];
  std::copy_n(all_of(from).begin(), std::size_t{n_rows(from)} * n_cols_, all_of(to).begin());
}

std::span<const float> HiddenRows::rows(SequenceId sequence, std::uint32_t first,
                                        std::uint32_t n_rows) const noexcept {
  QSF_DCHECK(first >= begin(sequence) && first + n_rows <= end(sequence));
  return all_of(sequence).subspan(std::size_t{first - begin(sequence)} * n_cols_,
                                  std::size_t{n_rows} * n_cols_);
}

}  // namespace qsf
