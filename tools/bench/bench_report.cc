// SPDX-License-Identifier: MIT

#include "tools/bench/bench_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/engine_plan.h"
#include "io/atomic_file.h"
#include "tools/bench/bench_kernels.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_stream.h"
#include "tools/bench/bench_texts.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[middle] : 0.5 * (samples[middle - 1] + samples[middle]);
  return {median, samples.front(), samples.back()};
}

namespace {

using qsf::kernels::ProbeKind;

// Of the median run.
struct Rates {
  Spread tokens;
  Spread peer_tokens;
  double bytes_per_second = 0.0;
  double operations_per_second = 0.0;
  Spread read_share;  // of what the sweeps beside each run read
};

Rates rates_of(const BenchResult& result) {
  Rates rates;
  rates.tokens = spread_of(result.tokens_per_second());
  rates.peer_tokens = spread_of(result.peer_tokens_per_second);
  const double n_tokens = static_cast<double>(result.test.n_tokens) * result.test.n_sequences;
  const double seconds = n_tokens / rates.tokens.median;
  rates.bytes_per_second = static_cast<double>(result.bytes_read) / seconds;
  rates.operations_per_second = static_cast<double>(result.operations) / seconds;
  std::vector<double> shares;
  for (std::size_t i = 0; i < result.read_beside.size(); ++i) {
    shares.push_back(static_cast<double>(result.bytes_read) / result.run_seconds[i] /
                     result.read_beside[i]);
  }
  rates.read_share = spread_of(std::move(shares));
  return rates;
}

std::string percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100.0 * part / whole);
  return whole > 0.0 ? text : "-";
}

// Returns "12.3", or "-" for a quantity that a test does not have.
std::string number(double value, int n_digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", n_digits, value);
  return value > 0.0 ? text : "-";
}

void print_limits(const MachineLimits& limits) {
  std::printf("limits:  memory read %.1f GB/s (%u streams a thread, prefetch %u bytes)",
              limits.read.bytes_per_second * 1e-9, limits.read.n_streams,
              limits.read.prefetch_bytes);
  for (const ArithmeticLimit& limit : limits.arithmetic) {
    std::printf(", %s %.3f TOPS (%s)",
                std::string(qsf::kernels::probe_kind_name(limit.kind)).c_str(),
                limit.operations_per_second * 1e-12, limit.name.c_str());
  }
  std::printf("\n");
}

void print_head(const BenchOptions& options, const BenchModel& model, const BenchReport& report) {
  const Machine machine = describe_machine();
  const qsf::Engine& engine = model.engine();
  std::printf("qsf bench " QSF_VERSION ": %s, %u threads, kernels %s\n", machine.cpu.c_str(),
              engine.n_threads(), std::string(engine.instruction_set()).c_str());
  if (report.limits) print_limits(*report.limits);
  std::printf(
      "model:   %s, %s, %llu parameters, layers %s, head %s, file %s, read for a token %s\n",
      options.model.c_str(), engine.spec().architecture.c_str(),
      static_cast<unsigned long long>(engine.n_parameters()), model.cost().layer_type().c_str(),
      model.cost().head_type().c_str(), megabytes(engine.file_bytes()).c_str(),
      megabytes(model.cost().weight_bytes()).c_str());
  if (report.peer) {
    std::printf("peer:    %s (%s), %s, %s, %s\n", options.peer.c_str(), report.peer->commit.c_str(),
                options.peer_model.c_str(), report.peer->model_type.c_str(),
                megabytes(report.peer->model_bytes).c_str());
  }
}

