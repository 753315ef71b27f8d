// SPDX-License-Identifier: MIT
//
// The engine of a run; see run_engine.h.

#include "tools/run/run_engine.h"

#include <sys/stat.h>

#include <cstdio>

#include "tools/common/kv_type_option.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

struct ConfigFree {
  void operator()(QSFConfig* config) const { qsf_config_free(config); }
};
using ConfigPtr = std::unique_ptr<QSFConfig, ConfigFree>;

bool is_folder(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

void print_log(qsf_log_level level, const char* line, void* user_data) {
  const auto& options = *static_cast<const RunOptions*>(user_data);
  if (level == QSF_LOG_WARNING) {
    print_error(kRunTool, std::string("warning: ") + line);
  } else if (options.verbose) {
    std::fprintf(stderr, "%s\n", line);
  }
}

void show_loading(std::uint64_t done_bytes, std::uint64_t total_bytes, void* user_data) {
  auto& progress = *static_cast<ProgressLine*>(user_data);
  if (!progress.due()) return;
  const std::uint64_t percent = total_bytes == 0 ? 100 : done_bytes * 100 / total_bytes;
  progress.show("loading " + megabytes(total_bytes) + ": " + std::to_string(percent) + " %");
}

}  // namespace

std::string check_model_path(const std::string& path) {
  if (is_folder(path)) {
    return path + ": is a folder, expected a .qsf file; convert it: qsf-convert FOLDER MODEL.qsf";
  }
  return {};
}

int report(const qsf_error& error) {
  print_error(kRunTool, error.message);
  return error.code == QSF_INVALID_ARGUMENT ? kUsage : kFailure;
}

qsf_code open_engine(const RunOptions& options, const std::string& model, EnginePtr& engine,
                     qsf_error& error) {
  ProgressLine progress(kRunTool, !options.quiet);
  const ConfigPtr config(qsf_config_default());
  qsf_config_set_threads(config.get(), options.threads);
  qsf_config_set_max_seq_len(config.get(), options.max_seq_len);
  qsf_config_set_ram_budget(config.get(), static_cast<std::size_t>(options.ram_budget));
  qsf_config_set_io(config.get(), options.read_path);
  qsf_config_set_rows_per_pass(config.get(), options.rows_per_pass);
  qsf_config_set_preload(config.get(), 0);
  set_kv_types(config.get(), options.kv_types);
  set_attention(config.get(), options.attention);
  set_kv_policy(config.get(), options.kv_policy);
  qsf_config_set_kv_spill(config.get(), options.kv_spill.c_str());
  qsf_config_set_exact(config.get(), options.exact ? 1 : 0);
  qsf_config_set_pin(config.get(), options.pin ? 1 : 0);
  qsf_config_set_progress_callback(config.get(), show_loading, &progress);
  // The library only hands this pointer back to print_log, which does not write through it.
  qsf_config_set_log_callback(config.get(), print_log, const_cast<RunOptions*>(&options));
  QSFEngine* opened = nullptr;
  const qsf_code code = qsf_engine_open(model.c_str(), config.get(), &opened, &error);
  engine.reset(opened);
  return code;
}

qsf_sampling make_sampling(const RunOptions& options, std::uint64_t seed) {
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.top_p = options.top_p;
  sampling.min_p = options.min_p;
  sampling.repeat_penalty = options.repeat_penalty;
  sampling.seed = seed;
  sampling.logit_bias = options.logit_bias.data();
  sampling.n_logit_bias = options.logit_bias.size();

  return sampling;
}

qsf_code check_logit_bias(const RunOptions& options, QSFEngine* engine, qsf_error& error) {
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  const qsf_code code = qsf_engine_model_info(engine, &info, &error);
  if (code != QSF_OK) return code;
  for (const qsf_logit_bias& entry : options.logit_bias) {
    if (entry.token < info.n_vocab) continue;
    std::snprintf(error.message, sizeof error.message,
                  "--logit-bias: token %d, expected an id below the vocabulary's %d", entry.token,
                  info.n_vocab);
    return error.code = QSF_INVALID_ARGUMENT;
  }
  return QSF_OK;
}

}  // namespace qsf_tools
