// SPDX-License-Identifier: MIT
//
// qsf-run: completes a prompt with a model and streams the text, or chats (qsf_run_chat.h).
//
// Standard output carries the text and nothing else; everything about the run goes to standard
// error. Exit code 0 for a text, also one that Ctrl-C or a closed pipe ended; 1 for a failure, 2
// for bad usage. It sees what every user of the library sees: include/qsf/qsf.h.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "qsf/qsf.h"
#include "tools/common/bundled_model.h"
#include "tools/common/console.h"
#include "tools/common/model_cache.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/run/qsf_run_chat.h"
#include "tools/run/run_bench.h"
#include "tools/run/run_engine.h"
#include "tools/run/run_options.h"
#include "tools/run/run_output.h"

namespace qsf_tools {
namespace {

constexpr const char* kBundledPrompt = "Once upon a time";
constexpr std::size_t kMaxPromptBytes = 256'000'000;
// Text costs memory while it becomes tokens. Under a budget no more of it is read than a hundredth
// part, nor made into tokens than what a context of long words could hold.
constexpr std::size_t kBudgetOfPromptBytes = 100;
constexpr std::size_t kMaxBytesOfPosition = 64;

// The engine that Ctrl-C cancels.
std::atomic<QSFEngine*> g_running{nullptr};
static_assert(std::atomic<QSFEngine*>::is_always_lock_free, "used in a signal handler");

void cancel_running() {
  if (QSFEngine* engine = g_running.load()) qsf_engine_cancel(engine);
}

// Makes the first Ctrl-C end the text and the second one the process.
void catch_interrupt(QSFEngine* engine) {
  g_running.store(engine);
  on_interrupt(Interrupts::kFirst, cancel_running);
}

// What the token callback needs.
struct Stream {
  TextOutput* output;
  ProgressLine* progress;
  QSFEngine* engine;
  bool live = false;  // a line about the generation has a terminal for itself
  int n_tokens = 0;
  std::FILE* log_probs = nullptr;  // of --logprobs
};

// Writes a line of --logprobs. Returns 0: the text goes on.
int write_log_probs(const qsf_generated_token* token, void* user_data) {
  const auto& stream = *static_cast<const Stream*>(user_data);
  if (token->is_rest) return 0;
  std::fprintf(stream.log_probs, "%d\t%.6f", token->token, static_cast<double>(token->log_prob));
  for (int i = 0; i < token->n_top; ++i) {
    std::fprintf(stream.log_probs, "\t%d\t%.6f", token->top[i].token,
                 static_cast<double>(token->top[i].log_prob));
  }
  std::fputc('\n', stream.log_probs);
  return 0;
}

// Ends the file of --logprobs. Returns the error of writing it, if any, in `error`.
qsf_code close_log_probs(const std::string& path, std::FILE* file, qsf_error& error) {
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) == 0 && !failed) return QSF_OK;
  std::snprintf(error.message, sizeof error.message, "--logprobs: %s: cannot be written",
                path.c_str());
  return error.code = QSF_IO;
}

void write_token(int, const char* text, void* user_data) {
  auto& stream = *static_cast<Stream*>(user_data);
  if (!stream.live) stream.progress->clear();
  if (!stream.output->write(text)) qsf_engine_cancel(stream.engine);
  ++stream.n_tokens;
  if (!stream.live || !stream.progress->due()) return;
  stream.progress->show("generated " + std::to_string(stream.n_tokens) + " tokens" +
                        memory_now(stream.engine));
}

void show_prompt_progress(std::uint64_t done, std::uint64_t total, void* user_data) {
  const auto& stream = *static_cast<const Stream*>(user_data);
  if (total == 0 || !stream.progress->due()) return;
  stream.progress->show("computing the prompt: " + std::to_string(done * 100 / total) + " %" +
                        memory_now(stream.engine));
}

