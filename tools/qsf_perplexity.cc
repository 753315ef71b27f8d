// SPDX-License-Identifier: MIT
//
// qsf-perplexity: how well a model predicts a text.
//
// The protocol is llama.cpp's, so that numbers can be compared: the text is encoded whole and cut
// into windows of --context tokens, a rest is dropped; where the model begins texts with a BOS
// token, it replaces the first token of each window; each window is computed from an empty context
// and its second half is scored, token context / 2 + 1 to the last.
//
// Exit code 0 for a result, 1 for a failure, 2 for bad usage.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "qsf/qsf.h"
#include "tool_support.h"

namespace qsf_tools {
namespace {

constexpr const char* kTool = "qsf-perplexity";
constexpr std::size_t kMaxTextBytes = 2'000'000'000;  // the tokenizer takes texts below 2^31 bytes

struct Options {
  std::string model;
  std::string file;
  int context = 512;
  int threads = 0;
  int max_windows = 0;  // 0: all
  std::string kv_type = "f16";
};

struct EngineFree {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
};
using EnginePtr = std::unique_ptr<QSFEngine, EngineFree>;

// Negative log probabilities so far.
struct Losses {
  std::size_t n_tokens = 0;
  double sum = 0.0;
  double sum_of_squares = 0.0;

  void add(double loss) {
    ++n_tokens;
    sum += loss;
    sum_of_squares += loss * loss;
  }
  double perplexity() const { return std::exp(sum / static_cast<double>(n_tokens)); }
  // Standard error of the mean loss, carried over to the perplexity.
  double perplexity_error() const {
    const auto n = static_cast<double>(n_tokens);
    const double mean = sum / n;
    const double variance = sum_of_squares / n - mean * mean;
    return n_tokens < 2 || variance <= 0 ? 0.0 : std::sqrt(variance / (n - 1)) * perplexity();
  }
};

int report(const qsf_error& error) {
  print_error(kTool, error.message);
  return error.code == QSF_INVALID_ARGUMENT ? kUsage : kFailure;
}

void print_warning(qsf_log_level level, const char* line, void*) {
  if (level == QSF_LOG_WARNING) print_error(kTool, std::string("warning: ") + line);
}

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  constexpr int kMaxInt = 0x7FFFFFFF;
  CLI::App app(
      "Measures the perplexity of a model on a text: windows of --context tokens, the second half "
      "of each scored (llama.cpp's protocol).\nThe last line of standard output is \"PPL = x +/- "
      "y\", y being the standard error.",
      kTool);
  app.set_version_flag("--version", std::string(kTool) + " " + qsf_version());
  app.add_option("MODEL", options.model, "Model file (.qsf)")->type_name("")->required();
  app.add_option("--file", options.file, "Text to measure on; - for standard input")
      ->type_name("FILE")
      ->required();
  app.add_option("--context", options.context, "Tokens of a window")
      ->type_name("N")
      ->check(integer_in(4, kMaxInt))
      ->capture_default_str();
  app.add_option("--chunks", options.max_windows, "Windows to measure at most; by default all")
      ->type_name("N")
      ->check(integer_in(1, kMaxInt));
  app.add_option("--threads", options.threads, "Threads; by default one for each physical core")
      ->type_name("N")
      ->check(integer_in(1, 1024));
  app.add_option("--kv-type", options.kv_type, "How keys and values are stored: f16 or f32")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  return parse_command_line(app, argc, argv);
}

qsf_code open_engine(const Options& options, EnginePtr& engine, qsf_error& error) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, options.threads);
  qsf_config_set_max_seq_len(config, options.context);
  qsf_config_set_kv_type(config, options.kv_type == "f32" ? QSF_KV_F32 : QSF_KV_F16);
  qsf_config_set_log_callback(config, print_warning, nullptr);
  QSFEngine* opened = nullptr;
  const qsf_code code = qsf_engine_open(options.model.c_str(), config, &opened, &error);
  engine.reset(opened);
  qsf_config_free(config);
  return code;
}

qsf_code encode(QSFEngine* engine, const std::string& text, std::vector<int>& tokens,
                qsf_error& error) {
  std::size_t n_tokens = 0;
  // A token is at least a byte of text, but for those put around it.
  tokens.resize(text.size() + 16);
  const qsf_code code = qsf_engine_tokenize(engine, text.data(), text.size(), QSF_TOKENIZE_DEFAULT,
                                            tokens.data(), tokens.size(), &n_tokens, &error);
  tokens.resize(std::min(n_tokens, tokens.size()));
  tokens.shrink_to_fit();
  return code;
}

