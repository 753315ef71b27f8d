// SPDX-License-Identifier: MIT
//
// Making of problems and their exact answers.

#include "kernels/testing/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/f16.h"
#include "kernels/testing/error_bound.h"
#include "quant/codebook_block.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "quant/trellis.h"

namespace qsf::kernels::testing_support {
namespace {

constexpr F16 kLargestHalf{0x7BFF};   // 65504
constexpr F16 kSmallestHalf{0x0001};  // 2^-24

float random_weight(Data data, SeededRng& rng) {
  if (data == Data::kUniform) return rng.uniform(-1.0F, 1.0F);
  const float normal = rng.get().next_normal();
  const bool outlier = data == Data::kOutliers && rng.get().below(64) == 0;
  return outlier ? normal * 100.0F : normal;
}

// A finite half of any sign and exponent; 2^-24 to 65504.
F16 random_half(SeededRng& rng) {
  const std::uint32_t exponent = rng.get().below(31);
  const std::uint32_t rest = rng.get().next_u32();
  return {static_cast<std::uint16_t>((rest & 0x83FFU) | (exponent << 10))};
}

std::uint8_t choose_code(QuantType type, Data data, SeededRng& rng) {
  const std::uint32_t largest = largest_code(type);
  const bool is_signed = type_traits(type).code_form == CodeForm::kSigned;
  // Its codes of the largest and the smallest level.
  const bool is_mxfp4 = type == QuantType::kMxfp4;
  switch (data) {
    case Data::kLargest: return static_cast<std::uint8_t>(is_mxfp4 ? 7 : largest);
    case Data::kTinyScales: return static_cast<std::uint8_t>(largest);
    case Data::kSmallest:
      if (is_mxfp4) return 15;
      return is_signed ? static_cast<std::uint8_t>(std::int8_t{-127}) : std::uint8_t{0};
    case Data::kZeroWeights: return 0;
    default: break;
  }
  const auto code = static_cast<std::int32_t>(rng.get().below(largest + 1));
  const bool negative = is_signed && rng.get().below(2) == 1;
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(negative ? -code : code));
}

struct Scales {
  F16 scale;
  F16 min;
};

Scales choose_scales(Data data, SeededRng& rng) {
  switch (data) {
    case Data::kLargest: return {kLargestHalf, kLargestHalf};
    case Data::kSmallest:
      return {kLargestHalf, F16{static_cast<std::uint16_t>(kLargestHalf.bits | 0x8000U)}};
    case Data::kTinyScales: return {kSmallestHalf, F16{0x8001}};
    case Data::kZeroWeights: return {F16{0}, F16{0}};
    default: return {random_half(rng), random_half(rng)};
  }
}

// The exponent of a block of mxfp4: a scale of 2^(exponent - 128).
std::byte choose_exponent(Data data, SeededRng& rng) {
  switch (data) {
    case Data::kLargest:
    case Data::kSmallest: return std::byte{190};
    case Data::kTinyScales: return static_cast<std::byte>(rng.get().below(3));
    case Data::kZeroWeights: return std::byte{0};
    default: return static_cast<std::byte>(113 + rng.get().below(31));
  }
}

bool is_encoded(Data data) {
  return data == Data::kUniform || data == Data::kNormal || data == Data::kOutliers ||
         data == Data::kZeroInput || data == Data::kUnitScales;
}

float extreme_float(QuantType type, Data data, SeededRng& rng) {
  const float largest = type == QuantType::kF16 ? 65504.0F : 0x1p100F;
  const float tiny = type == QuantType::kF16 ? 0x1p-24F : 0x1p-126F;
  switch (data) {
    case Data::kLargest: return largest;
    case Data::kSmallest: return -largest;
    case Data::kTinyScales: return tiny;
    case Data::kZeroWeights: return 0.0F;
    default: return to_f32(random_half(rng));
  }
}

// Draws the 6-bit fields of a super-block, including those of padding sub-blocks, which kernels
// must ignore.
void make_six_bit_fields(BlockFormat format, Data data, SeededRng& rng, MutableByteSpan fields) {
  const std::uint32_t n_sub_blocks = kSuperColumns / format.block;
  std::uint32_t high = 0;
  for (std::uint32_t k = 0; k < n_sub_blocks; ++k) {
    const bool largest = data == Data::kLargest || data == Data::kSmallest;
    const bool tiny = data == Data::kTinyScales;
    const std::uint32_t scale = largest ? 63 : tiny ? 1 : rng.get().below(64);
    const std::uint32_t min = largest ? 63 : tiny ? 1 : rng.get().below(64);
    fields[k] = static_cast<std::byte>(scale % 16 + min % 16 * 16);
    high |= (scale / 16 + min / 16 * 4) << (4 * k);
  }
  std::memcpy(fields.data() + n_sub_blocks, &high, n_sub_blocks / 2);
}

// The same for codebook types: every scale of the range, the lowest for the largest weights.
void make_codebook_scales(BlockFormat format, Data data, SeededRng& rng, MutableByteSpan fields) {
  const int n_scales = format.block == 16 ? 16 : 64;
  std::vector<int> scales(kSuperColumns / format.block);
  for (int& scale : scales) {
    scale = static_cast<int>(rng.get().below(static_cast<std::uint32_t>(n_scales))) - n_scales / 2;
    if (data == Data::kLargest || data == Data::kSmallest) scale = -n_scales / 2;
    if (data == Data::kTinyScales) scale = 1;
  }
  put_codebook_scales(format, scales, fields);
}

// The same for one byte a sub-block: a signed scale, or a scale and a min of 4 bits.
void make_byte_fields(ScaleForm form, Data data, SeededRng& rng, MutableByteSpan fields) {
  for (std::byte& field : fields) {
    const bool is_signed = form == ScaleForm::kSuperSigned;
    std::uint32_t bits = rng.get().below(256);
    if (data == Data::kLargest) bits = is_signed ? 127 : 0xFF;
    if (data == Data::kSmallest) bits = is_signed ? 0x80 : 0xFF;
    if (data == Data::kTinyScales) bits = is_signed ? 0xFF : 0x11;
    field = static_cast<std::byte>(bits);
  }
}

// The 4-bit scales of eight blocks, those of blocks that do not exist among them.
std::uint32_t make_nibbles(Data data, SeededRng& rng) {
  switch (data) {
    case Data::kLargest:
    case Data::kSmallest: return 0xFFFFFFFFU;
    case Data::kTinyScales: return 0x11111111U;
    default: return rng.get().next_u32();
  }
}

// Draws the fields that block `b` is the first to need.
void make_fields(BlockFormat format, std::uint64_t b, Data data, SeededRng& rng,
                 MutableByteSpan row) {
  const std::uint64_t at = locate_in_row(format, b).fields;
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: return;
    case ScaleForm::kRow:
      if (b == 0) store_le(row, 0, extreme_float(QuantType::kF32, data, rng));
      return;
    case ScaleForm::kRowNibble:
      if (b == 0) store_le(row, 0, extreme_float(QuantType::kF32, data, rng));
      if (b % kNibbleBlocks == 0) store_le(row, at, make_nibbles(data, rng));
      return;
    case ScaleForm::kSuperBlock:
      if (b * format.block % kSuperColumns != 0) return;
      make_six_bit_fields(format, data, rng, row.subspan(at + 4, field_bytes(format) - 4));
      break;
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned: {
      if (b * format.block % kSuperColumns != 0) return;
      const std::uint64_t head = has_min(format.type) ? 4 : 2;
      make_byte_fields(scale_form(format.type), data, rng, row.subspan(at + head, 16));
      break;
    }
    case ScaleForm::kSuperCodebook:
      if (b * format.block % kSuperColumns != 0) return;
      make_codebook_scales(format, data, rng, row.subspan(at, field_bytes(format)));
      break;
    case ScaleForm::kExponent: row[at] = choose_exponent(data, rng); return;
    case ScaleForm::kBlock:
    case ScaleForm::kBlockMin: break;
  }
  const Scales scales = choose_scales(data, rng);
  store_le<std::uint16_t>(row, at, scales.scale.bits);
  if (has_min(format.type)) store_le<std::uint16_t>(row, at + 2, scales.min.bits);
}

