// SPDX-License-Identifier: MIT
//
// Layers of which other processes run the rest: rows come and go between windows.

#include <algorithm>

#include "model/decoder.h"

namespace qsf {

void Decoder::upload_rows(std::span<const float> rows) {
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    backend_.upload_row(buffers_.hidden, i,
                        rows.subspan(std::size_t{i} * spec_.hidden, spec_.hidden));
  }
}

// Requires  the backend has nothing under way
void Decoder::download_rows(std::span<float> rows) {
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    const std::span<const float> values = backend_.read_row(buffers_.hidden, i);
    std::copy(values.begin(), values.end(), rows.begin() + std::size_t{i} * spec_.hidden);
  }
}

// Runs the layers that are here, with those of other processes between them.
Status Decoder::run_windows(const Pass& pass) {
  std::uint32_t first = 0;
  std::uint32_t window = 0;
  for (const std::uint32_t end : cut_->window_ends) {
    QSF_RETURN_IF_ERROR(first == 0 && cut_->has_ends ? embed(pass) : receive_rows(pass, window));
    QSF_RETURN_IF_ERROR(run_layers(pass, first, end));
    QSF_RETURN_IF_ERROR(send_rows(window++));
    first = end;
  }
  return cut_->has_ends ? receive_rows(pass, window) : ok_status();
}

Status Decoder::receive_rows(const Pass& pass, std::uint32_t window) {
  const std::span<float> rows = relayed_rows_.first(pass.rows.size() * spec_.hidden);
  QSF_RETURN_IF_ERROR(cut_->relay->receive(window, rows, pass.cancel));
  upload_rows(rows);
  return ok_status();
}

Status Decoder::send_rows(std::uint32_t window) {
  const std::span<float> rows = relayed_rows_.first(std::size_t{counts_.n_rows} * spec_.hidden);
  QSF_RETURN_IF_ERROR(backend_.wait());
  download_rows(rows);
  return cut_->relay->send(window, rows);
}

}  // namespace qsf
