// SPDX-License-Identifier: MIT

#include "import/hf/hf_mxfp4.h"

#include <vector>

#include "quant/codec.h"

namespace qsf {
namespace {

constexpr BlockFormat kHfMxfp4Format = block_format(QuantType::kMxfp4, 0);
constexpr std::size_t kCodeBytes = code_bytes(kHfMxfp4Format);

// Pairs of neighbours become pairs of columns 16 apart.
void repack_hf_mxfp4(const std::byte* from, std::byte* to) noexcept {
  for (std::size_t j = 0; j < kCodeBytes; ++j) {
    const std::byte low = from[j / 2] >> (j % 2 * 4) & std::byte{15};
    const std::byte high = from[(j + kCodeBytes) / 2] >> (j % 2 * 4) & std::byte{15};
    to[j] = low | high << 4;
  }
}

}  // namespace

Status read_hf_mxfp4_rows(const Checkpoint& weights, const HfMxfp4Rows& rows, MutableByteSpan out) {
  const std::size_t n_blocks = rows.n_cols / kHfMxfp4Format.block;
  const std::size_t n_read = (rows.n_rows - 1) * rows.stride + 1;  // rows between them included
  std::vector<std::byte> codes(n_read * n_blocks * kCodeBytes);
  std::vector<std::byte> scales(n_read * n_blocks);
  QSF_RETURN_IF_ERROR(read_elements(weights.file_of(rows.blocks), rows.blocks,
                                    rows.first * n_blocks * kCodeBytes, codes));
  QSF_RETURN_IF_ERROR(
      read_elements(weights.file_of(rows.scales), rows.scales, rows.first * n_blocks, scales));
  std::byte* to = out.data();
  for (std::uint32_t r = 0; r < rows.n_rows; ++r) {
    for (std::size_t b = 0; b < n_blocks; ++b, to += block_bytes(kHfMxfp4Format)) {
      const std::size_t at = r * rows.stride * n_blocks + b;
      to[0] = scales[at];
      repack_hf_mxfp4(&codes[at * kCodeBytes], to + 1);
    }
  }
  return check_blocks(kHfMxfp4Format, Layout::kRowMajor, rows.n_rows, rows.n_cols, out)
      .with_context("tensor \"" + rows.scales.name + "\", rows from " + std::to_string(rows.first));
}

}  // namespace qsf