// Fills one layout-0 row.
void make_row(BlockFormat format, std::uint32_t n_cols, Data data, SeededRng& rng,
              MutableByteSpan row) {
  if (is_encoded(data) || is_float_type(format.type)) {
    std::vector<float> values(n_cols);
    for (float& value : values) {
      value = is_encoded(data) ? random_weight(data, rng) : extreme_float(format.type, data, rng);
    }
    encode_row(format, values, kNearestRounding, row);
    return;
  }
  for (std::uint32_t first = 0; first < n_cols; first += format.block) {
    const std::uint32_t n_true = std::min(format.block, n_cols - first);
    make_fields(format, first / format.block, data, rng, row);
    std::vector<std::uint8_t> codes(format.block, 0);
    for (std::uint32_t i = 0; i < n_true; ++i) codes[i] = choose_code(format.type, data, rng);
    block_codec(format.type)
        .pack(codes.data(), format.block, n_true,
              row.data() + locate_in_row(format, first / format.block).codes);
  }
}

// A scale and a min, and the whole numbers that multiply them in super-blocks of 16 sub-blocks.
struct Fields {
  float scale;
  float min;
  std::int32_t scale_factor = 1;
  std::int32_t min_factor = 1;
};

// Reads what the type stores for block `b`; a min that is not stored is 0.
Fields read_fields(BlockFormat format, ByteSpan row, std::uint64_t b) {
  const std::uint64_t at = locate_in_row(format, b).fields;
  const auto half = [&](std::uint64_t offset) { return to_f32(load_le<F16>(row, offset)); };
  switch (scale_form(format.type)) {
    case ScaleForm::kNone:
    case ScaleForm::kRow: return {1.0F, 0.0F};
    case ScaleForm::kRowNibble: {
      const auto word = load_le<std::uint32_t>(row, at);
      return {static_cast<float>(word >> (4 * (b % kNibbleBlocks)) & 15U), 0.0F};
    }
    case ScaleForm::kExponent: return {std::ldexp(1.0F, static_cast<int>(row[at]) - 128), 0.0F};
    case ScaleForm::kBlock: return {half(at), 0.0F};
    case ScaleForm::kBlockMin: return {half(at), half(at + 2)};
    case ScaleForm::kSuperNibble: {
      const auto byte = static_cast<unsigned>(row[at + 4 + b % 16]);
      return {half(at), half(at + 2), static_cast<std::int32_t>(byte % 16),
              static_cast<std::int32_t>(byte / 16)};
    }
    case ScaleForm::kSuperSigned: {
      return {half(at), 0.0F, static_cast<std::int8_t>(row[at + 2 + b % 16])};
    }
    case ScaleForm::kSuperCodebook: {
      const auto k = static_cast<unsigned>(b % (kSuperColumns / format.block));
      const auto word = [&](std::uint64_t offset) { return load_le<std::uint32_t>(row, offset); };
      return {half(at), 0.0F,
              format.block == 16
                  ? codebook_scale(word(at + 2 + k / 8 * 4), k)
                  : codebook_scale(word(at + 4), load_le<std::uint16_t>(row, at + 2), k)};
    }
    case ScaleForm::kSuperBlock: break;
  }
  const std::uint64_t n = kSuperColumns / format.block;
  const std::uint64_t k = b % n;
  const auto low = static_cast<unsigned>(row[at + 4 + k]);
  const unsigned high = static_cast<unsigned>(row[at + 4 + n + k / 2]) >> (k % 2 * 4);
  return {half(at) * static_cast<float>(low % 16 + high % 4 * 16),
          half(at + 2) * static_cast<float>(low / 16 + high / 4 % 4 * 16)};
}