// Where the time of a test went, a line an operator that took any.
void print_operators(const BenchResult& result) {
  std::printf("\n%-24s %10s %7s %7s %7s\n", test_name(result.test).c_str(), "ms a run", "share",
              "GB/s", "TOPS");
  const double total_ns = static_cast<double>(result.operators.total_ns());
  for (std::size_t i = 0; i < qsf::kOperatorKinds; ++i) {
    const auto kind = static_cast<qsf::OperatorKind>(i);
    const qsf::OperatorTimes& times = result.operators[kind];
    if (times.calls == 0 || times.ns == 0) continue;
    const auto ns = static_cast<double>(times.ns);
    const auto n_runs = static_cast<double>(result.run_seconds.size());
    std::printf("  %-22s %10.3f %7s %7s %7s\n", std::string(qsf::operator_name(kind)).c_str(),
                ns * 1e-6 / n_runs, percent(ns, total_ns).c_str(),
                number(static_cast<double>(times.bytes) / ns, 2).c_str(),
                number(static_cast<double>(times.operations) / ns * 1e-3, 3).c_str());
  }
}

nlohmann::ordered_json operators_json(const qsf::OperatorProfile& profile) {
  auto json = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < qsf::kOperatorKinds; ++i) {
    const auto kind = static_cast<qsf::OperatorKind>(i);
    const qsf::OperatorTimes& times = profile[kind];
    json[std::string(qsf::operator_name(kind))] = {{"calls", times.calls},
                                                   {"ns", times.ns},
                                                   {"bytes", times.bytes},
                                                   {"operations", times.operations}};
  }
  return json;
}

nlohmann::ordered_json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

nlohmann::ordered_json limits_json(const MachineLimits& limits) {
  nlohmann::ordered_json json;
  json["read_bytes_per_second"] = limits.read.bytes_per_second;
  json["read_streams"] = limits.read.n_streams;
  json["read_prefetch_bytes"] = limits.read.prefetch_bytes;
  for (const ArithmeticLimit& limit : limits.arithmetic) {
    const std::string kind(qsf::kernels::probe_kind_name(limit.kind));
    json[kind + "_operations_per_second"] = limit.operations_per_second;
    json[kind + "_probe"] = limit.name;
  }
  return json;
}

nlohmann::ordered_json result_json(const BenchResult& result) {
  const Rates rates = rates_of(result);
  nlohmann::ordered_json json;
  json["kind"] = result.test.generate ? "generate" : "prompt";
  json["tokens"] = result.test.n_tokens;
  json["depth"] = result.test.depth;
  json["sequences"] = result.test.n_sequences;
  json["tokens_per_second"] = spread_json(rates.tokens);
  json["run_seconds"] = result.run_seconds;
  json["operations_per_second"] = rates.operations_per_second;
  if (result.bytes_read > 0) json["bytes_per_second"] = rates.bytes_per_second;
  if (!result.read_beside.empty()) {
    json["read_beside_bytes_per_second"] = result.read_beside;
    json["read_share"] = spread_json(rates.read_share);
  }
  json["operators"] = operators_json(result.operators);
  if (!result.peer_tokens_per_second.empty()) {
    json["peer_tokens_per_second"] = spread_json(rates.peer_tokens);
    json["ratio"] = rates.tokens.median / rates.peer_tokens.median;
  }
  return json;
}

nlohmann::ordered_json model_json(const BenchOptions& options, const BenchModel& model) {
  const qsf::Engine& engine = model.engine();
  return {{"path", options.model},
          {"architecture", engine.spec().architecture},
          {"parameters", engine.n_parameters()},
          {"quant_type", engine.quant_name()},
          {"layer_type", model.cost().layer_type()},
          {"head_type", model.cost().head_type()},
          {"kv_type_k", options.kv_types.keys()},
          {"kv_type_v", options.kv_types.values()},
          {"kv_policy", options.kv_policy.policy},
          {"rope_reindex", options.kv_policy.rope_reindex},
          {"attention", options.attention.attention},
          {"exact", options.exact},
          {"quality", options.quality},
          {"file_bytes", engine.file_bytes()},
          {"weight_bytes_per_token", model.cost().weight_bytes()},
          {"planned_bytes", engine.plan().memory.total_bytes()}};
}

