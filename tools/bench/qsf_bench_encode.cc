// SPDX-License-Identifier: MIT
//
// Encoding of weight rows (quant/codec.h) in every coded type, to the nearest codes and with
// searched fields. Bytes are those of the weights in f16, as models come, so GB/s are what a
// converter's core takes of its input.

#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/codec.h"
#include "tools/bench/qsf_bench_kernels.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kCols = 4096;
constexpr std::size_t kRows = 16;

void bench_type(qsf::BlockFormat format, qsf::Rounding rounding, std::span<const float> rows,
                KernelBench& bench) {
  const std::size_t row_bytes = qsf::row_major_bytes(format, kCols);
  std::vector<std::byte> out(kRows * row_bytes);
  const std::string work = std::string(qsf::quant_type_name(format.type)) + "/" +
                           std::to_string(format.block) + ", 16 x 4096";
  const char* name = rounding == qsf::Rounding::kNearest ? "encode_nearest" : "encode_search";
  bench.measure(name, work, 2.0 * kRows * kCols, 0.0, [&] {
    for (std::size_t r = 0; r < kRows; ++r) {
      qsf::encode_row(format, rows.subspan(r * kCols, kCols), {.rounding = rounding},
                      qsf::MutableByteSpan(out).subspan(r * row_bytes, row_bytes));
    }
  });
}

}  // namespace

void bench_encode(KernelBench& bench) {
  const auto wants = [&](const char* name) {
    return bench.wants(name, qsf::kernels::Isa::kScalar);
  };
  if (!wants("encode_nearest") && !wants("encode_search")) return;
  qsf::Rng rng(1);
  std::vector<float> rows(kRows * kCols);
  for (float& w : rows) w = 0.02F * rng.next_normal();
  for (const qsf::QuantType type : qsf::kAllQuantTypes) {
    // Blocks that a type fixes come back as they are.
    for (const std::uint32_t block : {64U, 32U}) {
      const qsf::BlockFormat format = qsf::block_format(type, block);
      if (qsf::is_float_type(type) || (block == 32 && format == qsf::block_format(type, 64))) {
        continue;
      }
      if (wants("encode_nearest")) bench_type(format, qsf::Rounding::kNearest, rows, bench);
      if (wants("encode_search")) bench_type(format, qsf::Rounding::kSearch, rows, bench);
    }
  }
}

}  // namespace qsf_tools