double read_float(QuantType type, ByteSpan row, std::uint32_t column) {
  if (type == QuantType::kF32) return load_le<float>(row, std::size_t{column} * 4);
  const auto bits = load_le<std::uint16_t>(row, std::size_t{column} * 2);
  return type == QuantType::kF16 ? to_f32(F16{bits}) : to_f32(BF16{bits});
}

// Rows start a line apart from a whole number of KiB, as the callers of kernels lay them out.
std::size_t row_stride(ActivationType input, std::uint32_t n_cols) {
  return align_up(activation_row_bytes(input, n_cols), std::size_t{64});
}

float largest_magnitude(const float* x, std::size_t n) {
  float max = 0.0F;
  for (std::size_t c = 0; c < n; ++c) max = std::max(max, std::fabs(x[c]));
  return max;
}

// Quantises one activation block from the definition in quantise.h, `max` its largest magnitude or
// its row's.
void quantise_block(const float* x, float max, bool unit_scale, std::byte* codes,
                    std::byte* block64_at) {
  Int8Block x_block = {};
  x_block.scale = unit_scale ? 1.0F : max < 0x1p-100F ? 0.0F : max / 127.0F;
  const float inverse = max < 0x1p-100F ? 0.0F : 127.0F / max;
  for (std::uint32_t c = 0; c < kActivationBlockColumns; ++c) {
    const auto code = static_cast<std::int8_t>(std::nearbyint(x[c] * inverse));
    codes[c] = static_cast<std::byte>(code);
    (c < 32 ? x_block.low_sum : x_block.high_sum) += static_cast<float>(code);
    std::int16_t& quarter_sum = x_block.quarter_sums[quarter_place(c / 16)];
    quarter_sum = static_cast<std::int16_t>(quarter_sum + code);
  }
  for (unsigned i = 0; i < 4; ++i) {
    x_block.quarter_zeros[i] = static_cast<std::int16_t>(-4 * x_block.quarter_sums[i]);
  }
  x_block.sum = x_block.low_sum + x_block.high_sum;
  std::memcpy(block64_at, &x_block, sizeof(x_block));
}

}  // namespace

