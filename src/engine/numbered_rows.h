// SPDX-License-Identifier: MIT

#ifndef QSF_ENGINE_NUMBERED_ROWS_H_
#define QSF_ENGINE_NUMBERED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/logits_sink.h"

namespace qsf {

// Numbers the rows of one pass after those of the passes before it.
class NumberedRows final : public LogitsSink {
 public:
  NumberedRows(LogitsSink& to, std::size_t first_row) noexcept
      : to_(to), first_row_(static_cast<std::uint32_t>(first_row)) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    to_.consume(first_row_ + row, first_token, logits);
  }

 private:
  LogitsSink& to_;
  std::uint32_t first_row_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_NUMBERED_ROWS_H_
