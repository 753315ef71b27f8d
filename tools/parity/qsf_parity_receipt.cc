// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_receipt.h"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>

#include "tools/bench/bench_machine.h"
#include "tools/common/tool_support.h"
#include "tools/parity/sha256.h"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace qsf_tools {
namespace {

using nlohmann::json;

// Variables that change what runs, or name what was run.
constexpr const char* kVariables[] = {"QSF_ISA",         "QSF_PREFETCH_BYTES", "LLAMA_CPP_DIR",
                                      "BITNET_CPP_DIR",  "CROSSVAL_GGUF",      "QSF_PARITY_CHILD",
                                      "OMP_NUM_THREADS", "GGML_NO_BACKTRACE"};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

json hash_of(const std::string& path) {
  const std::optional<std::string> hash = sha256_of_file(path);
  return hash ? json(*hash) : json();
}

std::uint64_t bytes_of(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

json environment_json() {
  const Machine machine = describe_machine();
  utsname system = {};
  ::uname(&system);
  json variables = json::object();
  for (const char* const name : kVariables) {
    const char* const value = std::getenv(name);
    if (value != nullptr) variables[name] = value;
  }
#if defined(__GLIBC__)
  const std::string libc = std::string("glibc ") + gnu_get_libc_version();
#else
  const std::string libc = "unknown";
#endif
  return {{"system", machine.system},
          {"machine", system.machine},
          {"cpu", machine.cpu},
          {"cpu_features", machine.features},
          {"memory_bytes", machine.memory_bytes},
          {"compiler", __VERSION__},
          {"libc", libc},
          {"variables", variables}};
}

json prompt_json(const ParityOptions& options) {
  const bool has_text = options.prompt.has_value();
  return {{"text", has_text ? json(valid_utf8(*options.prompt)) : json()},
          {"sha256", has_text ? json(sha256_of(*options.prompt)) : json()},
          {"parse_special", options.parse_special},
          {"template", json()}};
}

json ours_json(const ParityRun& run) {
  if (run.ours() != nullptr) return run.ours()->describe();
  return {{"kind", "engine"},
          {"name", "qsf"},
          {"backend", "none"},
          {"device", "none"},
          {"instruction_set", "none"},
          {"exact", run.options().exact},
          {"threads", 0},
          {"kv_type", run.options().kv_types.text()},
          {"n_vocab", 0}};
}

json reference_json(const ParityRun& run) {
  const ParityOptions& options = run.options();
  json reference = run.reference() != nullptr
                       ? run.reference()->describe()
                       : json{{"kind", "none"}, {"name", options.reference}, {"n_vocab", 0}};
  if (options.reference == "llama") {
    reference["model_path"] = options.reference_model;
    reference["model_sha256"] = hash_of(options.reference_model);
    reference["program_sha256"] = hash_of(options.child);
  }
  return reference;
}

json kernels_json(const ParityRun& run) {
  json kernels = json::array();
  for (const auto& [id, count] : run.observer().kernels()) {
    kernels.push_back({{"kernel_id", id},
                       {"calls", count.calls},
                       {"microseconds", static_cast<double>(count.ns) / 1000.0}});
  }
  return kernels;
}

}  // namespace

std::string receipt_digest(json receipt) {
  receipt.erase("receipt_sha256");
  return sha256_of(receipt.dump(-1, ' ', true, json::error_handler_t::replace));
}

json make_receipt(const ParityRun& run, const ParityVerdict& verdict) {
  const ParityOptions& options = run.options();
  json model = run.ours() != nullptr ? describe_model(run.ours()->engine()) : json::object();
  model["path"] = options.model;
  model["sha256"] = hash_of(options.model);
  model["bytes"] = bytes_of(options.model);
  if (run.engine_path() != options.model) {
    model["converted_path"] = run.engine_path();
    model["converted_sha256"] = hash_of(run.engine_path());
  }
  json records;
  if (!run.kernel_records_sha256().empty()) {
    records = {{"path", options.kernel_records},
               {"sha256", run.kernel_records_sha256()},
               {"records", run.observer().n_records()}};
  }
  json receipt = {
      {"schema_version", kParitySchemaVersion},
      {"tool", kParityTool},
      {"tool_version", QSF_VERSION},
      {"timestamp", utc_now()},
      {"status", status_name(verdict.status)},
      {"reason", valid_utf8(verdict.reason)},
      {"failure", valid_utf8(run.result().failure)},
      {"model", model},
      {"prompt", prompt_json(options)},
      {"tokenizer", run.ours() != nullptr ? describe_tokenizer(run.ours()->engine()) : json()},
      {"tokenization", tokenization_json(run.result())},
      {"ours", ours_json(run)},
      {"reference", reference_json(run)},
      {"thresholds", thresholds_json(options.thresholds)},
      {"rows", rows_json(run.result())},
      {"summary", verdict.summary},
      {"greedy", verdict.greedy},
      {"kernels", kernels_json(run)},
      {"kernel_records", records},
      {"timing",
       {{"ours_seconds", run.ours_seconds()}, {"reference_seconds", run.reference_seconds()}}},
      {"environment", environment_json()}};
  receipt["receipt_sha256"] = receipt_digest(receipt);
  return receipt;
}

}  // namespace qsf_tools
