// SPDX-License-Identifier: MIT

#include "tools/run/run_engine.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "tools/common/system_files.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

namespace {

constexpr std::uint64_t kMaskBytes = 4 << 20;  // for the masks of a grammar

void print_log(qsf_log_level level, const char* line, void* user_data) {
  const auto& options = *static_cast<const RunOptions*>(user_data);
  if (level == QSF_LOG_WARNING) {
    print_error(program_name(), std::string("warning: ") + line);
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

void tell(const RunOptions& options, std::size_t n_tokens, const char* what,
          const std::string& path, double seconds) {
  const std::optional<FileAbout> about = about_file(path);
  if (options.quiet || !about) return;
  char time[40];
  std::snprintf(time, sizeof time, ", in %.3f s", seconds);
  print_error(program_name(), "session of " + std::to_string(n_tokens) + " tokens " + what + path +
                                  ": " + megabytes(about->bytes) + time);
}

}  // namespace

int report(const qsf_error& error) {
  print_error(program_name(), error.message);
  return error.code == QSF_INVALID_ARGUMENT ? kUsage : kFailure;
}

qsf_code open_engine(const RunOptions& options, const std::string& model, EnginePtr& engine,
                     qsf_error& error) {
  ProgressLine progress(program_name(), !options.quiet);
  const ConfigPtr config(qsf_config_default());
  set_engine_options(config.get(), options.engine);
  use_adapter(config.get(), options.engine.adapters);
  qsf_config_set_preload(config.get(), 0);
  if (options.grammar) qsf_config_set_grammars(config.get(), 1, kMaskBytes);
  qsf_config_set_progress_callback(config.get(), show_loading, &progress);
  // The library only hands this pointer back to print_log, which does not write through it.
  qsf_config_set_log_callback(config.get(), print_log, const_cast<RunOptions*>(&options));
  QSFEngine* opened = nullptr;
  const qsf_code code = qsf_engine_open(model.c_str(), config.get(), &opened, &error);
  engine.reset(opened);
  return code;
}

qsf_code make_grammar(const RunOptions& options, QSFEngine* engine, GrammarPtr& grammar,
                      qsf_error& error) {
  if (!options.grammar) return QSF_OK;
  QSFGrammar* made = nullptr;
  const std::string& source = *options.grammar;
  const qsf_code code =
      qsf_grammar_create(engine, options.grammar_kind, source.data(), source.size(), &made, &error);
  grammar.reset(made);
  return code;
}

qsf_sampling make_sampling(const RunOptions& options, QSFGrammar* grammar, std::uint64_t seed) {
  qsf_sampling sampling = options.sampling;
  sampling.seed = seed;
  sampling.grammar = grammar;
  sampling.logit_bias = options.logit_bias.data();
  sampling.n_logit_bias = options.logit_bias.size();
  if (!options.dry_breaker_texts.empty()) {
    sampling.dry_breakers = options.dry_breaker_texts.data();
    sampling.n_dry_breakers = options.dry_breaker_texts.size();
  }
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

double Stopwatch::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string check_session_path(const RunOptions& options) {
  const std::string& path = options.session_save;
  if (path.empty()) return {};
  const std::optional<FileAbout> about = about_file(path);
  if (about && about->kind != FileKind::kRegular) {
    return "--session-save: " + path + ": is no regular file, so it is not replaced";
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (is_writable_folder(folder)) return {};
  return "--session-save: " + path + ": cannot be written: " + std::strerror(errno);
}

qsf_code open_session(const RunOptions& options, QSFEngine* engine, SessionPtr& session,
                      qsf_error& error) {
  QSFSession* created = nullptr;
  const qsf_code code = qsf_session_create(engine, &created, &error);
  session.reset(created);
  if (code != QSF_OK || options.session_load.empty()) return code;
  return qsf_session_load(created, options.session_load.c_str(), &error);
}

qsf_code save_session(const RunOptions& options, QSFSession* session, qsf_error& error) {
  if (options.session_save.empty()) return QSF_OK;
  if (qsf_session_length(session) == 0) {
    if (!options.quiet) print_error(program_name(), "nothing was computed, so no session is saved");
    return QSF_OK;
  }
  const Stopwatch watch;
  const qsf_code code = qsf_session_save(session, options.session_save.c_str(), &error);
  if (code == QSF_OK) tell_saved(options, qsf_session_length(session), watch.seconds());
  return code;
}

void tell_loaded(const RunOptions& options, std::size_t n_tokens, double seconds) {
  tell(options, n_tokens, "loaded from ", options.session_load, seconds);
}

void tell_saved(const RunOptions& options, std::size_t n_tokens, double seconds) {
  tell(options, n_tokens, "saved in ", options.session_save, seconds);
}

}  // namespace qsf_tools
