// SPDX-License-Identifier: MIT

#include "import/gguf/i2s_dead_channels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace qsf {
namespace {

constexpr double kAllZeros = 0.999;
constexpr double kTooMany = 0.9;  // of zeros in an order that is not the right one

// Returns the share of zeros in some columns; 0 in an order that the tensor cannot have.
Result<double> share_of_zeros(I2sFlavor order, const I2sTensor& down,
                              std::span<const std::uint64_t> columns,
                              const I2sDecoder::ReadBytes& read) {
  constexpr std::uint64_t kRowsAtOnce = 64;
  if (order == I2sFlavor::kMicrosoft4Row && down.rows % 4 != 0) return 0.0;
  const auto decoder = I2sDecoder::open(order, down, read);
  if (!decoder && decoder.error().code() == StatusCode::kIo) return decoder.error();
  if (!decoder) return 0.0;
  std::uint64_t n_zeros = 0;
  std::vector<float> weights;
  for (std::uint64_t row = 0; row < down.rows; row += kRowsAtOnce) {
    weights.resize(std::min(kRowsAtOnce, down.rows - row) * down.cols);
    const Status status = decoder->read_rows(row, weights);
    if (status.code() == StatusCode::kIo) return status;
    if (!status.ok()) return 0.0;
    for (std::uint64_t at = 0; at < weights.size(); at += down.cols) {
      for (const std::uint64_t column : columns) n_zeros += weights[at + column] == 0.0F ? 1 : 0;
    }
  }
  return static_cast<double>(n_zeros) / static_cast<double>(down.rows * columns.size());
}

}  // namespace

Result<std::optional<I2sFlavor>> i2s_order_by_dead_channels(const I2sTensor& down,
                                                            std::span<const float> gains,
                                                            const I2sDecoder::ReadBytes& read) {
  QSF_CHECK(gains.size() == down.cols);
  std::vector<std::uint64_t> dead;
  for (std::uint64_t i = 0; i < gains.size(); ++i) {
    if (std::fabs(gains[i]) < kDeadGain) dead.push_back(i);
  }
  std::optional<I2sFlavor> right;
  if (dead.size() < kMinDeadChannels || 2 * dead.size() > gains.size()) return right;
  for (const I2sFlavor order :
       {I2sFlavor::kMicrosoft128, I2sFlavor::kMicrosoft64, I2sFlavor::kMicrosoft4Row}) {
    QSF_ASSIGN_OR_RETURN(const double share, share_of_zeros(order, down, dead, read));
    if (share >= kAllZeros && !right) {
      right = order;
    } else if (share >= kTooMany) {
      return std::optional<I2sFlavor>();
    }
  }
  return right;
}

}  // namespace qsf