WeightProblem::WeightProblem(BlockFormat format, std::uint32_t n_rows, std::uint32_t n_cols,
                             std::uint32_t n_x, Data data, SeededRng& rng)
    : format_(format),
      n_rows_(n_rows),
      n_cols_(n_cols),
      n_x_(n_x),
      groups_(rows_bytes(format, Layout::kInterleaved, n_rows, n_cols)),
      f32_rows_(n_x * row_stride(ActivationType::kF32, n_cols)),
      int8_rows_(n_x * row_stride(ActivationType::kInt8, n_cols)),
      bf16_rows_(n_x * row_stride(ActivationType::kBf16, n_cols)),
      codes_(is_float_type(format.type) ? 0 : std::size_t{n_rows} * n_cols),
      blocks_(is_float_type(format.type) ? 0 : n_rows * blocks_per_row(format, n_cols)),
      row_scales_(n_rows, 1.0F),
      exact_(std::size_t{n_rows} * n_cols),
      magnitude_(exact_.size()),
      unit_scales_(data == Data::kUnitScales),
      name_(std::string(quant_type_name(format.type)) + "/" + std::to_string(format.block) + " " +
            std::to_string(n_rows) + "x" + std::to_string(n_cols) + " n_x " + std::to_string(n_x) +
            " data " + std::to_string(static_cast<int>(data))) {
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  std::vector<std::byte> rows(n_rows * row_bytes);
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const MutableByteSpan row = MutableByteSpan(rows).subspan(r * row_bytes, row_bytes);
    make_row(format, n_cols, data, rng, row);
    read_back(row, r);
  }
  if (n_rows > 0) {
    interleave_rows(format, n_rows, n_cols, rows, MutableByteSpan(groups_.data(), groups_.size()));
  }
  make_inputs(data, rng);
}

// Draws the rows of x and turns each into every form of input.
void WeightProblem::make_inputs(Data data, SeededRng& rng) {
  const std::size_t n_padded = align_up(n_cols_, kActivationBlockColumns);
  for (std::uint32_t i = 0; i < n_x_; ++i) {
    std::vector<float> x(n_padded, 0.0F);
    for (std::uint32_t c = 0; c < n_cols_; ++c) {
      const bool ones = data == Data::kLargest || data == Data::kSmallest;
      x[c] = data == Data::kZeroInput ? 0.0F
             : ones                   ? (i % 2 == 0 ? 1.0F : -1.0F)
                                      : rng.get().next_normal();
    }
    std::memcpy(f32_rows_.data() + i * row_stride(ActivationType::kF32, n_cols_), x.data(),
                n_padded * 4);
    std::byte* int8_row = int8_rows_.data() + i * row_stride(ActivationType::kInt8, n_cols_);
    std::byte* bf16_row = bf16_rows_.data() + i * row_stride(ActivationType::kBf16, n_cols_);
    for (std::size_t x_block = 0; x_block < n_padded / kActivationBlockColumns; ++x_block) {
      const float* of_block64 = &x[x_block * kActivationBlockColumns];
      const float max = unit_scales_ ? largest_magnitude(x.data(), n_padded)
                                     : largest_magnitude(of_block64, kActivationBlockColumns);
      quantise_block(of_block64, max, unit_scales_, int8_row + x_block * kActivationBlockColumns,
                     int8_row + int8_blocks_offset(n_cols_) + x_block * sizeof(Int8Block));
    }
    for (std::size_t c = 0; c < n_padded; ++c) {
      const BF16 half = to_bf16(x[c]);
      std::memcpy(bf16_row + c * 2, &half, 2);
    }
  }
}

