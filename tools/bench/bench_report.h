// SPDX-License-Identifier: MIT
//
// The output of qsf bench: tables for people, or one JSON object for scripts.

#ifndef QSF_TOOLS_BENCH_BENCH_REPORT_H_
#define QSF_TOOLS_BENCH_BENCH_REPORT_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "io/disk_probe.h"
#include "stream/pager_stats.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_model.h"

namespace qsf_tools {

struct KernelFigure;
struct Stream;
struct TextFigure;

struct Spread {
  double median = 0.0;  // of an even number of samples the mean of the middle two
  double min = 0.0;
  double max = 0.0;
};

// Returns zeros for no samples.
Spread spread_of(std::vector<double> samples);

// The peer and its model, as its output names them.
struct PeerInfo {
  std::string commit;
  std::string model_type;
  std::uint64_t model_bytes = 0;
};

struct BenchReport {
  std::optional<MachineLimits> limits;
  std::vector<BenchResult> results;
  std::optional<PeerInfo> peer;
};

// Returns the arithmetic limit that prompts are compared with: f32 for exact products, bf16 where
// there are matrix units, else int8 for quantised weights and f32 for float weights.
const ArithmeticLimit* prompt_limit(const MachineLimits& limits, bool exact, bool float_weights);

void print_tables(const BenchOptions& options, const BenchModel& model, const BenchReport& report);
void print_json(const BenchOptions& options, const BenchModel& model, const BenchReport& report);

// Reads the output of llama-bench -o json. Returns tokens a second; nothing for other text.
std::optional<double> parse_peer_output(const std::string& text, PeerInfo& info);

// The other programs of qsf bench: single kernels, streamed models, the disk.
void print_kernels_json(std::span<const KernelFigure> figures);
void print_streams_json(const BenchOptions& options, const qsf::ProbeCell* disk,
                        std::span<const Stream> streams);
void print_texts_json(const BenchOptions& options, std::span<const TextFigure> figures);
void print_disk_json(const BenchOptions& options, const qsf::DiskProbe& probe);
// Returns the fastest cell's bytes a second.
double fastest(const qsf::DiskProbe& probe);
// Writes the traced tiles, times in nanoseconds from the first read on. Fails  kIo
qsf::Status write_timeline(const std::string& path, std::span<const qsf::TileEvent> events);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_REPORT_H_