qsf_code generate(QSFEngine* engine, QSFGrammar* grammar, QSFSession* session,
                  const RunOptions& options, const std::string& prompt, std::uint64_t seed,
                  TextOutput& output, qsf_generate_result& result, qsf_error& error) {
  const qsf_sampling sampling = make_sampling(options, grammar, seed);
  std::vector<const char*> stops;
  for (const std::string& stop : options.stop) stops.push_back(stop.c_str());
  ProgressLine progress(program_name(), !options.quiet);
  Stream stream{.output = &output, .progress = &progress, .engine = engine};
  stream.live = is_terminal(StandardStream::kError) && !is_terminal(StandardStream::kOutput);
  qsf_generate_options request;
  qsf_generate_options_init(&request);
  request.prompt = prompt.data();
  request.prompt_bytes = prompt.size();
  request.max_tokens = options.max_tokens.value_or(request.max_tokens);
  request.sampling = &sampling;
  request.stop = stops.data();
  request.n_stop = stops.size();
  request.on_token = write_token;
  request.user_data = &stream;
  request.echo_prompt = options.no_echo ? 0 : 1;
  request.on_prompt = show_prompt_progress;
  if (options.log_probs.empty()) return qsf_session_generate(session, &request, &result, &error);

  stream.log_probs = std::fopen(options.log_probs.c_str(), "w");
  if (stream.log_probs == nullptr) {
    std::snprintf(error.message, sizeof error.message, "--logprobs: %s: %s",
                  options.log_probs.c_str(), std::strerror(errno));
    return error.code = QSF_IO;
  }
  request.on_generated = write_log_probs;
  request.log_probs = 1;
  request.n_top_log_probs = options.n_top_log_probs;
  const qsf_code code = qsf_session_generate(session, &request, &result, &error);
  qsf_error written = {};
  if (close_log_probs(options.log_probs, stream.log_probs, written) == QSF_OK || code != QSF_OK) {
    return code;
  }
  error = written;
  return error.code;
}

// Returns the prompt, or nothing with the reason in `error`.
std::optional<std::string> read_prompt(const RunOptions& options, std::string& error) {
  if (options.prompt) return options.prompt;
  if (options.prompt_file.empty()) return options.session_load.empty() ? kBundledPrompt : "";
  const std::size_t budget_bytes = static_cast<std::size_t>(options.engine.ram_budget_bytes);
  const std::size_t max_bytes =
      options.engine.ram_budget_bytes == 0
          ? kMaxPromptBytes
          : std::min(kMaxPromptBytes, budget_bytes / kBudgetOfPromptBytes);
  return read_text(options.prompt_file, max_bytes, error);
}

// Refuses, before the prompt is shown, what only the model can tell to be wrong.
qsf_code check_request(QSFEngine* engine, const RunOptions& options, const std::string& prompt,
                       std::size_t n_held, qsf_error& error) {
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  qsf_code code = qsf_engine_model_info(engine, &info, &error);
  if (code != QSF_OK) return code;
  code = check_logit_bias(options, engine, error);
  if (code != QSF_OK) return code;
  if (options.engine.ram_budget_bytes != 0 &&
      prompt.size() / kMaxBytesOfPosition > static_cast<std::size_t>(info.context)) {
    std::snprintf(error.message, sizeof error.message,
                  "the prompt has %zu bytes, the context holds %d tokens", prompt.size(),
                  info.context);
    return error.code = QSF_OUT_OF_BUDGET;
  }
  std::size_t n_tokens = 0;
  code = qsf_engine_tokenize(engine, prompt.data(), prompt.size(),
                             n_held == 0 ? QSF_TOKENIZE_DEFAULT : QSF_TOKENIZE_NO_BOS, nullptr, 0,
                             &n_tokens, &error);
  if (code != QSF_OK) return code;
  if (n_tokens + n_held <= static_cast<std::size_t>(info.context)) return QSF_OK;
  const std::string held =
      n_held == 0 ? "" : " after " + std::to_string(n_held) + " of the session";
  std::snprintf(error.message, sizeof error.message,
                "prompt: %zu tokens%s, the context holds %d; shorten it or raise --max-seq-len "
                "(the model was trained for %d)",
                n_tokens, held.c_str(), info.context, info.trained_context);
  return error.code = QSF_OUT_OF_BUDGET;
}

