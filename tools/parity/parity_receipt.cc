// SPDX-License-Identifier: MIT

#include "tools/parity/parity_receipt.h"

#include <sys/stat.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <ctime>
#include <utility>

#include "tools/bench/bench_machine.h"
#include "tools/parity/sha256.h"

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

namespace qsf_tools {
namespace {

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

HashOrNull hash_of(const std::string& path) {
  return sha256_of_file(path);
}

std::uint64_t bytes_of(const std::string& path) {
  struct stat facts = {};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
}

EnvironmentRecord environment_record() {
  const Machine machine = describe_machine();
  utsname system = {};
  ::uname(&system);
  EnvironmentRecord record;
  record.system = machine.system;
  record.machine = system.machine;
  record.cpu = machine.cpu;
  record.cpu_features = machine.features;
  record.memory_bytes = machine.memory_bytes;
  record.compiler = __VERSION__;
#if defined(__GLIBC__)
  record.libc = std::string("glibc ") + gnu_get_libc_version();
#else
  record.libc = "unknown";
#endif
  for (const char* const name : kVariables) {
    const char* const value = std::getenv(name);
    if (value != nullptr) record.variables[name] = value;
  }
  return record;
}

ModelRecord model_record(const ParityRun& run) {
  const ParityOptions& options = run.options();
  ModelRecord record;
  record.path = options.model;
  record.sha256 = hash_of(options.model);
  record.bytes = bytes_of(options.model);
  if (run.engine_path() != options.model) {
    record.converted_path = run.engine_path();
    record.converted_sha256 = hash_of(run.engine_path());
  }
  if (run.ours() != nullptr) record.description = describe_model(run.ours()->engine());
  return record;
}

PromptRecord prompt_record(const ParityOptions& options) {
  PromptRecord record;
  record.parse_special = options.parse_special;
  if (options.prompt) {
    record.text = *options.prompt;
    record.sha256 = sha256_of(*options.prompt);
  }
  return record;
}

SourceDescription ours_record(const ParityRun& run) {
  if (run.ours() != nullptr) return run.ours()->describe();
  SourceDescription none;
  none.kind = "engine";
  none.name = "qsf";
  none.backend = "none";
  none.device = "none";
  none.instruction_set = "none";
  none.exact = run.options().exact;
  none.threads = 0U;
  none.kv_type = run.options().kv_types.text();
  return none;
}

ReferenceRecord reference_record(const ParityRun& run) {
  const ParityOptions& options = run.options();
  ReferenceRecord record;
  if (run.reference() != nullptr) {
    record.source = run.reference()->describe();
  } else {
    record.source.kind = "none";
    record.source.name = options.reference;
  }
  if (options.reference == "llama") {
    record.model_path = options.reference_model;
    record.model_sha256 = hash_of(options.reference_model);
    record.program_sha256 = hash_of(options.child);
  }
  return record;
}

}  // namespace

Receipt make_receipt(const ParityRun& run, const ParityVerdict& verdict) {
  const ParityOptions& options = run.options();
  Receipt receipt;
  receipt.tool_version = QSF_VERSION;
  receipt.timestamp = utc_now();
  receipt.status = status_name(verdict.status);
  receipt.reason = verdict.reason;
  receipt.failure = run.result().failure;
  receipt.model = model_record(run);
  receipt.prompt = prompt_record(options);
  if (run.ours() != nullptr) receipt.tokenizer = describe_tokenizer(run.ours()->engine());
  receipt.tokenization = tokenization_record(run.result());
  receipt.ours = ours_record(run);
  receipt.reference = reference_record(run);
  receipt.thresholds = options.thresholds;
  receipt.rows = row_records(run.result());
  receipt.summary = verdict.summary;
  receipt.greedy = verdict.greedy;
  for (const auto& [id, count] : run.observer().kernels()) {
    receipt.kernels.push_back({id, count.calls, static_cast<double>(count.ns) / 1000.0});
  }
  if (!run.kernel_records_sha256().empty()) {
    receipt.kernel_records = KernelRecordsFile{options.kernel_records, run.kernel_records_sha256(),
                                               run.observer().n_records()};
  }
  receipt.ours_seconds = run.ours_seconds();
  receipt.reference_seconds = run.reference_seconds();
  receipt.environment = environment_record();
  return receipt;
}

ParityResult result_of(const Receipt& receipt) {
  ParityResult result;
  result.thresholds = receipt.thresholds;
  result.ids_given = receipt.tokenization.ids_given;
  result.tokens = receipt.tokenization.ours;
  result.reference_tokens = receipt.tokenization.reference;
  result.n_vocab = receipt.ours.n_vocab;
  result.reference_n_vocab = receipt.reference.source.n_vocab;
  result.n_positions = receipt.summary.positions;
  for (const RowRecord& from : receipt.rows) {
    RowParity row;
    row.finite = from.finite;
    row.zero = from.zero;
    row.cosine = from.cosine;
    row.centred_cosine = from.centred_cosine;
    row.max_abs_error = from.max_abs_error;
    row.mse = from.mse;
    row.kl = from.kl;
    row.top_ours = from.top_ours;
    row.top_reference = from.top_reference;
    row.outcome = judge_row(row, result.thresholds);
    result.rows.push_back(std::move(row));
  }
  result.n_steps = receipt.greedy.steps;
  result.greedy = receipt.greedy.ours;
  result.reference_greedy = receipt.greedy.reference;
  for (const KernelRecord& kernel : receipt.kernels) result.kernels.push_back(kernel.kernel_id);
  result.greedy_finite = receipt.greedy.finite;
  result.failure = receipt.failure;
  return result;
}

}  // namespace qsf_tools