nlohmann::ordered_json stream_json(const Stream& stream) {
  nlohmann::ordered_json json = {{"budget_bytes", stream.budget_bytes},
                                 {"mode", stream.mode},
                                 {"planned_bytes", stream.planned_bytes},
                                 {"rows_per_pass", stream.rows_per_pass},
                                 {"streamed_bytes_per_pass", stream.streamed_bytes},
                                 {"experts", stream.n_experts},
                                 {"experts_kept", stream.n_expert_slots},
                                 {"tests", nlohmann::ordered_json::array()}};
  for (const StreamResult& result : stream.results) {
    nlohmann::ordered_json test = {{"kind", result.test.generate ? "generate" : "prompt"},
                                   {"tokens", result.test.n_tokens},
                                   {"depth", result.test.depth},
                                   {"sequences", result.test.n_sequences},
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
                              {"experts_used", run.experts_used},
                              {"experts_missed", run.experts_missed},
                              {"experts_foreseen", run.experts_foreseen},
                              {"experts_prefetched", run.experts_prefetched},
                              {"expert_bytes_read", run.expert_bytes_read},
                              {"disk_beside_bytes_per_second", run.disk_beside}});
    }
    json["tests"].push_back(std::move(test));
  }
  return json;
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

void print(const nlohmann::ordered_json& json) {
  // A path may hold bytes that are not UTF-8; JSON must be UTF-8.
  std::printf("%s\n",
              json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

std::string text_of(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

const ArithmeticLimit* prompt_limit(const MachineLimits& limits, bool exact, bool float_weights) {
  const ArithmeticLimit* best = nullptr;
  for (const ArithmeticLimit& limit : limits.arithmetic) {
    if (limit.kind == ProbeKind::kBf16 && !exact) return &limit;
    if (limit.kind == (exact || float_weights ? ProbeKind::kF32 : ProbeKind::kInt8)) best = &limit;
  }
  return best;
}

void print_tables(const BenchOptions& options, const BenchModel& model, const BenchReport& report) {
  print_head(options, model, report);
  const ArithmeticLimit* const peak =
      report.limits ? prompt_limit(*report.limits, options.exact, model.cost().float_weights())
                    : nullptr;
  std::printf("\n%-24s %10s %19s %7s %8s %7s %8s %9s %6s\n", "test", "tokens/s", "min to max",
              "GB/s", "of limit", "TOPS", "of limit", "peer", "ratio");
  for (const BenchResult& result : report.results) {
    const Rates rates = rates_of(result);
    char range[48];
    std::snprintf(range, sizeof range, "%.2f to %.2f", rates.tokens.min, rates.tokens.max);
    const double peer = rates.peer_tokens.median;
    std::printf(
        "%-24s %10.2f %19s %7s %8s %7s %8s %9s %6s\n", test_name(result.test).c_str(),
        rates.tokens.median, range, number(rates.bytes_per_second * 1e-9, 2).c_str(),
        rates.read_share.median > 0.0 ? percent(rates.read_share.median, 1.0).c_str() : "-",
        number(rates.operations_per_second * 1e-12, 3).c_str(),
        percent(rates.operations_per_second, peak == nullptr ? 0.0 : peak->operations_per_second)
            .c_str(),
        number(peer, 2).c_str(), number(peer > 0.0 ? rates.tokens.median / peer : 0.0, 2).c_str());
  }
  for (const BenchResult& result : report.results) print_operators(result);
}

void print_json(const BenchOptions& options, const BenchModel& model, const BenchReport& report) {
  const Machine machine = describe_machine();
  const qsf::Engine& engine = model.engine();
  nlohmann::ordered_json json;
  json["tool"] = "qsf-bench";
  json["version"] = QSF_VERSION;
  json["machine"] = {{"cpu", machine.cpu},
                     {"features", machine.features},
                     {"system", machine.system},
                     {"memory_bytes", machine.memory_bytes},
                     {"threads", engine.n_threads()},
                     {"instruction_set", engine.instruction_set()}};
  if (report.limits) json["limits"] = limits_json(*report.limits);
  json["model"] = model_json(options, model);
  if (report.peer) {
    json["peer"] = {{"program", options.peer},
                    {"commit", report.peer->commit},
                    {"model", options.peer_model},
                    {"model_type", report.peer->model_type},
                    {"model_bytes", report.peer->model_bytes}};
  }
  json["repetitions"] = options.repetitions;
  json["tests"] = nlohmann::ordered_json::array();
  for (const BenchResult& result : report.results) json["tests"].push_back(result_json(result));
  print(json);
}

void print_kernels_json(std::span<const KernelFigure> figures) {
  const Machine machine = describe_machine();
  nlohmann::ordered_json json;
  json["tool"] = "qsf-bench";
  json["version"] = QSF_VERSION;
  json["machine"] = {{"cpu", machine.cpu},
                     {"features", machine.features},
                     {"system", machine.system},
                     {"memory_bytes", machine.memory_bytes}};
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelFigure& figure : figures) {
    json["kernels"].push_back({{"kernel", figure.kernel},
                               {"work", figure.work},
                               {"ns", figure.ns},
                               {"bytes", figure.bytes},
                               {"operations", figure.operations}});
  }
  print(json);
}

void print_streams_json(const BenchOptions& options, const qsf::ProbeCell* disk,
                        std::span<const Stream> streams) {
  nlohmann::ordered_json json = {{"tool", "qsf-bench"},
                                 {"version", QSF_VERSION},
                                 {"model", options.model},
                                 {"repetitions", options.repetitions},
                                 {"streams", nlohmann::ordered_json::array()}};
  if (disk != nullptr) {
    json["disk_probe"] = {{"depth", disk->depth}, {"block_bytes", disk->block_bytes}};
  }
  for (const Stream& stream : streams) json["streams"].push_back(stream_json(stream));
  print(json);
}

void print_texts_json(const BenchOptions& options, std::span<const TextFigure> figures) {
  nlohmann::ordered_json json = {{"tool", "qsf-bench"},
                                 {"version", QSF_VERSION},
                                 {"model", options.model},
                                 {"repetitions", options.repetitions},
                                 {"texts", nlohmann::ordered_json::array()}};
  for (const TextFigure& figure : figures) {
    json["texts"].push_back({{"budget_bytes", figure.budget_bytes},
                             {"text", figure.text},
                             {"tokens", figure.n_tokens},
                             {"off_tokens_per_second", spread_json(figure.off())},
                             {"auto_tokens_per_second", spread_json(figure.drafted())},
                             {"ratio", figure.ratio()},
                             {"tokens_per_pass", figure.tokens_per_pass()},
                             {"drafted", figure.n_drafted},
                             {"accepted", figure.n_accepted}});
  }
  print(json);
}

double fastest(const qsf::DiskProbe& probe) {
  double best = 0.0;
  for (const qsf::ProbeCell& cell : probe.matrix) best = std::max(best, cell.bytes_per_second);
  return best;
}

void print_disk_json(const BenchOptions& options, const qsf::DiskProbe& probe) {
  print({{"tool", "qsf-bench"}, {"model", options.model}, {"disk", disk_json(probe)}});
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

std::optional<double> parse_peer_output(const std::string& text, PeerInfo& info) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  const bool has_entry = parsed.is_array() && !parsed.empty() && parsed[0].is_object();
  if (!has_entry) return std::nullopt;
  const nlohmann::json& entry = parsed[0];
  const auto rate = entry.find("avg_ts");
  if (rate == entry.end() || !rate->is_number()) return std::nullopt;
  info.commit = text_of(entry, "build_commit");
  info.model_type = text_of(entry, "model_type");
  const auto bytes = entry.find("model_size");
  if (bytes != entry.end() && bytes->is_number_unsigned()) {
    info.model_bytes = bytes->get<std::uint64_t>();
  }
  return rate->get<double>();
}

}  // namespace qsf_tools
