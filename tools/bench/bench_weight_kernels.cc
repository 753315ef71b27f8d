// SPDX-License-Identifier: MIT
//
// Work on weights: products with them, their encoding, and GPTQ's error compensation.
//
// Products: one row and many on weights in cache, and one row on weights in memory by all threads
// at once, as decoding does it. Encoding (quant/codec.h): rows in every coded type, with nearest
// codes and with scale search; bytes are those of the weights in f16, as models are published, so
// GB/s is the rate at which one core of a converter takes its input. GPTQ (convert/gptq/gptq.h):
// products with 2,048 and 5,632 inputs, the factor of a Hessian and rows encoded with it.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "convert/gptq/gptq.h"
#include "convert/random/random_blocks.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantise/quantise.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/threads.h"
#include "quant/codec.h"
#include "tools/bench/bench_kernels.h"

namespace qsf_tools {
namespace {

using qsf::kernels::ActivationType;
using qsf::kernels::MatMulArgs;
using qsf::kernels::MatMulKernel;

constexpr std::uint32_t kMatmulCols = 4096;
constexpr std::uint32_t kManyRows = 64;  // of x, as of a prompt
constexpr std::size_t kCachedBytes = 256U << 10;
constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;
constexpr std::size_t kLeastMemoryBytes = std::size_t{64} << 20;
constexpr double kSweepSeconds = 0.05;
constexpr std::uint32_t kPrefetchBytes[] = {0, 512, 1024, 2048, 4096};

// MappedPages of memory that are given back at the end.
class MappedPages {
 public:
  static qsf::Result<MappedPages> map(std::size_t n_bytes) {
    QSF_ASSIGN_OR_RETURN(const qsf::MutableByteSpan bytes,
                         qsf::map_pages(n_bytes, qsf::HugePages::kAllow));
    return MappedPages(bytes);
  }
  MappedPages(MappedPages&& other) noexcept : bytes_(other.bytes_) { other.bytes_ = {}; }
  MappedPages& operator=(MappedPages&&) = delete;
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;
  ~MappedPages() {
    if (!bytes_.empty()) qsf::unmap_pages(bytes_);
  }
  qsf::MutableByteSpan bytes() const noexcept { return bytes_; }

 private:
  explicit MappedPages(qsf::MutableByteSpan bytes) noexcept : bytes_(bytes) {}
  qsf::MutableByteSpan bytes_;
};

// Not a multiple of 4 KiB, which would put all rows into the same cache sets.
std::size_t row_stride(ActivationType input) {
  const std::size_t n_bytes =
      (qsf::kernels::activation_row_bytes(input, kMatmulCols) + 63) / 64 * 64;
  return n_bytes % 4096 == 0 ? n_bytes + 64 : n_bytes;
}

void write_row(ActivationType input, const std::vector<float>& values, std::byte* to) {
  switch (input) {
    case ActivationType::kF32:
      std::memcpy(to, values.data(), values.size() * sizeof(float));
      return;
    case ActivationType::kInt8:
      qsf::kernels::quantise_kernels().back().to_int8(values.data(), to, kMatmulCols);
      return;
    case ActivationType::kBf16:
      for (std::size_t i = 0; i < values.size(); ++i) {
        const qsf::BF16 value = qsf::to_bf16(values[i]);
        std::memcpy(to + 2 * i, &value, sizeof(value));
      }
      return;
  }
}

class MatmulBench {
 public:
  MatmulBench(qsf::ThreadPool& threads, KernelBench& bench, MappedPages weights, MappedPages x)
      : threads_(threads), bench_(bench), weights_(std::move(weights)), x_(std::move(x)) {}

