// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_stream.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/engine_plan.h"
#include "io/atomic_file.h"
#include "io/disk_probe.h"
#include "platform/memory.h"
#include "stream/pager_stats.h"
#include "tools/bench/qsf_bench_machine.h"
#include "tools/bench/qsf_bench_model.h"
#include "tools/bench/qsf_bench_samples.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::size_t kTracedTiles = 1U << 16;

double fastest(const qsf::DiskProbe& probe) {
  double best = 0.0;
  for (const qsf::ProbeCell& cell : probe.matrix) best = std::max(best, cell.bytes_per_second);
  return best;
}

// The disk of one file, and memory to read it into.
class DiskMeter {
 public:
  static qsf::Result<DiskMeter> open(const BenchOptions& options) {
    QSF_ASSIGN_OR_RETURN(qsf::File file, qsf::File::open(options.model));
    QSF_ASSIGN_OR_RETURN(const qsf::MutableByteSpan memory,
                         qsf::map_pages(qsf::kProbeMemoryBytes, qsf::HugePages::kAllow));
    return DiskMeter(std::move(file), memory, options.read_path);
  }
  DiskMeter(DiskMeter&& other) noexcept
      : file_(std::move(other.file_)),
        memory_(std::exchange(other.memory_, {})),
        path_(other.path_),
        best_(other.best_) {}
  DiskMeter& operator=(DiskMeter&&) = delete;
  ~DiskMeter() { qsf::unmap_pages(memory_); }

  qsf::Result<qsf::DiskProbe> probe(std::uint64_t cell_ns) const {
    qsf::DiskProbeOptions options;
    options.device.path = path_;
    options.thorough = true;
    options.cell_ns = cell_ns;
    return qsf::probe_disk(file_, options, memory_);
  }

  // Finds the way of asking that is fastest in the median of rounds over the whole matrix. What is
  // measured from then on is that way alone: the best of many short measurements would be the best
  // moment of the disk, not what it gives.
  qsf::Status choose() {
    std::vector<std::pair<qsf::ProbeCell, std::vector<double>>> cells;
    for (unsigned round = 0; round < kRounds; ++round) {
      QSF_ASSIGN_OR_RETURN(const qsf::DiskProbe found, probe(kRoundCellNs));
      for (const qsf::ProbeCell& cell : found.matrix) {
        const auto known = std::ranges::find_if(cells, [&](const auto& other) {
          return other.first.depth == cell.depth && other.first.block_bytes == cell.block_bytes;
        });
        if (known != cells.end()) {
          known->second.push_back(cell.bytes_per_second);
        } else if (round == 0) {
          cells.push_back({cell, {cell.bytes_per_second}});
        }
      }
    }
    best_ = {};
    for (auto& [cell, rates] : cells) {
      cell.bytes_per_second = spread_of(std::move(rates)).median;
      if (cell.bytes_per_second > best_.bytes_per_second) best_ = cell;
    }
    return qsf::ok_status();
  }
  const qsf::ProbeCell& best() const { return best_; }

  // Returns the bytes a second of that way now. Requires  choose()
  qsf::Result<double> measure() const {
    qsf::DiskProbeOptions options;
    options.device.path = path_;
    options.cell_ns = kBesideNs;
    return qsf::measure_disk(file_, options, best_, memory_);
  }

 private:
  static constexpr unsigned kRounds = 3;
  static constexpr std::uint64_t kRoundCellNs = 100'000'000;
  static constexpr std::uint64_t kBesideNs = 500'000'000;  // before and after each run

  DiskMeter(qsf::File file, qsf::MutableByteSpan memory, std::optional<qsf::ReadPath> path)
      : file_(std::move(file)), memory_(memory), path_(path) {}

  qsf::File file_;
  qsf::MutableByteSpan memory_;
  std::optional<qsf::ReadPath> path_;
  qsf::ProbeCell best_;
};

