// SPDX-License-Identifier: MIT
//
// Each fault calls the scalar kernel and spoils its arguments or its results.

#include "kernels/testing/planted_faults.h"

#include <cmath>
#include <limits>

#include "base/f16.h"
#include "kernels/matmul/matmul_variants.h"
#include "kernels/matvec/matvec_variants.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels::testing_support {
namespace {

void right(const MatVecArgs& args) noexcept {
  matvec_q4g64_scalar(args);
}

void drop_last_block(const MatVecArgs& args) noexcept {
  MatVecArgs wrong = args;
  wrong.n_cols = (args.n_cols - 1) / 64 * 64;
  right(wrong);
}

// The last column's share, if it is the whole rest of a block: one code of many.
void drop_last_column(const MatVecArgs& args) noexcept {
  MatVecArgs wrong = args;
  alignas(64) float x[4096];
  for (std::uint32_t c = 0; c < 4096; ++c) x[c] = c + 1 < args.n_cols ? args.x[c] : 0.0F;
  wrong.x = x;
  right(wrong);
}

void skip_first_block(const MatVecArgs& args) noexcept {
  MatVecArgs wrong = args;
  wrong.weights += kLineBytes + code_line_bytes({QuantType::kQ4, 64});
  wrong.x += 64;
  wrong.n_cols -= 64;
  right(wrong);
}

void lose_sign(const MatVecArgs& args) noexcept {
  right(args);
  for (std::uint32_t r = 0; r < args.n_rows; ++r) args.y[r] = std::fabs(args.y[r]);
}

void spoil_negative(const MatVecArgs& args) noexcept {
  right(args);
  for (std::uint32_t r = 0; r < args.n_rows; ++r) {
    if (args.y[r] < 0.0F) args.y[r] *= 1.0001F;
  }
}

void write_nan(const MatVecArgs& args) noexcept {
  right(args);
  args.y[args.n_rows - 1] = std::numeric_limits<float>::quiet_NaN();
}

void write_infinity(const MatVecArgs& args) noexcept {
  right(args);
  args.y[0] = std::numeric_limits<float>::infinity();
}

void rotate_rows(const MatVecArgs& args) noexcept {
  right(args);
  const float first = args.y[0];
  for (std::uint32_t r = 0; r + 1 < args.n_rows; ++r) args.y[r] = args.y[r + 1];
  args.y[args.n_rows - 1] = first;
}

// A 2-bit kernel on 4-bit codes.
void use_other_type(const MatVecArgs& args) noexcept {
  matvec_q2ag64_scalar(args);
}

// Rounded to bf16 at the end: right in its first digits alone.
void round_coarsely(const MatVecArgs& args) noexcept {
  right(args);
  for (std::uint32_t r = 0; r < args.n_rows; ++r) args.y[r] = to_f32(to_bf16(args.y[r]));
}

void write_whole_group(const MatVecArgs& args) noexcept {
  MatVecArgs wrong = args;
  wrong.n_rows = (args.n_rows + 15) / 16 * 16;
  right(wrong);
}

void read_past_weights(const MatVecArgs& args) noexcept {
  MatVecArgs wrong = args;
  wrong.weights += 64;
  right(wrong);
}

void read_past_input(const MatVecArgs& args) noexcept {
  MatVecArgs wrong = args;
  wrong.x += 1;
  right(wrong);
}

constexpr MatVecKernel faulty(const char* name, MatVecFn run) {
  return {name, Isa::kScalar, {QuantType::kQ4, 64}, Exactness::kBounded, run};
}

constexpr PlantedFault<MatVecKernel> kMatVecFaults[] = {
    {"last block dropped", faulty("drop_last_block", drop_last_block)},
    {"last column dropped", faulty("drop_last_column", drop_last_column)},
    {"first block skipped", faulty("skip_first_block", skip_first_block)},
    {"sign lost", faulty("lose_sign", lose_sign)},
    {"wrong where negative", faulty("spoil_negative", spoil_negative)},
    {"NaN written", faulty("write_nan", write_nan)},
    {"infinity written", faulty("write_infinity", write_infinity)},
    {"rows rotated", faulty("rotate_rows", rotate_rows)},
    {"another type's kernel", faulty("use_other_type", use_other_type)},
    {"result rounded to bf16", faulty("round_coarsely", round_coarsely)},
};

constexpr PlantedFault<MatVecKernel> kMemoryFaults[] = {
    {"padding rows stored", faulty("write_whole_group", write_whole_group)},
    {"weights read past their end", faulty("read_past_weights", read_past_weights)},
    {"input read past its end", faulty("read_past_input", read_past_input)},
};

void swap_inputs(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.x += args.x_stride;
  wrong.n_x -= 1;
  matmul_q4g64_scalar(wrong);
  wrong = args;
  wrong.n_x = 1;
  wrong.y += (args.n_x - 1) * args.y_stride;
  matmul_q4g64_scalar(wrong);
}

void forget_last_input(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.n_x -= 1;
  matmul_q4g64_scalar(wrong);
}

void lose_block(const MatMulArgs& args) noexcept {
  MatMulArgs wrong = args;
  wrong.n_cols -= 64;
  matmul_q4g64_scalar(wrong);
}

constexpr MatMulKernel faulty(const char* name, MatMulFn run) {
  return {name, Isa::kScalar, {QuantType::kQ4, 64}, Exactness::kBounded, run};
}

constexpr PlantedFault<MatMulKernel> kMatMulFaults[] = {
    {"rows of x rotated", faulty("swap_inputs", swap_inputs)},
    {"last row of x left out", faulty("forget_last_input", forget_last_input)},
    {"last block dropped", faulty("lose_block", lose_block)},
};

template <KvType kType>
void right_page(const AttendPageArgs& args) noexcept {
  if constexpr (kType == KvType::kF32) {
    attend_page_f32_scalar(args);
  } else {
    attend_page_f16_scalar(args);
  }
}

template <KvType kType>
void ignore_cap(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  wrong.soft_cap = 0.0F;
  right_page<kType>(wrong);
}

template <KvType kType>
void cap_at_one(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  wrong.soft_cap = 1.0F;
  right_page<kType>(wrong);
}

template <KvType kType>
void ignore_slopes(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  wrong.slopes = nullptr;
  right_page<kType>(wrong);
}

template <KvType kType>
void turn_slopes(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  float slopes[16];
  for (std::uint32_t h = 0; h < args.n_q; ++h) slopes[h] = -args.slopes[h];
  wrong.slopes = slopes;
  right_page<kType>(wrong);
}

template <KvType kType>
void take_next_slope(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  float slopes[16];
  for (std::uint32_t h = 0; h < args.n_q; ++h) slopes[h] = args.slopes[(h + 1) % args.n_q];
  wrong.slopes = slopes;
  right_page<kType>(wrong);
}

// Takes a slot's number in its page for its position.
template <KvType kType>
void ignore_positions(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  std::int32_t positions[kKvPageSlots];
  for (std::uint32_t j = 0; j < kKvPageSlots; ++j) positions[j] = static_cast<std::int32_t>(j);
  wrong.positions = positions;
  right_page<kType>(wrong);
}

// Counts positions from the first visible slot instead of from the page's.
template <KvType kType>
void shift_positions(const AttendPageArgs& args) noexcept {
  AttendPageArgs wrong = args;
  std::int32_t positions[kKvPageSlots] = {};
  for (std::uint32_t j = args.first; j < args.last; ++j) {
    positions[j] = args.positions[j - args.first];
  }
  wrong.positions = positions;
  right_page<kType>(wrong);
}

constexpr AttendKernels faulty(const char* name, AttendPageFn page_f32, AttendPageFn page_f16) {
  return {name, Isa::kScalar, Exactness::kBounded, page_f32, page_f16};
}

constexpr PlantedFault<AttendKernels> kAttendFaults[] = {
    {"soft cap ignored", faulty("ignore_cap", ignore_cap<KvType::kF32>, ignore_cap<KvType::kF16>)},
    {"soft cap of 1", faulty("cap_at_one", cap_at_one<KvType::kF32>, cap_at_one<KvType::kF16>)},
    {"slopes ignored",
     faulty("ignore_slopes", ignore_slopes<KvType::kF32>, ignore_slopes<KvType::kF16>)},
    {"sign of the slopes turned",
     faulty("turn_slopes", turn_slopes<KvType::kF32>, turn_slopes<KvType::kF16>)},
    {"slope of another head",
     faulty("take_next_slope", take_next_slope<KvType::kF32>, take_next_slope<KvType::kF16>)},
    {"positions ignored",
     faulty("ignore_positions", ignore_positions<KvType::kF32>, ignore_positions<KvType::kF16>)},
    {"positions shifted",
     faulty("shift_positions", shift_positions<KvType::kF32>, shift_positions<KvType::kF16>)},
};

}  // namespace

std::span<const PlantedFault<MatVecKernel>> planted_matvec_faults() noexcept {
  return kMatVecFaults;
}
std::span<const PlantedFault<MatMulKernel>> planted_matmul_faults() noexcept {
  return kMatMulFaults;
}
std::span<const PlantedFault<AttendKernels>> planted_attend_faults() noexcept {
  return kAttendFaults;
}
std::span<const PlantedFault<MatVecKernel>> planted_memory_faults() noexcept {
  return kMemoryFaults;
}

}  // namespace qsf::kernels::testing_support
