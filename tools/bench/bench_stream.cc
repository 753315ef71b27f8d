// SPDX-License-Identifier: MIT

#include "tools/bench/bench_stream.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "engine/engine_plan.h"
#include "io/atomic_file.h"
#include "io/disk_probe.h"
#include "platform/memory.h"
#include "stream/pager_stats.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_routing.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kTracedTiles = 1U << 16;

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

qsf::Result<StreamRun> run_once(BenchModel& model, const BenchTest& test, const DiskMeter* meter) {
  QSF_RETURN_IF_ERROR(model.reach_depth(test.depth, test.n_sequences));
  StreamRun run;
  if (meter != nullptr) {
    QSF_ASSIGN_OR_RETURN(run.disk_beside, meter->measure());
  }
  const qsf::PagerStats before = model.engine().pager_stats();
  QSF_ASSIGN_OR_RETURN(run.seconds, model.run(test));
  const qsf::PagerStats after = model.engine().pager_stats();
  run.bytes_read = after.bytes_read - before.bytes_read;
  run.wait_seconds = static_cast<double>(after.wait_ns - before.wait_ns) * 1e-9;
  run.experts_used =
      after.experts_used + after.experts_prompted - before.experts_used - before.experts_prompted;
  run.experts_missed = after.experts_missed + after.experts_prompt_missed - before.experts_missed -
                       before.experts_prompt_missed;
  run.experts_foreseen = after.experts_foreseen - before.experts_foreseen;
  run.experts_prefetched = after.experts_prefetched - before.experts_prefetched;
  run.expert_bytes_read = after.expert_bytes_read - before.expert_bytes_read;
  if (meter != nullptr) {
    QSF_ASSIGN_OR_RETURN(const double beside, meter->measure());
    run.disk_beside = (run.disk_beside + beside) / 2;
  }
  return run;
}

qsf::Result<std::unique_ptr<RoutingReplay>> routing_of(const BenchOptions& options,
                                                       const BenchModel& model) {
  if (options.routing.empty()) return std::unique_ptr<RoutingReplay>();
  return RoutingReplay::read(options.routing, model.engine().spec());
}

qsf::Result<Stream> measure_stream(const BenchOptions& options, std::uint64_t budget_bytes,
                                   const DiskMeter* meter, ProgressLine& progress) {
  QSF_ASSIGN_OR_RETURN(BenchModel model, BenchModel::open(options, budget_bytes));
  const qsf::EnginePlan& plan = model.engine().plan();
  Stream stream = {
      .budget_bytes = budget_bytes,
      .mode = plan.reading_mode,
      .resident_share = plan.residency.resident_share,
      .planned_bytes = plan.memory.total_bytes(),
      .rows_per_pass = plan.rows_per_pass,
      .streamed_bytes = plan.residency.streamed_bytes + plan.residency.expert_read_bytes(),
      .n_experts = plan.residency.n_experts,
      .n_expert_slots = plan.residency.n_expert_slots,
      .results = {}};
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<RoutingReplay> replay, routing_of(options, model));
  std::unique_ptr<RoutingRecorder> recorder;
  if (!options.record_routing.empty()) {
    QSF_ASSIGN_OR_RETURN(recorder, RoutingRecorder::create(options.record_routing));
  }
  model.engine().set_routing_hook(replay != nullptr ? static_cast<qsf::RoutingHook*>(replay.get())
                                                    : recorder.get());
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
  model.engine().set_routing_hook(nullptr);
  if (recorder != nullptr) {
    QSF_RETURN_IF_ERROR(recorder->finish());
  }
  if (!events.empty()) {
    const std::size_t n_traced = model.engine().n_traced();
    model.engine().set_trace({});
    QSF_RETURN_IF_ERROR(write_timeline(options.timeline, std::span(events).first(n_traced)));
  }
  return stream;
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
    if (first.experts_used == 0) continue;
    std::printf("%10s %10s %-22s %9.1f %% of the experts used were in memory; %s read\n", "", "",
                "", 100.0 * result.expert_hits().median,
                megabytes(first.expert_bytes_read).c_str());
    if (first.experts_prefetched == 0) continue;
    std::printf(
        "%10s %10s %-22s %9.1f %% of the missing ones were read ahead, and %.1f %% as many in "
        "vain\n",
        "", "", "",
        100.0 * static_cast<double>(first.experts_foreseen) /
            static_cast<double>(std::max<std::uint64_t>(first.experts_missed, 1)),
        100.0 * static_cast<double>(first.experts_prefetched - first.experts_foreseen) /
            static_cast<double>(std::max<std::uint64_t>(first.experts_missed, 1)));
  }
}

void print_streams(const BenchOptions& options, const std::vector<Stream>& streams,
                   const DiskMeter* meter) {
  const Machine machine = describe_machine();
  std::printf("qsf bench " QSF_VERSION ": %s, %s\n", machine.cpu.c_str(), options.model.c_str());
  for (const Stream& stream : streams) {
    std::printf("%s: planned %s, %u rows a pass, %s a pass from the file; %s\n",
                megabytes(stream.budget_bytes).c_str(), megabytes(stream.planned_bytes).c_str(),
                stream.rows_per_pass, megabytes(stream.streamed_bytes).c_str(),
                stream.mode.c_str());
    if (stream.n_experts == 0) continue;
    std::printf("%s: %u of %u experts in memory at once\n", megabytes(stream.budget_bytes).c_str(),
                stream.n_expert_slots, stream.n_experts);
  }
  if (meter != nullptr) {
    std::printf("disk: read %u at once of %u KiB, which was fastest, before and after each run\n",
                meter->best().depth, meter->best().block_bytes >> 10);
  }
  std::printf("\n%10s %10s %-22s %10s %20s %10s %8s %8s %9s\n", "budget", "resident", "test",
              "tokens/s", "min to max", "read", "GB/s", "of disk", "waiting");
  for (const Stream& stream : streams) print_stream(stream);
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
  ProgressLine progress(program_name(), true);
  for (const std::uint64_t budget : options.streams) {
    QSF_ASSIGN_OR_RETURN(Stream stream,
                         measure_stream(options, budget, meter ? &*meter : nullptr, progress));
    streams.push_back(std::move(stream));
  }
  progress.clear();
  if (!options.json) {
    print_streams(options, streams, meter ? &*meter : nullptr);
    return qsf::ok_status();
  }
  print_streams_json(options, meter ? &meter->best() : nullptr, streams);
  return qsf::ok_status();
}

qsf::Status bench_disk(const BenchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const DiskMeter meter, DiskMeter::open(options));
  QSF_ASSIGN_OR_RETURN(const qsf::DiskProbe probe, meter.probe(0));
  if (options.json) {
    print_disk_json(options, probe);
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