// What one run took.
struct StreamRun {
  double seconds = 0.0;
  std::uint64_t bytes_read = 0;  // from the file
  double wait_seconds = 0.0;     // of those, that a pass waited for the disk
  double disk_beside = 0.0;      // bytes a second of the disk just before and after, their mean
};

struct StreamResult {
  BenchTest test;
  std::vector<StreamRun> runs;

  template <typename Quantity>
  Spread spread(const Quantity& quantity) const {
    std::vector<double> values;
    for (const StreamRun& run : runs) values.push_back(quantity(run));
    return spread_of(std::move(values));
  }
  Spread tokens_per_second() const {
    return spread([this](const StreamRun& run) { return test.n_tokens / run.seconds; });
  }
  Spread bytes_per_second() const {
    return spread([](const StreamRun& run) { return run.bytes_read / run.seconds; });
  }
  Spread disk_share() const {
    return spread([](const StreamRun& run) {
      return run.disk_beside > 0.0 ? run.bytes_read / run.seconds / run.disk_beside : 0.0;
    });
  }
  Spread wait_share() const {
    return spread([](const StreamRun& run) { return run.wait_seconds / run.seconds; });
  }
};

// A model within one budget.
struct Stream {
  std::uint64_t budget_bytes = 0;
  std::string mode;
  double resident_share = 0.0;
  std::uint64_t planned_bytes = 0;
  std::uint32_t rows_per_pass = 0;
  std::uint64_t streamed_bytes = 0;  // of a pass
  std::vector<StreamResult> results;
};

qsf::Result<StreamRun> run_once(BenchModel& model, const BenchTest& test, const DiskMeter* meter) {
  QSF_RETURN_IF_ERROR(model.reach_depth(test.depth));
  StreamRun run;
  if (meter != nullptr) {
    QSF_ASSIGN_OR_RETURN(run.disk_beside, meter->measure());
  }
  const qsf::PagerStats before = model.engine().pager_stats();
  QSF_ASSIGN_OR_RETURN(run.seconds, model.run(test));
  const qsf::PagerStats after = model.engine().pager_stats();
  run.bytes_read = after.bytes_read - before.bytes_read;
  run.wait_seconds = static_cast<double>(after.wait_ns - before.wait_ns) * 1e-9;
  if (meter != nullptr) {
    QSF_ASSIGN_OR_RETURN(const double beside, meter->measure());
    run.disk_beside = (run.disk_beside + beside) / 2;
  }
  return run;
}

// Writes the traced tiles as JSON, times in nanoseconds from the first read on.
qsf::Status write_timeline(const std::string& path, std::span<const qsf::TileEvent> events) {
  std::uint64_t start = UINT64_MAX;
  for (const qsf::TileEvent& event : events) start = std::min(start, event.read_start_ns);
  const auto since = [start](std::uint64_t ns) { return ns >= start ? ns - start : 0; };
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const qsf::TileEvent& event : events) {
    json.push_back({{"tile", event.tile},
                    {"read_start_ns", since(event.read_start_ns)},
                    {"read_end_ns", since(event.read_end_ns)},
                    {"ready_ns", since(event.ready_ns)},
                    {"acquired_ns", since(event.acquired_ns)},
                    {"released_ns", since(event.released_ns)}});
  }
  const std::string text = json.dump() + "\n";
  return qsf::write_file(path, std::as_bytes(std::span(text)));
}

