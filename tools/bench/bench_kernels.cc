// SPDX-License-Identifier: MIT

#include "tools/bench/bench_kernels.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "kernels/activation/activation.h"
#include "kernels/convert/convert.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/norm/norm.h"
#include "kernels/quantise/quantise.h"
#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"
#include "kernels/scan/scan.h"
#include "kernels/softmax/softmax.h"
#include "platform/clock.h"
#include "platform/threads.h"
#include "quant/base3.h"
#include "tools/bench/bench_report.h"

namespace qsf_tools {
namespace {

constexpr std::uint32_t kValues = 2048;  // three rows of f32 are 24 KiB
constexpr double kRowBytes = 4.0 * kValues;

// Rows that kernels read and write. Some work in place; what they leave is of no interest as long
// as it stays an ordinary number, so inputs are copied back where they would not.
struct Rows {
  std::vector<float> a = std::vector<float>(kValues);
  std::vector<float> b = std::vector<float>(kValues);
  std::vector<float> out = std::vector<float>(kValues);

  Rows() {
    qsf::Rng rng(1);
    for (float& value : a) value = rng.next_normal();
    for (float& value : b) value = rng.next_normal();
    out = a;
  }
};

std::string row_text(const char* what) {
  return std::string(what) + ", " + std::to_string(kValues);
}

void bench_norms(Rows& rows, KernelBench& bench) {
  for (const auto& k : qsf::kernels::norm_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    bench.measure(k.name, row_text("rms norm"), 3 * kRowBytes, 0.0, [&] {
      k.rms_norm(rows.a.data(), rows.b.data(), rows.out.data(), kValues, 1e-5F);
    });
    bench.measure(k.name, row_text("layer norm"), 4 * kRowBytes, 0.0, [&] {
      k.layer_norm(rows.a.data(), rows.b.data(), rows.b.data(), rows.out.data(), kValues, 1e-5F);
    });
  }
}

void bench_activations(Rows& rows, KernelBench& bench) {
  for (const auto& k : qsf::kernels::activation_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    bench.measure(k.name, row_text("silu * up"), 3 * kRowBytes, 0.0,
                  [&] { k.silu_mul(rows.a.data(), rows.b.data(), rows.out.data(), kValues); });
    bench.measure(k.name, row_text("gelu_tanh * up"), 3 * kRowBytes, 0.0,
                  [&] { k.gelu_tanh_mul(rows.a.data(), rows.b.data(), rows.out.data(), kValues); });
    bench.measure(k.name, row_text("soft cap"), 2 * kRowBytes, 0.0,
                  [&] { k.soft_cap(rows.out.data(), 30.0F, kValues); });
  }
}

void bench_elementwise(Rows& rows, KernelBench& bench) {
  for (const auto& k : qsf::kernels::elementwise_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    bench.measure(k.name, row_text("add"), 3 * kRowBytes, 0.0,
                  [&] { k.add(rows.a.data(), rows.b.data(), rows.out.data(), kValues); });
    bench.measure(k.name, row_text("mul"), 3 * kRowBytes, 0.0,
                  [&] { k.mul(rows.a.data(), rows.b.data(), rows.out.data(), kValues); });
  }
}

// A head of 64 columns with a state of 128 values each.
void bench_scans(Rows& rows, KernelBench& bench) {
  constexpr std::uint32_t kCols = 64;
  constexpr std::uint32_t kState = 128;
  std::vector<float> state(std::size_t{kCols} * kState);
  for (const auto& k : qsf::kernels::scan_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    const qsf::kernels::ScanStep step = {.x = rows.a.data(),
                                         .b = rows.b.data(),
                                         .c = rows.b.data() + kState,
                                         .before = state.data(),
                                         .after = state.data(),
                                         .y = rows.out.data(),
                                         .decay = 0.5F,
                                         .step = 0.5F,
                                         .skip = 1.0F,
                                         .n_cols = kCols,
                                         .n_state = kState};
    bench.measure(k.name, "step of a head of 64 x 128", 2.0 * sizeof(float) * kCols * kState, 0.0,
                  [&] { k.take_step(step); });
  }
}

void bench_softmax(Rows& rows, KernelBench& bench) {
  for (const auto& k : qsf::kernels::softmax_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    bench.measure(k.name, row_text("softmax"), 2 * kRowBytes, 0.0,
                  [&] { k.softmax_in_place(rows.out.data(), kValues); });
    qsf::kernels::LogSumExpState state;
    bench.measure(k.name, row_text("log sum exp"), kRowBytes, 0.0,
                  [&] { k.log_sum_exp_add(&state, rows.a.data(), kValues); });
  }
}

void bench_conversions(Rows& rows, KernelBench& bench) {
  std::vector<qsf::F16> halves(kValues);
  for (const auto& k : qsf::kernels::convert_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    bench.measure(k.name, row_text("f32 to f16"), 1.5 * kRowBytes, 0.0,
                  [&] { k.f32_to_f16(rows.a.data(), halves.data(), kValues); });
    bench.measure(k.name, row_text("f16 to f32"), 1.5 * kRowBytes, 0.0,
                  [&] { k.f16_to_f32(halves.data(), rows.out.data(), kValues); });
  }
  std::vector<std::byte> codes(qsf::kernels::int8_row_bytes(kValues) + 64);
  // The kernels want rows at multiples of 16 bytes.
  std::byte* const row = codes.data() + (16 - reinterpret_cast<std::uintptr_t>(codes.data()) % 16);
  for (const auto& k : qsf::kernels::quantise_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    bench.measure(k.name, row_text("f32 to int8"), 1.3125 * kRowBytes, 0.0,
                  [&] { k.to_int8(rows.a.data(), row, kValues); });
  }
}

void bench_rotations(Rows& rows, KernelBench& bench) {
  constexpr std::uint32_t kPairs = 64;
  for (const auto& k : qsf::kernels::rope_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    rows.out = rows.a;
    // cos 1 and sin 0 leave the values as they are, however often they rotate.
    const std::vector<float> cos(kPairs, 1.0F);
    const std::vector<float> sin(kPairs, 0.0F);
    bench.measure(k.name, row_text("rotate heads of 128"), 2 * kRowBytes, 0.0, [&] {
      k.rotate_half(rows.out.data(), cos.data(), sin.data(), kPairs, kValues / (2 * kPairs),
                    2 * kPairs);
    });
  }
  for (const auto& k : qsf::kernels::sample_kernels()) {
    if (!bench.wants(k.name, k.isa)) continue;
    volatile std::uint32_t found = 0;
    bench.measure(k.name, row_text("argmax"), kRowBytes, 0.0,
                  [&] { found = k.argmax(rows.a.data(), kValues); });
  }
}

// From the base-3 of files to what kernels read: no kernel of a tier, but work of the same kind.
void bench_base3(KernelBench& bench) {
  constexpr std::size_t kBlocks = 32;  // of 80 columns and 16 rows
  constexpr std::size_t kLines = 5 * kBlocks;
  constexpr const char* kName = "base3_to_2bit_lines";
  if (!bench.wants(kName, qsf::kernels::Isa::kScalar)) return;
  qsf::Rng rng(2);
  std::vector<std::byte> base3(4 * kBlocks * qsf::kLineBytes);
  for (std::byte& byte : base3) byte = static_cast<std::byte>(rng.below(256));
  std::vector<std::byte> lines(kLines * qsf::kLineBytes);
  bench.measure(kName, "32 blocks of 80 columns", static_cast<double>(base3.size() + lines.size()),
                0.0, [&] { qsf::base3_to_2bit_lines(base3.data(), kLines, lines.data()); });
  bench.measure(kName, "the same row-major", static_cast<double>(base3.size() + lines.size()), 0.0,
                [&] {
                  for (std::size_t b = 0; b < kBlocks; ++b) {
                    qsf::base3_rows_to_2bit_lines(base3.data() + 16 * b, 16 * kBlocks, 16,
                                                  lines.data() + 5 * b * qsf::kLineBytes);
                  }
                });
}

}  // namespace

void bench_small_kernels(KernelBench& bench) {
  Rows rows;
  bench_norms(rows, bench);
  bench_activations(rows, bench);
  bench_elementwise(rows, bench);
  bench_scans(rows, bench);
  bench_softmax(rows, bench);
  bench_conversions(rows, bench);
  bench_rotations(rows, bench);
  bench_base3(bench);
}

namespace {

// A burst is long for the clock and short for whatever else the machine does.
constexpr double kKernelBurstNs = 1e5;
constexpr double kBudgetNs = 5e7;
constexpr int kMinBursts = 3;

double elapsed_since(std::uint64_t start) {
  return static_cast<double>(qsf::monotonic_ns() - start);
}

}  // namespace

double best_ns(qsf::FunctionRef<void()> call) {
  call();
  std::uint64_t start = qsf::monotonic_ns();
  call();
  const double first_ns = std::max(elapsed_since(start), 1.0);
  const int n_calls = static_cast<int>(std::clamp(kKernelBurstNs / first_ns, 1.0, 1e6));
  double best = first_ns;
  const std::uint64_t begin = qsf::monotonic_ns();
  for (int burst = 0; burst < kMinBursts || elapsed_since(begin) < kBudgetNs; ++burst) {
    start = qsf::monotonic_ns();
    for (int i = 0; i < n_calls; ++i) call();
    best = std::min(best, elapsed_since(start) / n_calls);
  }
  return best;
}

bool KernelBench::wants(std::string_view name, qsf::kernels::Isa isa) const {
  return qsf::kernels::isa_covers(best_, isa) && name.find(filter_) != std::string_view::npos;
}

void KernelBench::measure(std::string kernel, std::string work, double bytes, double operations,
                          qsf::FunctionRef<void()> call) {
  add({std::move(kernel), std::move(work), best_ns(call), bytes, operations});
}

void KernelBench::add(KernelFigure figure) {
  if (!json_) {
    if (figures_.empty()) {
      std::printf("%-32s %-28s %12s %9s %9s\n", "kernel", "work", "ns", "GB/s", "Gop/s");
    }
    std::printf("%-32s %-28s %12.1f %9.2f", figure.kernel.c_str(), figure.work.c_str(), figure.ns,
                figure.bytes / figure.ns);
    if (figure.operations > 0.0) std::printf(" %9.2f", figure.operations / figure.ns);
    std::printf("\n");
    std::fflush(stdout);
  }
  figures_.push_back(std::move(figure));
}

qsf::Status bench_kernels(const BenchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const qsf::kernels::Isa best, qsf::kernels::choose_host_isa());
  KernelBench bench(options, best);
  bench_small_kernels(bench);
  bench_attend_kernels(bench);
  bench_h2o_state(bench);
  bench_encode(bench);
  bench_gptq(bench);
  const unsigned n_threads = options.n_threads != 0 ? static_cast<unsigned>(options.n_threads)
                                                    : qsf::default_thread_count();
  QSF_RETURN_IF_ERROR(bench_matmul_kernels(n_threads, bench));
  if (bench.figures().empty()) {
    return qsf::invalid_argument(
        "no kernel of this machine has \"%s\" in its name; --kernels alone measures all of them",
        options.filter.substr(0, 60).c_str());
  }
  if (options.json) print_kernels_json(bench.figures());
  return qsf::ok_status();
}

}  // namespace qsf_tools
