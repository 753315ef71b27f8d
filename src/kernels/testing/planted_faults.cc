// SPDX-License-Identifier: MIT
//
// Each fault calls the scalar kernel and spoils its arguments or its results.

#include "kernels/testing/planted_faults.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/f16.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels::testing_support {
namespace {

constexpr std::uint32_t kMaxFaultyQueries = 64;

template <ActivationType kInput>
void right(const MatMulArgs& args) noexcept {
  if constexpr (kInput == ActivationType::kF32) {
    matmul_q4g64_f32_scalar(args);
  } else {
    matmul_q4g64_i8_scalar(args);
  }
}

// Applies `change` to every output.
template <typename Change>
void change_outputs(const MatMulArgs& args, const Change& change) noexcept {
  for (std::uint32_t i = 0; i < args.n_x; ++i) {
    for (std::uint32_t r = 0; r < args.n_rows; ++r) change(args.y[i * args.y_stride + r]);
  }
}

template <ActivationType kInput>
void drop_last_block(const MatMulArgs& args) noexcept {
  for (std::uint32_t i = 0; i < args.n_x; ++i) {
    std::byte row[8192];
    alignas(64) std::byte cut[8192] = {};
    std::memcpy(row, args.x + i * args.x_stride, activation_row_bytes(kInput, args.n_cols));
    const std::uint32_t n_kept = (args.n_cols - 1) / 64 * 64;
    std::memcpy(cut, row, kInput == ActivationType::kF32 ? std::size_t{n_kept} * 4 : n_kept);
    if (kInput == ActivationType::kInt8) {
      std::memcpy(cut + int8_blocks_offset(args.n_cols), row + int8_blocks_offset(args.n_cols),
                  n_kept / 64 * sizeof(Int8Block));
    }
    MatMulArgs wrong = args;
    wrong.x = cut;
    wrong.y += i * args.y_stride;
    wrong.n_x = 1;
    right<kInput>(wrong);
  }
}

// Omits the last column: one code of many.
template <ActivationType kInput>
void drop_last_column(const MatMulArgs& args) noexcept {
  for (std::uint32_t i = 0; i < args.n_x; ++i) {
    alignas(64) std::byte row[8192];
    std::memcpy(row, args.x + i * args.x_stride, activation_row_bytes(kInput, args.n_cols));
    constexpr std::size_t kElement = kInput == ActivationType::kF32 ? 4 : 1;
    std::memset(row + (args.n_cols - 1) * kElement, 0, kElement);
    MatMulArgs wrong = args;
    wrong.x = row;
    wrong.y += i * args.y_stride;
    wrong.n_x = 1;
    right<kInput>(wrong);
  }
}

// Multiplies every row of x with the scales and sums of the first.
void take_other_block64(const MatMulArgs& args) noexcept {
  for (std::uint32_t i = 0; i < args.n_x; ++i) {
    alignas(64) std::byte row[8192];
    const std::size_t at = int8_blocks_offset(args.n_cols);
    std::memcpy(row, args.x + i * args.x_stride, at);
    std::memcpy(row + at, args.x + at, int8_blocks(args.n_cols) * sizeof(Int8Block));
    MatMulArgs wrong = args;
    wrong.x = row;
    wrong.y += i * args.y_stride;
    wrong.n_x = 1;
    right<ActivationType::kInt8>(wrong);
  }
}

// Leaves the mins out: right where the sum of an activation block's codes is 0.
void forget_sums(const MatMulArgs& args) noexcept {
  for (std::uint32_t i = 0; i < args.n_x; ++i) {
    alignas(64) std::byte row[8192];
    std::memcpy(row, args.x + i * args.x_stride, int8_row_bytes(args.n_cols));
    for (std::size_t c = 0; c < int8_blocks(args.n_cols); ++c) {
      std::memset(row + int8_blocks_offset(args.n_cols) + c * sizeof(Int8Block) + sizeof(float), 0,
                  sizeof(Int8Block) - sizeof(float));
    }
    MatMulArgs wrong = args;
    wrong.x = row;
    wrong.y += i * args.y_stride;
    wrong.n_x = 1;
    right<ActivationType::kInt8>(wrong);
  }
}

template <ActivationType kInput>
void lose_sign(const MatMulArgs& args) noexcept {
  right<kInput>(args);
  change_outputs(args, [](float& y) { y = std::fabs(y); });
}

template <ActivationType kInput>
void spoil_negative(const MatMulArgs& args) noexcept {
  right<kInput>(args);
  change_outputs(args, [](float& y) { y = y < 0.0F ? y * 1.0001F : y; });
}

template <ActivationType kInput>
void write_nan(const MatMulArgs& args) noexcept {
  right<kInput>(args);
  args.y[args.n_rows - 1] = std::numeric_limits<float>::quiet_NaN();
}

template <ActivationType kInput>
void write_infinity(const MatMulArgs& args) noexcept {
  right<kInput>(args);
  args.y[0] = std::numeric_limits<float>::infinity();
}

template <ActivationType kInput>
void rotate_rows(const MatMulArgs& args) noexcept {
  right<kInput>(args);
  const float first = args.y[0];
  for (std::uint32_t r = 0; r + 1 < args.n_rows; ++r) args.y[r] = args.y[r + 1];
  args.y[args.n_rows - 1] = first;
}

// A 2-bit kernel on 4-bit codes.
void use_other_type(const MatMulArgs& args) noexcept {
  matmul_q2ag64_f32_scalar(args);
}

// Rounded to bf16 at the end: right in its first digits alone.
template <ActivationType kInput>
void round_coarsely(const MatMulArgs& args) noexcept {
  right<kInput>(args);
  change_outputs(args, [](float& y) { y = to_f32(to_bf16(y)); });
}

template <ActivationType kInput>
void swap_inputs(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.x += args.x_stride;
  wrong.n_x -= 1;
  right<kInput>(wrong);
  wrong = args;
  wrong.n_x = 1;
  wrong.y += (args.n_x - 1) * args.y_stride;
  right<kInput>(wrong);
}

template <ActivationType kInput>
void forget_last_input(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.n_x -= 1;
  right<kInput>(wrong);
}

void write_whole_group(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.n_rows = (args.n_rows + 15) / 16 * 16;
  right<ActivationType::kInt8>(wrong);
}

void read_past_weights(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.weights += 64;
  right<ActivationType::kInt8>(wrong);
}

void read_past_input(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.x += 64;
  right<ActivationType::kInt8>(wrong);
}

constexpr MatMulKernel faulty(const char* name, ActivationType input, MatMulFn run) {
  return {name, Isa::kScalar, {QuantType::kQ4, 64}, input, Exactness::kBounded, run};
}

#define QSF_FAULT(what, function)                                                         \
  {what, faulty(#function, ActivationType::kF32, function<ActivationType::kF32>)}, {      \
    what, faulty(#function "_i8", ActivationType::kInt8, function<ActivationType::kInt8>) \
  }

constexpr PlantedFault<MatMulKernel> kMatMulFaults[] = {
    QSF_FAULT("last block dropped", drop_last_block),
    QSF_FAULT("last column dropped", drop_last_column),
    QSF_FAULT("sign lost", lose_sign),
    QSF_FAULT("wrong where negative", spoil_negative),
    QSF_FAULT("NaN written", write_nan),
    QSF_FAULT("infinity written", write_infinity),
    QSF_FAULT("rows rotated", rotate_rows),
    QSF_FAULT("result rounded to bf16", round_coarsely),
    QSF_FAULT("rows of x rotated", swap_inputs),
    QSF_FAULT("last row of x left out", forget_last_input),
    {"another type's kernel", faulty("use_other_type", ActivationType::kF32, use_other_type)},
    {"another row's scales",
     faulty("take_other_block64", ActivationType::kInt8, take_other_block64)},
    {"mins left out", faulty("forget_sums", ActivationType::kInt8, forget_sums)},
};
#undef QSF_FAULT

constexpr PlantedFault<MatMulKernel> kMemoryFaults[] = {
    {"padding rows stored", faulty("write_whole_group", ActivationType::kInt8, write_whole_group)},
    {"weights read past their end",
     faulty("read_past_weights", ActivationType::kInt8, read_past_weights)},
    {"input read past its end", faulty("read_past_input", ActivationType::kInt8, read_past_input)},
};

void ignore_cap(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  wrong.soft_cap = 0.0F;
  attend_page_scalar(wrong);
}

void cap_at_one(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  wrong.soft_cap = 1.0F;
  attend_page_scalar(wrong);
}

void ignore_slopes(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  wrong.slopes = nullptr;
  attend_page_scalar(wrong);
}

void turn_slopes(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  float slopes[kMaxFaultyQueries];
  for (std::uint32_t h = 0; h < args.n_q; ++h) slopes[h] = -args.slopes[h];
  wrong.slopes = slopes;
  attend_page_scalar(wrong);
}

void take_next_slope(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  float slopes[kMaxFaultyQueries];
  for (std::uint32_t h = 0; h < args.n_q; ++h) slopes[h] = args.slopes[(h + 1) % args.n_q];
  wrong.slopes = slopes;
  attend_page_scalar(wrong);
}

// Takes a slot's number in its page for its position.
void ignore_positions(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  std::int32_t positions[kKvPageSlots];
  for (std::uint32_t j = 0; j < kKvPageSlots; ++j) positions[j] = static_cast<std::int32_t>(j);
  wrong.positions = positions;
  attend_page_scalar(wrong);
}

// Calls the right kernel with other ranges.
template <typename Change>
void change_ranges(const AttendPageArgs& args, Change change) noexcept {
  AttendPageArgs wrong = args;
  AttendRange ranges[kMaxFaultyQueries];
  for (std::uint32_t row = 0; row < args.n_rows; ++row) ranges[row] = change(args.visible, row);
  wrong.visible = ranges;
  attend_page_scalar(wrong);
}

void see_one_more(const AttendPageArgs& args) noexcept {
  change_ranges(args, [](const AttendRange* visible, std::uint32_t row) {
    const std::uint32_t last = visible[row].last;
    return AttendRange{visible[row].first, last < kKvPageSlots ? last + 1 : last};
  });
}

void miss_first_slot(const AttendPageArgs& args) noexcept {
  change_ranges(args, [](const AttendRange* visible, std::uint32_t row) {
    const AttendRange range = visible[row];
    return AttendRange{range.first < range.last ? range.first + 1 : range.first, range.last};
  });
}

void share_first_range(const AttendPageArgs& args) noexcept {
  change_ranges(args, [](const AttendRange* visible, std::uint32_t) { return visible[0]; });
}

// Leaves what older pages gave under their own maximum.
void forget_correction(const AttendPageArgs& args) noexcept {
  float sums[kMaxFaultyQueries];
  for (std::uint32_t i = 0; i < args.n_rows * args.n_q; ++i) {
    sums[i] = args.state[i].sum;
    args.state[i].sum = 0.0F;
  }
  attend_page_scalar(args);
  for (std::uint32_t i = 0; i < args.n_rows * args.n_q; ++i) args.state[i].sum += sums[i];
}

constexpr std::size_t kMaxQuantisedBlock = kv_block_bytes(KvType::k8Bit, 128);

// Calls the right kernel with a changed copy of the K block, or of the V block.
template <typename Change>
void change_block(const AttendPageArgs& args, bool keys, Change change) noexcept {
  alignas(64) std::byte block[kMaxQuantisedBlock];
  const KvType type = keys ? args.k_type : args.v_type;
  AttendPageArgs wrong = args;
  const std::byte*& at = keys ? wrong.k : wrong.v;
  std::memcpy(block, at, kv_block_bytes(type, args.head_dim));
  change(block, block + kv_scales_offset(type, args.head_dim), type);
  at = block;
  attend_page_scalar(wrong);
}

// Takes every slot's key scales from the slot after it.
void take_next_key_scale(const AttendPageArgs& args) noexcept {
  change_block(args, true, [](std::byte*, std::byte* scales, KvType) {
    std::memmove(scales, scales + sizeof(F16), (kKvPageSlots - 1) * sizeof(F16));
  });
}

void take_next_value_scale(const AttendPageArgs& args) noexcept {
  const std::size_t row_bytes = kv_groups(args.v_type, args.head_dim) * sizeof(F16);
  change_block(args, false, [row_bytes](std::byte*, std::byte* scales, KvType) {
    std::memmove(scales, scales + row_bytes, (kKvPageSlots - 1) * row_bytes);
  });
}

// Leaves out the last dimension of keys, the least that a loop can lose.
void drop_last_dimension(const AttendPageArgs& args) noexcept {
  const std::size_t row_bytes = std::size_t{kKvPageSlots} * kv_bits(args.k_type) / 8;
  change_block(args, true, [row_bytes](std::byte*, std::byte* scales, KvType) {
    std::memset(scales - row_bytes, 0, row_bytes);
  });
}

// Takes the numbers of a byte's halves for each other's, or in 8 bits a code for its neighbour's.
void exchange_codes(const AttendPageArgs& args, bool keys) noexcept {
  change_block(args, keys, [](std::byte* codes, std::byte* scales, KvType type) {
    for (; codes < scales; codes += 2) {
      if (type == KvType::k8Bit) {
        std::swap(codes[0], codes[1]);
      } else {
        codes[0] = codes[0] << 4 | codes[0] >> 4;
        codes[1] = codes[1] << 4 | codes[1] >> 4;
      }
    }
  });
}
void exchange_key_codes(const AttendPageArgs& args) noexcept {
  exchange_codes(args, true);
}
void exchange_value_codes(const AttendPageArgs& args) noexcept {
  exchange_codes(args, false);
}

// Reads the codes of values without their sign, or some of them as odd ones.
void shift_value_codes(const AttendPageArgs& args) noexcept {
  change_block(args, false, [](std::byte* codes, std::byte* scales, KvType type) {
    for (; codes < scales; ++codes) {
      *codes = type == KvType::k8Bit ? *codes & std::byte{0x7F} : *codes | std::byte{0x11};
    }
  });
}

// Leaves queries as they are, though keys are rotated.
void forget_rotation(const AttendQueryArgs& args) noexcept {
  AttendQueryArgs wrong = args;
  wrong.rotate = [](float*, std::uint32_t) noexcept {};
  attend_load_queries_f32(wrong);
}

constexpr AttendKernel faulty(const char* name, AttendPageFn page) {
  return {name, Isa::kScalar, Exactness::kBounded, attend_load_queries_f32, page, 128};
}

constexpr PlantedFault<AttendKernel> kAttendFaults[] = {
    {"soft cap ignored", faulty("ignore_cap", ignore_cap)},
    {"soft cap of 1", faulty("cap_at_one", cap_at_one)},
    {"slopes ignored", faulty("ignore_slopes", ignore_slopes)},
    {"sign of the slopes turned", faulty("turn_slopes", turn_slopes)},
    {"slope of another head", faulty("take_next_slope", take_next_slope)},
    {"positions ignored", faulty("ignore_positions", ignore_positions)},
    {"one slot too many", faulty("see_one_more", see_one_more)},
    {"first slot dropped", faulty("miss_first_slot", miss_first_slot)},
    {"range of the first row", faulty("share_first_range", share_first_range)},
    {"older sums not corrected", faulty("forget_correction", forget_correction)},
};

constexpr PlantedFault<AttendKernel> kQuantisedFaults[] = {
    {"queries not rotated",
     {"forget_rotation", Isa::kScalar, Exactness::kBounded, forget_rotation, attend_page_scalar,
      128}},
    {"key scale of the next slot", faulty("take_next_key_scale", take_next_key_scale)},
    {"value scale of the next slot", faulty("take_next_value_scale", take_next_value_scale)},
    {"last dimension dropped", faulty("drop_last_dimension", drop_last_dimension)},
    {"codes of keys exchanged", faulty("exchange_key_codes", exchange_key_codes)},
    {"codes of values exchanged", faulty("exchange_value_codes", exchange_value_codes)},
    {"codes of values shifted", faulty("shift_value_codes", shift_value_codes)},
};

}  // namespace

std::span<const PlantedFault<MatMulKernel>> planted_matmul_faults() noexcept {
  return kMatMulFaults;
}
std::span<const PlantedFault<AttendKernel>> planted_attend_faults() noexcept {
  return kAttendFaults;
}
std::span<const PlantedFault<AttendKernel>> planted_quantised_faults() noexcept {
  return kQuantisedFaults;
}
std::span<const PlantedFault<MatMulKernel>> planted_memory_faults() noexcept {
  return kMemoryFaults;
}

}  // namespace qsf::kernels::testing_support