void WeightProblem::read_back(ByteSpan row, std::uint32_t row_index) {
  std::vector<std::uint8_t> codes(format_.block);
  float& row_scale = row_scales_[row_index];
  if (has_row_scale(format_.type)) row_scale = load_le<float>(row, 0);
  unsigned windows[kTrellisStreams] = {};
  for (std::uint32_t c = 0; c < n_cols_; ++c) {
    double& exact = exact_[std::size_t{row_index} * n_cols_ + c];
    double& magnitude = magnitude_[std::size_t{row_index} * n_cols_ + c];
    if (is_float_type(format_.type)) {
      exact = read_float(format_.type, row, c);
      magnitude = std::fabs(exact);
      continue;
    }
    const std::uint64_t b = c / format_.block;
    if (c % format_.block == 0) {
      block_codec(format_.type)
          .unpack(row.data() + locate_in_row(format_, b).codes, format_.block, codes.data());
    }
    const std::uint8_t code = codes[c % format_.block];
    auto [scale, min, scale_factor, min_factor] = read_fields(format_, row, b);
    std::int32_t factor = code;
    const TypeTraits& traits = type_traits(format_.type);
    if (format_.type == QuantType::kQk256) {  // levels 0, 1, 3, 4 less 2
      factor = code < 2 ? code : code + 1;
      min = -2.0F;
    } else if (traits.code_form == CodeForm::kSigned) {
      factor = static_cast<std::int8_t>(code);
    } else if (traits.code_form == CodeForm::kCodebook) {
      factor = traits.levels[code];
    } else if (traits.scale_form == ScaleForm::kSuperSigned) {
      factor = code - code_zero(format_.type);
    } else if (is_trellis_type(format_.type)) {
      const bool has_refinement = format_.type == QuantType::kQ3Trellis;
      unsigned& window = windows[c % kTrellisStreams];
      window = window >> 2U | static_cast<unsigned>(has_refinement ? code / 2 : code) << 10U;
      factor = trellis_levels(format_.type)[trellis_index(window)];
      if (has_refinement) factor += code % 2 * kTrellisRefinement;
      min = -traits.zero * scale;
    } else if (!has_min(format_.type)) {
      min = -traits.zero * scale;
    }
    codes_[std::size_t{row_index} * n_cols_ + c] = factor;
    blocks_[row_index * blocks_per_row(format_, n_cols_) + b] = {scale, min, scale_factor,
                                                                 min_factor};
    const double scaled = static_cast<double>(scale) * scale_factor * factor;
    const double shift = static_cast<double>(min) * min_factor;
    exact = (scaled + shift) * row_scale;
    magnitude = (std::fabs(scaled) + std::fabs(shift)) * std::fabs(static_cast<double>(row_scale));
  }
}

const std::byte* WeightProblem::input_row(ActivationType input, std::size_t i) const {
  const GuardedBytes& rows = input == ActivationType::kF32    ? f32_rows_
                             : input == ActivationType::kInt8 ? int8_rows_
                                                              : bf16_rows_;
  return rows.data() + i * row_stride(input, n_cols_);
}

MatMulArgs WeightProblem::matmul_args(ActivationType input, float* y, std::size_t y_stride) const {
  return {.weights = groups_.data(),
          .group_bytes = static_cast<std::size_t>(qsf::group_bytes(format_, n_cols_)),
          .x = input_row(input, 0),
          .x_stride = row_stride(input, n_cols_),
          .y = y,
          .y_stride = y_stride,
          .n_x = n_x_,
          .n_rows = n_rows_,
          .n_cols = n_cols_,
          .unit_scales = unit_scales_ && input == ActivationType::kInt8};
}