qsf::Result<Stream> measure_stream(const BenchOptions& options, std::uint64_t budget_bytes,
                                   const DiskMeter* meter, ProgressLine& progress) {
  QSF_ASSIGN_OR_RETURN(BenchModel model, BenchModel::open(options, budget_bytes));
  const qsf::EnginePlan& plan = model.engine().plan();
  Stream stream = {.budget_bytes = budget_bytes,
                   .mode = plan.reading_mode,
                   .resident_share = plan.residency.resident_share,
                   .planned_bytes = plan.memory.total_bytes(),
                   .rows_per_pass = plan.rows_per_pass,
                   .streamed_bytes = plan.residency.streamed_bytes,
                   .results = {}};
  std::vector<qsf::TileEvent> events(options.timeline.empty() ? 0 : kTracedTiles);
  for (const BenchTest& test : model.tests(options)) {
    StreamResult result = {.test = test, .runs = {}};
    for (unsigned i = 0; i < options.repetitions; ++i) {
      if (progress.due()) {
        progress.show(megabytes(budget_bytes) + ", " + test_name(test) + ", run " +
                      std::to_string(i + 1) + " of " + std::to_string(options.repetitions));
      }
      model.engine().set_trace(events);
      QSF_ASSIGN_OR_RETURN(StreamRun run, run_once(model, test, meter));
      result.runs.push_back(run);
    }
    stream.results.push_back(std::move(result));
  }
  if (!events.empty()) {
    const std::size_t n_traced = model.engine().n_traced();
    model.engine().set_trace({});
    QSF_RETURN_IF_ERROR(write_timeline(options.timeline, std::span(events).first(n_traced)));
  }
  return stream;
}

nlohmann::ordered_json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

nlohmann::ordered_json stream_json(const Stream& stream) {
  nlohmann::ordered_json json = {{"budget_bytes", stream.budget_bytes},
                                 {"mode", stream.mode},
                                 {"planned_bytes", stream.planned_bytes},
                                 {"rows_per_pass", stream.rows_per_pass},
                                 {"streamed_bytes_per_pass", stream.streamed_bytes},
                                 {"tests", nlohmann::ordered_json::array()}};
  for (const StreamResult& result : stream.results) {
    nlohmann::ordered_json test = {{"kind", result.test.generate ? "generate" : "prompt"},
                                   {"tokens", result.test.n_tokens},
                                   {"depth", result.test.depth},
                                   {"resident_share", stream.resident_share},
                                   {"tokens_per_second", spread_json(result.tokens_per_second())},
                                   {"bytes_per_second", spread_json(result.bytes_per_second())},
                                   {"wait_share", spread_json(result.wait_share())},
                                   {"disk_share", spread_json(result.disk_share())},
                                   {"runs", nlohmann::ordered_json::array()}};
    for (const StreamRun& run : result.runs) {
      test["runs"].push_back({{"seconds", run.seconds},
                              {"bytes_read", run.bytes_read},
                              {"wait_seconds", run.wait_seconds},
                              {"disk_beside_bytes_per_second", run.disk_beside}});
    }
    json["tests"].push_back(std::move(test));
  }
  return json;
}

void print_stream(const Stream& stream) {
  for (const StreamResult& result : stream.results) {
    const Spread tokens = result.tokens_per_second();
    const StreamRun& first = result.runs.front();
    char share[16] = "-";
    if (first.disk_beside > 0.0) {
      std::snprintf(share, sizeof share, "%.0f %%", 100.0 * result.disk_share().median);
    }
    std::printf("%10s %8.0f %% %-22s %10.3f %8.3f to %-8.3f %10s %8.2f %8s %7.0f %%\n",
                megabytes(stream.budget_bytes).c_str(), 100.0 * stream.resident_share,
                test_name(result.test).c_str(), tokens.median, tokens.min, tokens.max,
                megabytes(first.bytes_read).c_str(), result.bytes_per_second().median * 1e-9, share,
                100.0 * result.wait_share().median);
  }
}