  void run(const MatMulKernel& kernel) {
    const std::size_t group = qsf::group_bytes(kernel.format, kMatmulCols);
    const std::size_t n_groups = std::max<std::size_t>(1, kCachedBytes / group);
    const auto n_rows = static_cast<std::uint32_t>(16 * n_groups);
    fill(kernel, n_rows);
    MatMulArgs args = {.weights = weights_.bytes().data(),
                       .group_bytes = group,
                       .x = x_.bytes().data(),
                       .x_stride = row_stride(kernel.input),
                       .y = y_.data(),
                       .y_stride = n_rows,
                       .n_x = 1,
                       .n_rows = n_rows,
                       .n_cols = kMatmulCols};
    y_.resize(std::size_t{kManyRows} * n_rows);
    args.y = y_.data();
    const auto bytes = static_cast<double>(n_groups * group);
    const double operations = 2.0 * n_rows * kMatmulCols;
    const std::string shape = std::to_string(n_rows) + " x " + std::to_string(kMatmulCols);
    bench_.measure(kernel.name, shape + ", 1 row", bytes, operations, [&] { kernel.run(args); });
    const double cached_rate = bytes / bench_.figures().back().ns;
    args.n_x = kManyRows;
    bench_.measure(kernel.name, shape + ", " + std::to_string(kManyRows) + " rows", bytes,
                   kManyRows * operations, [&] { kernel.run(args); });
    from_memory(kernel, n_groups * group, cached_rate);
  }

 private:
  // Weights for the rows in cache, and copies of them through all of the memory.
  void fill(const MatMulKernel& kernel, std::uint32_t n_rows) {
    const std::size_t n_bytes =
        qsf::rows_bytes(kernel.format, qsf::Layout::kInterleaved, n_rows, kMatmulCols);
    const qsf::MutableByteSpan memory = weights_.bytes();
    if (!(kernel.format == filled_)) {
      qsf::Rng rng(1);
      qsf::fill_random_rows(kernel.format, qsf::Layout::kInterleaved, n_rows, kMatmulCols, rng,
                            memory.first(n_bytes));
      for (std::size_t at = n_bytes; at + n_bytes <= memory.size(); at += n_bytes) {
        std::memcpy(memory.data() + at, memory.data(), n_bytes);
      }
      filled_ = kernel.format;
    }
    qsf::Rng rng(2);
    std::vector<float> values(kMatmulCols);
    for (std::uint32_t row = 0; row < kManyRows; ++row) {
      for (float& value : values) value = rng.next_normal();
      write_row(kernel.input, values, x_.bytes().data() + row * row_stride(kernel.input));
    }
  }

  // Sweeps over copies of the cached weights, with the prefetch distance that serves best.
  void from_memory(const MatMulKernel& kernel, std::size_t copy_bytes, double cached_rate) {
    const double sweep_bytes = cached_rate * 1e9 * threads_.n_threads() * kSweepSeconds;
    const auto wanted = static_cast<std::size_t>(std::clamp(
        sweep_bytes, static_cast<double>(kLeastMemoryBytes), static_cast<double>(kMemoryBytes)));
    const std::size_t n_copies = wanted / copy_bytes;
    const std::size_t group = qsf::group_bytes(kernel.format, kMatmulCols);
    const auto n_rows = static_cast<std::uint32_t>(16 * (copy_bytes / group));
    std::vector<float> y(std::size_t{n_rows} * threads_.n_threads());
    double best_ns = 0.0;
    std::uint32_t best_prefetch = 0;
    for (const std::uint32_t prefetch_bytes : kPrefetchBytes) {
      for (int sweep = 0; sweep < 3; ++sweep) {
        const std::uint64_t start = qsf::monotonic_ns();
        threads_.parallel_for(n_copies, 1,
                              [&](std::size_t first, std::size_t last, unsigned worker) {
                                for (std::size_t i = first; i < last; ++i) {
                                  kernel.run({.weights = weights_.bytes().data() + i * copy_bytes,
                                              .group_bytes = group,
                                              .x = x_.bytes().data(),
                                              .x_stride = row_stride(kernel.input),
                                              .y = y.data() + std::size_t{worker} * n_rows,
                                              .y_stride = n_rows,
                                              .n_x = 1,
                                              .n_rows = n_rows,
                                              .n_cols = kMatmulCols,
                                              .prefetch_bytes = prefetch_bytes});
                                }
                              });
        const auto ns = static_cast<double>(qsf::monotonic_ns() - start);
        if (best_ns == 0.0 || ns < best_ns) {
          best_ns = ns;
          best_prefetch = prefetch_bytes;
        }
      }
      // Far from memory's speed, prefetching changes nothing and sweeps take long.
      if (best_ns > 1e9 * kSweepSeconds) break;
    }
    const auto bytes = static_cast<double>(n_copies * copy_bytes);
    bench_.add({kernel.name,
                std::to_string(threads_.n_threads()) + " threads, memory, +" +
                    std::to_string(best_prefetch),
                best_ns, bytes, 2.0 * static_cast<double>(n_copies) * n_rows * kMatmulCols});
  }