std::vector<float> WeightProblem::run(const MatMulKernel& kernel) const {
  const GuardedArray<float> y(std::size_t{n_x_} * n_rows_);
  kernel.run(matmul_args(kernel.input, y.data(), n_rows_));
  EXPECT_TRUE(y.front_intact()) << kernel.name << " wrote in front of y";
  return {y.begin(), y.end()};
}

// One output from the definition in matmul.h, one rounding an operation.
float WeightProblem::int8_answer(std::size_t i, std::size_t row) const {
  const std::byte* x = input_row(ActivationType::kInt8, i);
  const std::uint64_t n_blocks = blocks_per_row(format_, n_cols_);
  // Blocks with whole scales are added up in whole numbers to activation blocks.
  const std::uint64_t n_together =
      has_whole_scales(format_.type) ? kActivationBlockColumns / format_.block : 1;
  float total = 0.0F;
  for (std::uint64_t b = 0; b < n_blocks; b += n_together) {
    std::int32_t dot = 0;
    std::int32_t sum = 0;
    for (std::uint64_t k = b; k < std::min(b + n_together, n_blocks); ++k) {
      const Block& block = blocks_[row * n_blocks + k];
      const std::uint64_t first = k * format_.block;
      const std::uint64_t last = std::min<std::uint64_t>(first + format_.block, n_cols_);
      for (std::uint64_t c = first; c < last; ++c) {
        const auto q = static_cast<std::int8_t>(x[c]);
        dot += block.scale_factor * codes_[row * n_cols_ + c] * q;
        sum += block.min_factor * q;
      }
    }
    Int8Block x_block;
    const std::uint64_t block64_index = b * format_.block / kActivationBlockColumns;
    std::memcpy(&x_block, x + int8_blocks_offset(n_cols_) + block64_index * sizeof(x_block),
                sizeof(x_block));
    const Block& block = blocks_[row * n_blocks + b];
    const float scaled = block.scale * static_cast<float>(dot);
    const float shift = block.min * static_cast<float>(sum);
    const bool is_signed = format_.type == QuantType::kQ8 || format_.type == QuantType::kQ3K ||
                           format_.type == QuantType::kQ6K || is_codebook_type(format_.type);
    const float term = is_signed ? scaled : scaled + shift;
    const float product = term * x_block.scale;
    total += product;
  }
  return total * row_scales_[row];
}

::testing::AssertionResult WeightProblem::is_right(ActivationType input,
                                                   const std::vector<float>& y) const {
  return (input == ActivationType::kInt8 ? has_int8_bits(y) : within_bound(input, y))
         << " (" << activation_type_name(input) << " " << name_ << ")";
}

::testing::AssertionResult WeightProblem::has_int8_bits(const std::vector<float>& y) const {
  for (std::size_t i = 0; i < n_x_; ++i) {
    for (std::size_t r = 0; r < n_rows_; ++r) {
      const float want = int8_answer(i, r);
      const float got = y[i * n_rows_ + r];
      if (std::memcmp(&want, &got, sizeof(want)) == 0) continue;
      if (std::isnan(want) && std::isnan(got)) continue;
      return ::testing::AssertionFailure() << "x row " << i << ", weight row " << r << ": got "
                                           << got << ", expected " << want << " bit for bit";
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult WeightProblem::within_bound(ActivationType input,
                                                       const std::vector<float>& y) const {
  std::vector<double> want;
  std::vector<double> bounds;
  for (std::size_t i = 0; i < n_x_; ++i) {
    const std::byte* row = input_row(input, i);
    for (std::size_t r = 0; r < n_rows_; ++r) {
      double sum = 0.0;
      double size = 0.0;
      for (std::size_t c = 0; c < n_cols_; ++c) {
        float x = 0.0F;
        if (input == ActivationType::kF32) {
          std::memcpy(&x, row + c * 4, 4);
        } else {
          BF16 half{};
          std::memcpy(&half, row + c * 2, 2);
          x = to_f32(half);
        }
        sum += exact_[r * n_cols_ + c] * x;
        size += magnitude_[r * n_cols_ + c] * std::fabs(static_cast<double>(x));
      }
      want.push_back(sum);
      bounds.push_back(product_bound(format_, input, n_cols_, size));
    }
  }
  return all_within(y.data(), want, bounds);
}

}  // namespace qsf::kernels::testing_support
