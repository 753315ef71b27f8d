// SPDX-License-Identifier: MIT
//
// qsf-run: completes a prompt with a model and streams the text.
//
// Standard output carries the text and nothing else; everything about the run goes to standard
// error. Exit code 0 for a text, also one that Ctrl-C or a closed pipe ended; 1 for a failure, 2
// for bad usage. It sees what every user of the library sees: include/qsf/qsf.h.

#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bundled_model.h"
#include "qsf/qsf.h"
#include "run_options.h"
#include "run_report.h"
#include "text_output.h"
#include "tool_support.h"

namespace qsf_tools {
namespace {

constexpr const char* kBundledPrompt = "Once upon a time";
constexpr std::size_t kMaxPromptBytes = 256'000'000;

struct EngineFree {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
};
struct ConfigFree {
  void operator()(QSFConfig* config) const { qsf_config_free(config); }
};
using EnginePtr = std::unique_ptr<QSFEngine, EngineFree>;
using ConfigPtr = std::unique_ptr<QSFConfig, ConfigFree>;

// The engine that Ctrl-C cancels.
std::atomic<QSFEngine*> g_running{nullptr};
static_assert(std::atomic<QSFEngine*>::is_always_lock_free, "used in a signal handler");

void cancel_running(int) {
  if (QSFEngine* engine = g_running.load()) qsf_engine_cancel(engine);
}

// Makes the first Ctrl-C end the text and the second one the process.
void catch_interrupt(QSFEngine* engine) {
  g_running.store(engine);
  struct sigaction action = {};
  action.sa_handler = cancel_running;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool is_folder(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

// Returns what is wrong with a path that can be told without opening it; empty for nothing.
std::string check_model_path(const std::string& path) {
  if (is_folder(path)) {
    return path + ": is a folder, expected a .qsf file; convert it: qsf-convert FOLDER MODEL.qsf";
  }
  if (path.ends_with(".gguf")) {
    return path +
           ": importing GGUF is not built yet; convert a Hugging Face folder with "
           "qsf-convert";
  }
  return {};
}

int report(const qsf_error& error) {
  print_error(kRunTool, error.message);
  return error.code == QSF_INVALID_ARGUMENT ? kUsage : kFailure;
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

qsf_code open_engine(const RunOptions& options, const std::string& model, EnginePtr& engine,
                     qsf_error& error) {
  ProgressLine progress(kRunTool, !options.quiet);
  const ConfigPtr config(qsf_config_default());
  qsf_config_set_threads(config.get(), options.threads);
  qsf_config_set_max_seq_len(config.get(), options.max_seq_len);
  qsf_config_set_kv_type(config.get(), options.kv_type);
  qsf_config_set_progress_callback(config.get(), show_loading, &progress);
  // The library only hands this pointer back to print_log, which does not write through it.
  qsf_config_set_log_callback(config.get(), print_log, const_cast<RunOptions*>(&options));
  QSFEngine* opened = nullptr;
  const qsf_code code = qsf_engine_open(model.c_str(), config.get(), &opened, &error);
  engine.reset(opened);
  return code;
}

// What the token callback needs.
struct Stream {
  TextOutput* output;
  ProgressLine* progress;
  QSFEngine* engine;
};

void write_token(int, const char* text, void* user_data) {
  const auto& stream = *static_cast<const Stream*>(user_data);
  stream.progress->clear();
  if (!stream.output->write(text)) qsf_engine_cancel(stream.engine);
}

void show_prompt_progress(std::uint64_t done, std::uint64_t total, void* user_data) {
  const auto& stream = *static_cast<const Stream*>(user_data);
  if (total == 0 || !stream.progress->due()) return;
  stream.progress->show("computing the prompt: " + std::to_string(done * 100 / total) + " %");
}

qsf_code generate(QSFEngine* engine, const RunOptions& options, const std::string& prompt,
                  std::uint64_t seed, TextOutput& output, qsf_generate_result& result,
                  qsf_error& error) {
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

  std::vector<const char*> stops;
  for (const std::string& stop : options.stop) stops.push_back(stop.c_str());
  ProgressLine progress(kRunTool, !options.quiet);
  Stream stream{.output = &output, .progress = &progress, .engine = engine};
  qsf_generate_options request;
  qsf_generate_options_init(&request);
  request.prompt = prompt.data();
  request.prompt_bytes = prompt.size();
  request.max_tokens = options.max_tokens;
  request.sampling = &sampling;
  request.stop = stops.data();
  request.n_stop = stops.size();
  request.on_token = write_token;
  request.user_data = &stream;
  request.echo_prompt = options.no_echo ? 0 : 1;
  request.on_prompt = show_prompt_progress;
  return qsf_engine_generate(engine, &request, &result, &error);
}

// Returns the prompt, or nothing with the reason in `error`.
std::optional<std::string> read_prompt(const RunOptions& options, std::string& error) {
  if (options.prompt) return options.prompt;
  if (options.prompt_file.empty()) return kBundledPrompt;
  return read_text(options.prompt_file, kMaxPromptBytes, error);
}

// Refuses, before the prompt is shown, what only the model can tell to be wrong.
qsf_code check_request(QSFEngine* engine, const RunOptions& options, const std::string& prompt,
                       qsf_error& error) {
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  qsf_code code = qsf_engine_model_info(engine, &info, &error);
  if (code != QSF_OK) return code;
  for (const qsf_logit_bias& entry : options.logit_bias) {
    if (entry.token < info.n_vocab) continue;
    std::snprintf(error.message, sizeof error.message,
                  "--logit-bias: token %d, expected an id below the vocabulary's %d", entry.token,
                  info.n_vocab);
    return error.code = QSF_INVALID_ARGUMENT;
  }
  std::size_t n_tokens = 0;
  code = qsf_engine_tokenize(engine, prompt.data(), prompt.size(), QSF_TOKENIZE_DEFAULT, nullptr, 0,
                             &n_tokens, &error);
  if (code != QSF_OK) return code;
  if (n_tokens > static_cast<std::size_t>(info.context)) {
    std::snprintf(error.message, sizeof error.message,
                  "prompt: %zu tokens, the context holds %d; shorten it or raise --max-seq-len "
                  "(the model was trained for %d)",
                  n_tokens, info.context, info.trained_context);
    return error.code = QSF_OUT_OF_BUDGET;
  }
  return QSF_OK;
}

int run(const RunOptions& options) {
  std::string problem;
  const std::optional<std::string> prompt = read_prompt(options, problem);
  const std::optional<std::string> model =
      options.model ? options.model : find_bundled_model(problem);
  if (problem.empty() && options.model) problem = check_model_path(*options.model);
  if (!problem.empty()) {
    print_error(kRunTool, problem);
    return kFailure;
  }

  qsf_error error = {};
  EnginePtr engine;
  if (open_engine(options, *model, engine, error) != QSF_OK) return report(error);
  if (options.verbose) print_plan(engine.get());
  if (check_request(engine.get(), options, *prompt, error) != QSF_OK) return report(error);

  catch_interrupt(engine.get());
  TextOutput output;
  const std::uint64_t seed = options.seed.value_or(std::random_device{}());
  qsf_generate_result result = {};
  result.struct_size = sizeof result;
  const qsf_code code = generate(engine.get(), options, *prompt, seed, output, result, error);
  output.end_line();
  g_running.store(nullptr);
  if (code != QSF_OK) return report(error);
  if (output.reader_left()) return kSuccess;
  if (output.failed()) {
    print_error(kRunTool, std::string("standard output: ") + output.reason());
    return kFailure;
  }
  if (!options.quiet) print_summary(engine.get(), result, seed);
  if (options.verbose) print_times(engine.get(), result);
  return kSuccess;
}

}  // namespace
}  // namespace qsf_tools

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  qsf_tools::RunOptions options;
  if (const auto exit_code = qsf_tools::parse_run_options(argc, argv, options)) return *exit_code;
  return qsf_tools::run(options);
}
