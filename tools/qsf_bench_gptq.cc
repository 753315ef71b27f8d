// SPDX-License-Identifier: MIT
//
// Error feedback (quant/gptq.h) for products with 2,048 inputs: the factor of a Hessian, and rows
// that are encoded with it. docs/decisions/034-gptq.md extrapolates to a model.

#include <string>
#include <vector>

#include "base/rng.h"
#include "qsf_bench_kernels.h"
#include "quant/gptq.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kCols = 2048;

// Of inputs that are as like as neighbours of a long row are.
std::vector<float> make_hessian() {
  std::vector<float> hessian(kCols * kCols);
  for (std::size_t i = 0; i < kCols; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      hessian[i * kCols + j] = 1.0F / (1.0F + static_cast<float>(i - j));
    }
  }
  return hessian;
}

qsf::GptqFactor make_factor(const std::vector<float>& hessian) {
  return std::move(qsf::GptqFactor::create(hessian, kCols)).value();
}

void bench_encode(const qsf::GptqFactor& factor, qsf::BlockFormat format, const char* work,
                  KernelBench& bench) {
  qsf::Rng rng(1);
  std::vector<float> rows(qsf::kGptqRows * kCols);
  for (float& w : rows) w = 0.02F * rng.next_normal();
  std::vector<std::byte> out(qsf::kGptqRows * qsf::row_major_bytes(format, kCols));
  const double operations = 1.0 * qsf::kGptqRows * kCols * kCols;  // half of that twice: * and +
  bench.measure("gptq_encode", work, 4.0 * static_cast<double>(rows.size()), operations,
                [&] { qsf::encode_rows_gptq(factor, format, qsf::Rounding::kSearch, rows, out); });
}

}  // namespace

void bench_gptq(KernelBench& bench) {
  const auto wants = [&](const char* name) {
    return bench.wants(name, qsf::kernels::Isa::kScalar);
  };
  if (!wants("gptq_factor") && !wants("gptq_encode")) return;
  const std::vector<float> hessian = make_hessian();
  if (wants("gptq_factor")) {
    bench.measure("gptq_factor", "2048 columns", 4.0 * kCols * kCols,
                  2.0 / 3.0 * kCols * kCols * kCols,
                  [&] { static_cast<void>(make_factor(hessian)); });
  }
  if (!wants("gptq_encode")) return;
  const qsf::GptqFactor factor = make_factor(hessian);
  bench_encode(factor, {qsf::QuantType::kQ4Super, 64}, "4bit-super/64, 192 x 2048", bench);
  bench_encode(factor, {qsf::QuantType::kQ2Super, 64}, "2bit-super/64, 192 x 2048", bench);
  bench_encode(factor, {qsf::QuantType::kQ4, 32}, "4bit/32, 192 x 2048", bench);
}

}  // namespace qsf_tools