  qsf::ThreadPool& threads_;
  KernelBench& bench_;
  MappedPages weights_;
  MappedPages x_;
  std::vector<float> y_;
  qsf::BlockFormat filled_{qsf::QuantType::kF32, 0};  // no format has blocks of nothing
};

}  // namespace

qsf::Status bench_matmul_kernels(unsigned n_threads, KernelBench& bench) {
  const auto wanted = [&](const MatMulKernel& kernel) {
    return bench.wants(kernel.name, kernel.isa);
  };
  const auto kernels = qsf::kernels::matmul_kernels();
  if (std::none_of(kernels.begin(), kernels.end(), wanted)) return qsf::ok_status();
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<qsf::ThreadPool> threads,
                       qsf::ThreadPool::create(n_threads));
  QSF_ASSIGN_OR_RETURN(MappedPages weights, MappedPages::map(kMemoryBytes));
  QSF_ASSIGN_OR_RETURN(MappedPages x,
                       MappedPages::map(kManyRows * row_stride(ActivationType::kF32)));
  MatmulBench matmul(*threads, bench, std::move(weights), std::move(x));
  for (const MatMulKernel& kernel : kernels) {
    if (wanted(kernel)) matmul.run(kernel);
  }
  return qsf::ok_status();
}

namespace {

constexpr std::size_t kEncodedCols = 4096;
constexpr std::size_t kEncodedRows = 16;

void bench_encode_type(qsf::BlockFormat format, qsf::Rounding rounding, std::span<const float> rows,
                       KernelBench& bench) {
  const std::size_t row_bytes = qsf::row_major_bytes(format, kEncodedCols);
  std::vector<std::byte> out(kEncodedRows * row_bytes);
  const std::string work = std::string(qsf::quant_type_name(format.type)) + "/" +
                           std::to_string(format.block) + ", 16 x 4096";
  const char* name = rounding == qsf::Rounding::kNearest ? "encode_nearest" : "encode_search";
  bench.measure(name, work, 2.0 * kEncodedRows * kEncodedCols, 0.0, [&] {
    for (std::size_t r = 0; r < kEncodedRows; ++r) {
      qsf::encode_row(format, rows.subspan(r * kEncodedCols, kEncodedCols), {.rounding = rounding},
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
  std::vector<float> rows(kEncodedRows * kEncodedCols);
  for (float& w : rows) w = 0.02F * rng.next_normal();
  for (const qsf::QuantType type : qsf::kAllQuantTypes) {
    // Blocks that a type fixes come back as they are.
    for (const std::uint32_t block : {64U, 32U}) {
      const qsf::BlockFormat format = qsf::block_format(type, block);
      if (qsf::is_float_type(type) || (block == 32 && format == qsf::block_format(type, 64))) {
        continue;
      }
      if (wants("encode_nearest")) bench_encode_type(format, qsf::Rounding::kNearest, rows, bench);
      if (wants("encode_search")) bench_encode_type(format, qsf::Rounding::kSearch, rows, bench);
    }
  }
}

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

void bench_gptq_rows(const qsf::GptqFactor& factor, qsf::BlockFormat format, KernelBench& bench) {
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
    bench_gptq_rows(factor, {qsf::QuantType::kQ4Super, 64}, bench);
    bench_gptq_rows(factor, {qsf::QuantType::kQ2Super, 64}, bench);
  }
}

}  // namespace qsf_tools
