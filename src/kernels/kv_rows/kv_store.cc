// SPDX-License-Identifier: MIT
//
// The store of K and V rows: keys scattered by dimension, values in one piece.

#include "kernels/kv_rows/kv_store.h"

#include <cstring>

#include "base/check.h"

namespace qsf::kernels {
namespace {

constexpr std::size_t kScaleBytes = 2;

// One coded row: codes in units of kKvUnitColumns, then scales.
struct CodedRow {
  std::byte bytes[kMaxHeadDim + kMaxHeadDim / kKvUnitColumns * kScaleBytes];
};

// Fills a row up with zeros, rotates it if asked to, and codes it.
void code_row(const KvRowKernels& kv_rows, const KvRowFormat& format, const float* from,
              std::uint32_t head_dim, bool rotate, CodedRow* row) noexcept {
  float padded[kMaxHeadDim];
  QSF_DCHECK(format.head_dim <= kMaxHeadDim);
  std::memcpy(padded, from, head_dim * sizeof(float));
  for (std::uint32_t d = head_dim; d < format.head_dim; ++d) padded[d] = 0.0F;
  if (rotate) kv_rows.rotate(padded, format.head_dim);
  kv_rows.quantise(padded, row->bytes, format);
}

void scatter_bytes(const CodedRow& row, std::byte* block, std::uint32_t slot,
                   std::uint32_t n_columns) noexcept {
  std::byte* to = block + slot;
  for (std::uint32_t d = 0; d < n_columns; ++d, to += kKvPageSlots) *to = row.bytes[d];
}

// In 4 or 2 bits: column j of a unit lies j / kUnitBytes fields up in byte j % kUnitBytes.
template <unsigned kBits>
void scatter_codes(const CodedRow& row, std::byte* block, std::uint32_t slot,
                   std::uint32_t n_columns) noexcept {
  constexpr std::uint32_t kUnitBytes = kKvUnitColumns * kBits / 8;
  constexpr std::uint32_t kRowBytes = kKvPageSlots * kBits / 8;
  constexpr std::byte kField{(1U << kBits) - 1U};
  std::byte* to = block + slot % kRowBytes;
  const unsigned shift = slot / kRowBytes * kBits;
  const std::byte others = ~(kField << shift);
  for (std::uint32_t d = 0; d < n_columns; ++d, to += kRowBytes) {
    const std::uint32_t j = d % kKvUnitColumns;
    const std::byte fields = row.bytes[d / kKvUnitColumns * kUnitBytes + j % kUnitBytes];
    *to = (*to & others) | ((fields >> (j / kUnitBytes * kBits)) & kField) << shift;
  }
}

void store_coded_key(const KvRowKernels& kv_rows, KvType type, const float* from, std::byte* block,
                     std::uint32_t slot, std::uint32_t head_dim) noexcept {
  const KvRowFormat format = kv_row_format(type, head_dim);
  CodedRow row;
  code_row(kv_rows, format, from, head_dim, true, &row);
  if (type == KvType::k8Bit) {
    scatter_bytes(row, block, slot, format.head_dim);
  } else if (type == KvType::k4Bit) {
    scatter_codes<4>(row, block, slot, format.head_dim);
  } else {
    scatter_codes<2>(row, block, slot, format.head_dim);
  }
  const std::byte* scales = row.bytes + kv_row_scales_offset(format);
  std::byte* to = block + kv_scales_offset(type, head_dim) + slot * kScaleBytes;
  for (std::uint32_t g = 0; g < kv_groups(type, head_dim); ++g) {
    std::memcpy(to + g * kKvPageSlots * kScaleBytes, scales + g * kScaleBytes, kScaleBytes);
  }
}

}  // namespace

void store_key(const KvStore& store, KvType type, const float* from, std::byte* block,
               std::uint32_t slot, std::uint32_t head_dim) noexcept {
  if (kv_is_quantised(type)) {
    return store_coded_key(store.kv_rows, type, from, block, slot, head_dim);
  }
  if (type == KvType::kF32) {
    float* to = reinterpret_cast<float*>(block) + slot;
    for (std::uint32_t d = 0; d < head_dim; ++d) to[d * kKvPageSlots] = from[d];
    return;
  }
  constexpr std::uint32_t kAtOnce = 64;
  F16 halves[kAtOnce];
  F16* to = reinterpret_cast<F16*>(block) + slot;
  for (std::uint32_t d = 0; d < head_dim; d += kAtOnce) {
    const std::uint32_t n = head_dim - d < kAtOnce ? head_dim - d : kAtOnce;
    store.convert.f32_to_f16(from + d, halves, n);
    for (std::uint32_t i = 0; i < n; ++i) to[(d + i) * kKvPageSlots] = halves[i];
  }
}

void store_value(const KvStore& store, KvType type, const float* from, std::byte* block,
                 std::uint32_t slot, std::uint32_t head_dim) noexcept {
  const std::size_t row_bytes = kv_scales_offset(type, head_dim) / kKvPageSlots;
  std::byte* to = block + slot * row_bytes;
  if (type == KvType::kF32) {
    std::memcpy(to, from, row_bytes);
  } else if (type == KvType::kF16) {
    store.convert.f32_to_f16(from, reinterpret_cast<F16*>(to), head_dim);
  } else {
    CodedRow row;
    code_row(store.kv_rows, kv_row_format(type, head_dim), from, head_dim, kv_rotates_values(type),
             &row);
    std::memcpy(to, row.bytes, row_bytes);
    const std::size_t scale_bytes = kv_groups(type, head_dim) * kScaleBytes;
    std::memcpy(block + kv_scales_offset(type, head_dim) + slot * scale_bytes,
                row.bytes + row_bytes, scale_bytes);
  }
}

}  // namespace qsf::kernels