// Completes one prompt.
int complete(const RunOptions& options, QSFEngine* engine, QSFGrammar* grammar,
             const std::string& prompt) {
  qsf_error error = {};
  SessionPtr session;
  const Stopwatch watch;
  qsf_code code = open_session(options, engine, session, error);
  const double load_seconds = watch.seconds();
  const std::size_t n_held = qsf_session_length(session.get());
  if (code == QSF_OK) code = check_request(engine, options, prompt, n_held, error);
  if (code != QSF_OK) return report(error);
  if (!options.session_load.empty()) tell_loaded(options, n_held, load_seconds);
  catch_interrupt(engine);
  TextOutput output;
  const std::uint64_t seed = options.seed.value_or(std::random_device{}());
  qsf_generate_result result = {};
  result.struct_size = sizeof result;
  code = generate(engine, grammar, session.get(), options, prompt, seed, output, result, error);
  if (result.reason == QSF_STOP_CANCELLED) {
    output.end_interrupted_line();
  } else {
    output.end_line();
  }
  g_running.store(nullptr);
  if (code != QSF_OK) return report(error);
  if (save_session(options, session.get(), error) != QSF_OK) return report(error);
  if (output.reader_left()) return kSuccess;
  if (output.failed()) {
    print_error(program_name(), std::string("standard output: ") + output.reason());
    return kFailure;
  }
  if (!options.quiet) print_summary(engine, result, seed);
  if (options.verbose) print_times(engine, result);
  return kSuccess;
}

int run(RunOptions options) {
  std::string problem = options.model ? check_model_path(*options.model) : "";
  std::string& draft = options.engine.draft;
  if (problem.empty() && !draft.empty()) problem = check_model_path(draft);
  std::optional<std::string> prompt;
  const bool completes = !options.interactive && !options.bench;
  if (problem.empty() && completes) prompt = read_prompt(options, problem);
  std::optional<std::string> model = options.model ? options.model : find_bundled_model(problem);
  if (problem.empty()) problem = check_session_path(options);
  if (problem.empty() && needs_conversion(*model)) {
    model = converted_model(*model, options.i2s_layout, options.quiet, problem, options.cache);
  }
  if (problem.empty() && !draft.empty() && needs_conversion(draft)) {
    draft = converted_model(draft, options.i2s_layout, options.quiet, problem, options.cache)
                .value_or(draft);
  }
  if (!problem.empty()) {
    print_error(program_name(), problem);
    return kFailure;
  }

  qsf_error error = {};
  EnginePtr engine;
  if (open_engine(options, *model, engine, error) != QSF_OK) {
    const int code = report(error);
    if (error.code == QSF_CORRUPT && options.model && *model != *options.model) {
      print_error(program_name(),
                  "remove " + *model + ": the next run converts " + *options.model + " again");
    }
    return code;
  }
  if (options.verbose) print_plan(engine.get());
  if (options.bench) return run_bench(engine.get());
  GrammarPtr grammar;
  if (make_grammar(options, engine.get(), grammar, error) != QSF_OK) return report(error);
  return options.interactive ? run_chat(options, engine.get(), grammar.get(), *model)
                             : complete(options, engine.get(), grammar.get(), *prompt);
}

int parse_and_run(RunCommand command, int argc, char** argv) {
  share_one_heap();
  ignore_write_signals();
  RunOptions options;
  if (const auto exit_code = parse_run_options(command, argc, argv, options)) return *exit_code;
  return run(std::move(options));
}

}  // namespace

int run_main(int argc, char** argv) {
  return parse_and_run(RunCommand::kRun, argc, argv);
}

int chat_main(int argc, char** argv) {
  return parse_and_run(RunCommand::kChat, argc, argv);
}

}  // namespace qsf_tools
