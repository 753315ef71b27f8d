// SPDX-License-Identifier: MIT
//
// Any bytes as a tensor of type I2_S. The first byte chooses the layout that is asked for, four
// more the shape, the alignment and the scales beside it; the rest are the tensor. What is kept is
// held to what is decoded. Needs qsf_import_models.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "import/gguf/i2s_decoder.h"
#include "import/gguf/i2s_flavor.h"
#include "quant/codec.h"

namespace {

constexpr std::size_t kHeader = 5;

// What is kept decodes to the same numbers, and only what cannot be kept is refused.
void check_kept(const qsf::I2sDecoder& decoder, std::uint64_t rows, std::uint64_t cols,
                std::span<const float> weights) {
  const auto format = decoder.kept_format();
  if (!format) return;
  const std::size_t n_bytes = qsf::row_major_bytes(*format, cols);
  std::vector<std::byte> kept(rows * n_bytes);
  const qsf::Status status = decoder.read_kept_rows(0, rows, kept);
  if (!status.ok()) {
    QSF_CHECK(status.code() == qsf::StatusCode::kUnsupported);
    return;
  }
  QSF_CHECK(qsf::check_blocks(*format, qsf::Layout::kRowMajor, rows, cols, kept).ok());
  std::vector<float> row(cols);
  for (std::uint64_t r = 0; r < rows; ++r) {
    qsf::decode_row(*format, qsf::ByteSpan(kept).subspan(r * n_bytes, n_bytes), row);
    QSF_CHECK(std::equal(row.begin(), row.end(), weights.begin() + static_cast<long>(r * cols)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  if (size < kHeader) return 0;
  const auto layout = static_cast<I2sLayout>(data[0] % std::size(kI2sLayoutNames));
  const ByteSpan bytes = std::as_bytes(std::span(data, size)).subspan(kHeader);
  // Columns by 1 or by 32, so that whole groups and broken ones both come up.
  const std::uint64_t cols = (data[2] & 1U) != 0 ? data[2] : std::uint64_t{data[2]} * 16;
  const std::uint64_t rows = data[1] % 32;
  const std::uint64_t n_scales =
      (data[4] & 1U) != 0 ? ceil_div(rows * cols, 32) : std::uint64_t{data[4]} / 2;
  const I2sTensor tensor = {"tensor", rows, cols, bytes.size(), (data[3] & 8U) != 0, n_scales};
  const auto flavors = detect_i2s_flavors(
      {std::span(&tensor, 1), std::uint64_t{1} << (data[3] & 7U), data[3] >> 4U}, layout);
  if (!flavors) return 0;
  QSF_CHECK(layout != I2sLayout::kAuto || (*flavors)[0] != I2sFlavor::kGgmlQk256NoScale);
  std::vector<float> scales(n_scales, 0.1F);
  if (!bytes.empty() && !scales.empty()) scales[0] = static_cast<float>(data[kHeader]);
  const auto decoder = I2sDecoder::open(
      (*flavors)[0], tensor,
      [bytes](std::uint64_t offset, MutableByteSpan out) {
        QSF_CHECK(offset <= bytes.size() && out.size() <= bytes.size() - offset);
        std::copy_n(bytes.begin() + static_cast<long>(offset), out.size(), out.begin());
        return ok_status();
      },
      scales);
  if (!decoder) return 0;
  std::vector<float> weights(rows * cols);
  if (decoder->read_rows(0, weights).ok()) check_kept(*decoder, rows, cols, weights);
  return 0;
}