void print_streams(const BenchOptions& options, const std::vector<Stream>& streams,
                   const DiskMeter* meter) {
  const Machine machine = describe_machine();
  std::printf("qsf-bench " QSF_VERSION ": %s, %s\n", machine.cpu.c_str(), options.model.c_str());
  for (const Stream& stream : streams) {
    std::printf("%s: planned %s, %u rows a pass, %s a pass from the file; %s\n",
                megabytes(stream.budget_bytes).c_str(), megabytes(stream.planned_bytes).c_str(),
                stream.rows_per_pass, megabytes(stream.streamed_bytes).c_str(),
                stream.mode.c_str());
  }
  if (meter != nullptr) {
    std::printf("disk: read %u at once of %u KiB, which was fastest, before and after each run\n",
                meter->best().depth, meter->best().block_bytes >> 10);
  }
  std::printf("\n%10s %10s %-22s %10s %20s %10s %8s %8s %9s\n", "budget", "resident", "test",
              "tokens/s", "min to max", "read", "GB/s", "of disk", "waiting");
  for (const Stream& stream : streams) print_stream(stream);
}

nlohmann::ordered_json disk_json(const qsf::DiskProbe& probe) {
  nlohmann::ordered_json json = {{"bytes_per_second", fastest(probe)},
                                 {"depth", probe.best.depth},
                                 {"block_bytes", probe.best.block_bytes},
                                 {"path", qsf::read_path_name(probe.path)},
                                 {"direct", probe.is_direct},
                                 {"matrix", nlohmann::ordered_json::array()}};
  for (const qsf::ProbeCell& cell : probe.matrix) {
    json["matrix"].push_back({{"depth", cell.depth},
                              {"block_bytes", cell.block_bytes},
                              {"bytes_per_second", cell.bytes_per_second}});
  }
  return json;
}

void print_json(const nlohmann::ordered_json& json) {
  // Paths need not be UTF-8, of which JSON is made.
  std::printf("%s\n",
              json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace

qsf::Status bench_streams(const BenchOptions& options) {
  std::optional<DiskMeter> meter;
  if (!options.no_probe) {
    QSF_ASSIGN_OR_RETURN(DiskMeter opened, DiskMeter::open(options));
    QSF_RETURN_IF_ERROR(opened.choose());
    meter.emplace(std::move(opened));
  }
  std::vector<Stream> streams;
  ProgressLine progress(kBenchTool, true);
  for (const std::uint32_t budget : options.streams) {
    QSF_ASSIGN_OR_RETURN(Stream stream, measure_stream(options, budget * kMegabyte,
                                                       meter ? &*meter : nullptr, progress));
    streams.push_back(std::move(stream));
  }
  progress.clear();
  if (!options.json) {
    print_streams(options, streams, meter ? &*meter : nullptr);
    return qsf::ok_status();
  }
  nlohmann::ordered_json json = {{"tool", "qsf-bench"},
                                 {"version", QSF_VERSION},
                                 {"model", options.model},
                                 {"repetitions", options.repetitions},
                                 {"streams", nlohmann::ordered_json::array()}};
  if (meter) {
    json["disk_probe"] = {{"depth", meter->best().depth},
                          {"block_bytes", meter->best().block_bytes}};
  }
  for (const Stream& stream : streams) json["streams"].push_back(stream_json(stream));
  print_json(json);
  return qsf::ok_status();
}

qsf::Status bench_disk(const BenchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const DiskMeter meter, DiskMeter::open(options));
  QSF_ASSIGN_OR_RETURN(const qsf::DiskProbe probe, meter.probe(0));
  if (options.json) {
    print_json({{"tool", "qsf-bench"}, {"model", options.model}, {"disk", disk_json(probe)}});
    return qsf::ok_status();
  }
  std::printf("%s: %s%s\n%8s %12s %8s\n", options.model.c_str(),
              std::string(qsf::read_path_name(probe.path)).c_str(),
              probe.is_direct ? ", past the page cache" : ", through the page cache", "depth",
              "block", "GB/s");
  for (const qsf::ProbeCell& cell : probe.matrix) {
    const bool chosen =
        cell.depth == probe.best.depth && cell.block_bytes == probe.best.block_bytes;
    std::printf("%8u %8u KiB %8.2f%s\n", cell.depth, cell.block_bytes >> 10,
                cell.bytes_per_second * 1e-9, chosen ? "  chosen" : "");
  }
  return qsf::ok_status();
}

}  // namespace qsf_tools