// Returns the token that the model puts in front of every text, -1 when it puts none there.
int leading_token(QSFEngine* engine) {
  int token = -1;
  std::size_t n_tokens = 0;
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  qsf_engine_model_info(engine, &info, nullptr);
  int tokens[8];
  const qsf_code code =
      qsf_engine_tokenize(engine, "", 0, QSF_TOKENIZE_DEFAULT, tokens, 8, &n_tokens, nullptr);
  if (code == QSF_OK && n_tokens > 0 && tokens[0] == info.bos_token) token = tokens[0];
  return token;
}

std::uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

std::string progress_text(std::size_t done, std::size_t n_windows, const Losses& losses,
                          std::uint64_t elapsed_ns) {
  char text[128];
  const double left =
      seconds(elapsed_ns) * static_cast<double>(n_windows - done) / static_cast<double>(done);
  std::snprintf(text, sizeof text, "window %zu of %zu: PPL = %.4f, %.0f s left", done, n_windows,
                losses.perplexity(), left);
  return text;
}

// Scores the windows of `tokens`, whose first tokens it overwrites with `leading` unless that is
// -1.
qsf_code measure(QSFEngine* engine, std::vector<int>& tokens, std::size_t context,
                 std::size_t n_windows, int leading, Losses& losses, qsf_error& error) {
  ProgressLine progress(kTool, true);
  const std::uint64_t start = now_ns();
  const std::size_t first = context / 2 + 1;
  std::vector<double> log_probs(context - first);
  for (std::size_t i = 0; i < n_windows; ++i) {
    int* const window = tokens.data() + i * context;
    if (leading >= 0) window[0] = leading;
    const qsf_code code =
        qsf_engine_score(engine, window, context, first, log_probs.data(), &error);
    if (code != QSF_OK) return code;
    for (const double log_prob : log_probs) losses.add(-log_prob);
    if (progress.due()) {
      progress.show(progress_text(i + 1, n_windows, losses, now_ns() - start));
    }
  }
  return QSF_OK;
}

int run(const Options& options) {
  std::string problem;
  std::optional<std::string> text = read_text(options.file, kMaxTextBytes, problem);
  if (!text) {
    print_error(kTool, problem);
    return kFailure;
  }
  qsf_error error = {};
  EnginePtr engine;
  if (open_engine(options, engine, error) != QSF_OK) return report(error);
  std::vector<int> tokens;
  if (encode(engine.get(), *text, tokens, error) != QSF_OK) return report(error);
  text.reset();

  const auto context = static_cast<std::size_t>(options.context);
  std::size_t n_windows = tokens.size() / context;
  if (n_windows == 0) {
    print_error(kTool, options.file + ": " + std::to_string(tokens.size()) +
                           " tokens, expected at least one window of " + std::to_string(context) +
                           "; give a longer text or a smaller --context");
    return kFailure;
  }
  if (options.max_windows > 0) {
    n_windows = std::min(n_windows, static_cast<std::size_t>(options.max_windows));
  }

  Losses losses;
  const std::uint64_t start = now_ns();
  const qsf_code code =
      measure(engine.get(), tokens, context, n_windows, leading_token(engine.get()), losses, error);
  if (code != QSF_OK) return report(error);
  const std::uint64_t elapsed_ns = now_ns() - start;
  if (!std::isfinite(losses.perplexity()) || !std::isfinite(losses.perplexity_error())) {
    print_error(kTool, options.model + ": the perplexity is no finite number, since the model's " +
                           "logits are not finite; its weights or its configuration are damaged");
    return kFailure;
  }
  std::printf("%zu windows of %zu tokens, %zu tokens scored\n", n_windows, context,
              losses.n_tokens);
  std::printf("%.1f tokens/s\n", per_second(n_windows * context, elapsed_ns));
  std::printf("PPL = %.4f +/- %.4f\n", losses.perplexity(), losses.perplexity_error());
  if (std::fflush(stdout) != 0) {
    print_error(kTool, "standard output: cannot write the result");
    return kFailure;
  }
  return kSuccess;
}

}  // namespace
}  // namespace qsf_tools

int main(int argc, char** argv) {
  qsf_tools::open_standard_streams();
  qsf_tools::Options options;
  if (const auto exit_code = qsf_tools::parse_options(argc, argv, options)) return *exit_code;
  return qsf_tools::run(options);
}
