// SPDX-License-Identifier: MIT
//
// Error compensation (convert/gptq/gptq.h) for products with 2,048 and 5,632 inputs: the factor of
// a Hessian, and rows that are encoded with it. docs/decisions/034-gptq.md extrapolates to a model.

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "convert/gptq/gptq.h"
#include "tools/bench/qsf_bench_kernels.h"

namespace qsf_tools {
namespace {

// Of inputs that are as like as neighbours of a long row are.
std::vector<float> make_hessian(std::size_t n_cols) {
  std::vector<float> hessian(n_cols * n_cols);
  for (std::size_t i = 0; i < n_cols; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      hessian[i * n_cols + j] = 1.0F / (1.0F + static_cast<float>(i - j));
    }
  }
  return hessian;
}

qsf::GptqFactor make_factor(const std::vector<float>& hessian, std::size_t n_cols) {
  return std::move(qsf::GptqFactor::create(hessian, n_cols)).value();
}

void bench_rows(const qsf::GptqFactor& factor, qsf::BlockFormat format, KernelBench& bench) {
  const std::size_t n_cols = factor.n_cols();
  qsf::Rng rng(1);
  std::vector<float> rows(qsf::kGptqRows * n_cols);
  for (float& w : rows) w = 0.02F * rng.next_normal();
  std::vector<std::byte> out(qsf::kGptqRows * qsf::row_major_bytes(format, n_cols));
  const auto cols = static_cast<double>(n_cols);
  const std::string work = std::string(qsf::quant_type_name(format.type)) + "/" +
                           std::to_string(format.block) + ", 192 x " + std::to_string(n_cols);
  // Half of that twice: multiplications and additions.
  bench.measure("gptq_encode", work, 4.0 * static_cast<double>(rows.size()),
                qsf::kGptqRows * cols * cols,
                [&] { qsf::encode_rows_gptq(factor, format, qsf::Rounding::kSearch, rows, out); });
}

}  // namespace

void bench_gptq(KernelBench& bench) {
  const auto wants = [&](const char* name) {
    return bench.wants(name, qsf::kernels::Isa::kScalar);
  };
  if (!wants("gptq_factor") && !wants("gptq_encode")) return;
  for (const std::size_t n_cols : {std::size_t{2048}, std::size_t{5632}}) {
    const std::vector<float> hessian = make_hessian(n_cols);
    const auto cols = static_cast<double>(n_cols);
    if (wants("gptq_factor")) {
      bench.measure("gptq_factor", std::to_string(n_cols) + " columns", 4.0 * cols * cols,
                    2.0 / 3.0 * cols * cols * cols,
                    [&] { static_cast<void>(make_factor(hessian, n_cols)); });
    }
    if (!wants("gptq_encode")) continue;
    const qsf::GptqFactor factor = make_factor(hessian, n_cols);
    bench_rows(factor, {qsf::QuantType::kQ4Super, 64}, bench);
    bench_rows(factor, {qsf::QuantType::kQ2Super, 64}, bench);
  }
}

}  // namespace qsf_tools
