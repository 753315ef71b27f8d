// SPDX-License-Identifier: MIT
//
// qsf-perplexity: how well a model predicts a text.
//
// The protocol is llama.cpp's, so that numbers can be compared: the text is encoded whole and cut
// into windows of --context tokens, a rest is dropped; where the model begins texts with a BOS
// token, it replaces the first token of each window; each window is computed from an empty context
// and its second half is scored, token context / 2 + 1 to the last.
//
// With --reference a second model computes the same windows, and the distance of the two next-token
// distributions is measured at every scored token. Both run in turns over a number of rows whose
// logits take at most 64 MiB.
//
// With --lines each line of the text is a window of its own. --losses and --kept write files for
// scripts that go further into the result.
//
// With --expert-margin, which concerns generated rows alone, the scored rows are appended one by
// one as generated rows.
//
// Exit code 0 for a result, 1 for a failure, 2 for bad usage.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qsf/qsf.h"
#include "tools/common/engine_options.h"
#include "tools/common/handles.h"
#include "tools/common/model_cache.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/perplexity/logits_compare.h"
#include "tools/perplexity/perplexity_record.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxTextBytes = 2'000'000'000;  // the tokenizer takes texts below 2^31 bytes

// Logits of the reference that are kept at once. Passes of fewer than about 100 rows would read the
// weights too often: this is 500 rows of 32,000 tokens, or 125 of 128,000.
constexpr std::size_t kReferenceBytes = 64U << 20;

struct Options {
  std::string model;
  std::string reference;  // empty: none
  std::string file;
  int context = 512;
  int threads = 0;
  int max_windows = 0;  // 0: all
  bool lines = false;
  std::string losses;  // files; empty: none
  std::string kept;
  KvTypeChoice kv_types;
  KvPolicyChoice kv_policy;
  AttentionChoice attention;
  bool exact = false;
  float quality = 1.0F;  // share of the layers
  int experts = 0;       // that a row takes; 0: the model's
  float expert_margin = 0.0F;
  AdapterChoice adapters;
  RankChoice ranks;
  std::uint64_t ram_budget_bytes = 0;  // 0: the memory that the machine has to spare

  bool generates() const { return expert_margin > 0.0F; }
};

// A mean and its standard error, of numbers added one by one.
class Mean {
 public:
  void add(double value) {
    ++n_;
    sum_ += value;
    sum_of_squares_ += value * value;
  }
  std::size_t count() const { return n_; }
  double value() const { return sum_ / static_cast<double>(n_); }
  double error() const {
    const auto n = static_cast<double>(n_);
    const double variance = sum_of_squares_ / n - value() * value();
    return n_ < 2 || variance <= 0 ? 0.0 : std::sqrt(variance / (n - 1));
  }

 private:
  std::size_t n_ = 0;
  double sum_ = 0.0;
  double sum_of_squares_ = 0.0;
};

// What was measured so far, at each scored token.
struct Scores {
  Mean loss;  // negative log probability, of which the perplexity is the exponential
  Mean reference_loss;
  Mean divergence;
  Mean same_top;  // 1 or 0
};

double perplexity(const Mean& loss) {
  return std::exp(loss.value());
}
// The standard error of the mean loss, carried over to the perplexity.
double perplexity_error(const Mean& loss) {
  return loss.error() * perplexity(loss);
}

int report(const qsf_error& error) {
  print_error(program_name(), error.message);
  return error.code == QSF_INVALID_ARGUMENT ? kUsage : kFailure;
}

void print_warning(qsf_log_level level, const char* line, void*) {
  if (level == QSF_LOG_WARNING) print_error(program_name(), std::string("warning: ") + line);
}

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  constexpr int kMaxInt = 0x7FFFFFFF;
  constexpr const char* kModelGroup = "Model, not reference";
  OptionParser parser(
      "Measures the perplexity of a model on a text: windows of --context tokens, the second half "
      "of each scored (the protocol of llama.cpp).\nThe last line of standard output is \"PPL = x "
      "+/- y\", where y is the standard error.\nWith --expert-margin the scored tokens are "
      "computed one by one, like generated ones.");
  parser.value("MODEL", options.model, "Model file (.qsf)").type_name("").required();
  parser.value("--file", options.file, "Text to measure on; - for standard input")
      .type_name("FILE")
      .required();
  parser
      .value("--reference", options.reference,
             "Model (.qsf) to compare with, usually the same in f16 or f32: prints the mean KL "
             "divergence from it and the top-1 agreement")
      .type_name("FILE");
  parser.value("--context", options.context, "Tokens of a window")
      .integer_in(4, kMaxInt)
      .show_default();
  parser.value("--chunks", options.max_windows, "Windows to measure, at most; default: all")
      .integer_in(1, kMaxInt);
  parser.flag("--lines", options.lines,
              "Each line of the text is a window, of --context tokens at most; its second half is "
              "scored");
  parser
      .value("--losses", options.losses,
             "Write the loss of every scored token to FILE, with --reference its divergence too: a "
             "line of JSON for each window")
      .type_name("FILE");
  parser
      .value("--kept", options.kept,
             "Write the positions that each layer and KV head can still attend to to FILE: a line "
             "of JSON after every 1024 tokens or chunk of --attention h2o; computes each window "
             "twice")
      .type_name("FILE");
  add_threads_option(parser, options.threads);
  add_kv_type_options(parser, options.kv_types);
  add_kv_policy_options(parser, options.kv_policy, kModelGroup);
  add_attention_options(parser, options.attention, kModelGroup);
  add_exact_option(parser, options.exact, kModelGroup);
  add_quality_option(parser, options.quality, kModelGroup);
  add_experts_option(parser, options.experts, kModelGroup);
  add_expert_margin_option(parser, options.expert_margin, kModelGroup);
  add_lora_options(parser, options.adapters, kModelGroup);
  add_rank_options(parser, options.ranks, kModelGroup);
  add_ram_budget_option(parser, options.ram_budget_bytes, kModelGroup,
                        "the process without the reference");
  if (const auto code = parser.parse(argc, argv)) return code;
  std::string problem = check_attention(options.attention);
  if (problem.empty()) problem = check_kv_policy(options.kv_policy);
  if (problem.empty()) problem = check_only_adapter(options.adapters);
  if (problem.empty()) return std::nullopt;
  print_error(program_name(), problem);
  return kUsage;
}

EnginePtr open_engine(const std::string& path, QSFConfig* config, qsf_error& error) {
  qsf_config_set_log_callback(config, print_warning, nullptr);
  QSFEngine* opened = nullptr;
  qsf_engine_open(path.c_str(), config, &opened, &error);
  qsf_config_free(config);
  return EnginePtr(opened);
}

QSFConfig* common_config(const Options& options) {
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, options.threads);
  qsf_config_set_max_seq_len(config, options.context);
  set_kv_types(config, options.kv_types);
  return config;
}

EnginePtr open_model(const Options& options, qsf_error& error) {
  QSFConfig* config = common_config(options);
  set_attention(config, options.attention);
  set_kv_policy(config, options.kv_policy);
  qsf_config_set_exact(config, options.exact ? 1 : 0);
  qsf_config_set_quality(config, options.quality);
  qsf_config_set_experts(config, options.experts, options.expert_margin);
  qsf_config_set_speculation(config, QSF_SPECULATE_OFF, 0);  // nothing is generated
  add_adapters(config, options.adapters);
  use_adapter(config, options.adapters);
  set_ram_budget(config, options.ram_budget_bytes);
  qsf_config_set_ranks(config, options.ranks.window, options.ranks.force ? 1 : 0);
  return open_engine(options.model, config, error);
}

EnginePtr open_reference(const Options& options, qsf_error& error) {
  QSFConfig* config = common_config(options);
  qsf_config_set_exact(config, 1);
  return open_engine(options.reference, config, error);
}

qsf_model_info info_of(QSFEngine* engine) {
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  qsf_engine_model_info(engine, &info, nullptr);
  return info;
}

qsf_code encode(QSFEngine* engine, std::string_view text, std::vector<int>& tokens,
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
  const qsf_model_info info = info_of(engine);
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

std::string progress_text(std::size_t done, std::size_t n_windows, const Mean& loss,
                          std::uint64_t elapsed_ns) {
  char text[128];
  const double left =
      seconds(elapsed_ns) * static_cast<double>(n_windows - done) / static_cast<double>(done);
  std::snprintf(text, sizeof text, "window %zu of %zu: PPL = %.4f, %.0f s left", done, n_windows,
                perplexity(loss), left);
  return text;
}

// The text as windows of tokens.
struct Windows {
  std::vector<int> tokens;
  std::vector<std::size_t> begins;  // of the windows in `tokens`, and the end of the last
  std::size_t longest = 0;

  std::size_t count() const { return begins.size() - 1; }
  std::size_t n_tokens() const { return begins.back() - begins.front(); }
  std::span<const int> window(std::size_t index) const {
    return std::span(tokens).subspan(begins[index], begins[index + 1] - begins[index]);
  }
};

std::size_t first_scored(std::size_t n_tokens) {
  return n_tokens / 2 + 1;
}

qsf_code score_window(QSFEngine* engine, std::span<const int> window, std::vector<double>& losses,
                      qsf_error& error) {
  const std::size_t first = first_scored(window.size());
  losses.resize(window.size() - first);
  const qsf_code code =
      qsf_engine_score(engine, window.data(), window.size(), first, losses.data(), &error);
  for (double& loss : losses) loss = -loss;  // which the engine gives as log probabilities
  return code;
}

qsf_code create_session(QSFEngine* engine, SessionPtr& session, qsf_error& error) {
  QSFSession* created = nullptr;
  const qsf_code code = qsf_session_create(engine, &created, &error);
  session.reset(created);
  return code;
}

// Empties the session and computes the rows in front of those that predict scored tokens.
qsf_code begin_window(QSFSession* session, std::span<const int> window, qsf_error& error) {
  const std::size_t n = first_scored(window.size()) - 1;
  const qsf_code code = qsf_session_truncate(session, 0, &error);
  if (code != QSF_OK || n == 0) return code;
  return qsf_session_prefill(session, window.data(), n, nullptr, &error);
}

// Scores windows whose scored tokens are appended one by one.
class GeneratedScores {
 public:
  qsf_code open(QSFEngine* engine, qsf_error& error) {
    logits_.resize(static_cast<std::size_t>(info_of(engine).n_vocab));
    return create_session(engine, session_, error);
  }

  qsf_code score_window(std::span<const int> window, std::vector<double>& losses,
                        qsf_error& error) {
    losses.clear();
    qsf_code code = begin_window(session_.get(), window, error);
    for (std::size_t i = first_scored(window.size()); i < window.size() && code == QSF_OK; ++i) {
      code = qsf_session_step(session_.get(), window[i - 1], logits_.data(), &error);
      if (code != QSF_OK) break;
      RowLogits row;
      row.add(0, logits_, static_cast<std::size_t>(window[i]));
      losses.push_back(-row.target_log_prob());
    }
    return code;
  }

 private:
  SessionPtr session_;
  std::vector<float> logits_;
};

void add_reference_logits(std::size_t row, int first_token, const float* logits,
                          std::size_t n_logits, void* user_data) {
  static_cast<LogitsComparison*>(user_data)->add_reference(
      row, static_cast<std::size_t>(first_token), {logits, n_logits});
}

void add_model_logits(std::size_t row, int first_token, const float* logits, std::size_t n_logits,
                      void* user_data) {
  static_cast<LogitsComparison*>(user_data)->add_model(row, static_cast<std::size_t>(first_token),
                                                       {logits, n_logits});
}

// Runs model and reference over windows, a number of rows in turns.
class Comparison {
 public:
  // With `generates` the model's rows are appended one by one.
  Comparison(std::size_t n_vocab, std::size_t max_rows, bool generates)
      : logits_(n_vocab,
                std::clamp<std::size_t>(kReferenceBytes / (n_vocab * sizeof(float)), 1, max_rows)),
        generated_(generates ? n_vocab : 0) {}

  qsf_code open(QSFEngine* model, QSFEngine* reference, qsf_error& error) {
    const qsf_code code = create_session(model, model_, error);
    return code == QSF_OK ? create_session(reference, reference_, error) : code;
  }

  // Adds to all but scores.loss.
  qsf_code score_window(std::span<const int> window, TokenScores& scored, Scores& scores,
                        qsf_error& error) {
    const std::size_t first = first_scored(window.size());
    scored.losses.clear();
    scored.divergences.clear();
    // Row i predicts token i + 1: rows from first - 1 on are scored, and the last token is no row.
    for (QSFSession* session : {model_.get(), reference_.get()}) {
      if (const qsf_code code = begin_window(session, window, error); code != QSF_OK) return code;
    }
    for (std::size_t row = first - 1; row + 1 < window.size();) {
      const std::size_t n = std::min(logits_.max_rows(), window.size() - 1 - row);
      logits_.begin(window.subspan(row + 1, n));
      const std::span<const int> tokens = window.subspan(row, n);
      qsf_code code = qsf_session_prefill_logits(reference_.get(), tokens.data(), n,
                                                 add_reference_logits, &logits_, &error);
      if (code == QSF_OK) code = run_model(tokens, error);
      if (code != QSF_OK) return code;
      for (std::size_t i = 0; i < n; ++i) {
        const RowComparison& compared = logits_.row(i);
        scored.losses.push_back(-compared.log_prob);
        scored.divergences.push_back(compared.divergence);
        add(compared, scores);
      }
      row += n;
    }
    return QSF_OK;
  }

 private:
  qsf_code run_model(std::span<const int> tokens, qsf_error& error) {
    if (generated_.empty()) {
      return qsf_session_prefill_logits(model_.get(), tokens.data(), tokens.size(),
                                        add_model_logits, &logits_, &error);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const qsf_code code = qsf_session_step(model_.get(), tokens[i], generated_.data(), &error);
      if (code != QSF_OK) return code;
      logits_.add_model(i, 0, generated_);
    }
    return QSF_OK;
  }
  static void add(const RowComparison& row, Scores& scores) {
    scores.reference_loss.add(-row.reference_log_prob);
    scores.divergence.add(row.divergence);
    scores.same_top.add(row.same_top ? 1.0 : 0.0);
  }

  LogitsComparison logits_;
  std::vector<float> generated_;  // logits of a row appended alone; empty: none is
  SessionPtr model_;
  SessionPtr reference_;
};

// Computes a window in parts, and writes what is left to see behind each.
qsf_code record_kept(QSFEngine* engine, const Windows& windows, std::size_t index, std::size_t step,
                     LineFile& file, qsf_error& error, std::string& problem) {
  SessionPtr session;
  if (const qsf_code code = create_session(engine, session, error); code != QSF_OK) return code;
  const std::span<const int> window = windows.window(index);
  VisiblePositions visible;
  for (std::size_t done = 0; done < window.size() && problem.empty();) {
    const std::size_t n = std::min(step, window.size() - done);
    qsf_code code = qsf_session_prefill(session.get(), &window[done], n, nullptr, &error);
    if (code == QSF_OK) code = read_visible(session.get(), info_of(engine), visible, error);
    if (code != QSF_OK) return code;
    done += n;
    problem = file.write(visible_line(index, done, visible));
  }
  return QSF_OK;
}

// Scores every window; `reference` may be null. What went wrong with a file is told in `problem`.
qsf_code measure(const Options& options, QSFEngine* engine, QSFEngine* reference,
                 const Windows& windows, Scores& scores, qsf_error& error, std::string& problem) {
  LineFile losses_file;
  LineFile kept_file;
  if (!options.losses.empty()) problem = losses_file.open(options.losses);
  if (problem.empty() && !options.kept.empty()) problem = kept_file.open(options.kept);
  ProgressLine progress(program_name(), true);
  const std::uint64_t start = now_ns();
  std::optional<Comparison> comparison;
  std::optional<GeneratedScores> generated;
  qsf_code code = QSF_OK;
  if (reference != nullptr) {
    comparison.emplace(static_cast<std::size_t>(info_of(engine).n_vocab),
                       windows.longest - first_scored(windows.longest), options.generates());
    code = comparison->open(engine, reference, error);
  } else if (options.generates()) {
    code = generated.emplace().open(engine, error);
  }
  const std::size_t step =
      options.attention.is_h2o() ? static_cast<std::size_t>(options.attention.h2o().chunk) : 1024;
  TokenScores scored;
  for (std::size_t i = 0; i < windows.count() && code == QSF_OK && problem.empty(); ++i) {
    const std::span<const int> window = windows.window(i);
    if (comparison) {
      code = comparison->score_window(window, scored, scores, error);
    } else if (generated) {
      code = generated->score_window(window, scored.losses, error);
    } else {
      code = score_window(engine, window, scored.losses, error);
    }
    if (code != QSF_OK) break;
    for (const double loss : scored.losses) scores.loss.add(loss);
    if (losses_file.is_open()) {
      problem = losses_file.write(losses_line(i, window, first_scored(window.size()), scored));
    }
    if (problem.empty() && kept_file.is_open()) {
      code = record_kept(engine, windows, i, step, kept_file, error, problem);
    }
    if (progress.due()) {
      progress.show(progress_text(i + 1, windows.count(), scores.loss, now_ns() - start));
    }
  }
  for (LineFile* const file : {&losses_file, &kept_file}) {
    const std::string unwritten = file->close();
    if (problem.empty()) problem = unwritten;
  }
  return code;
}

// Encodes the text whole or, with --lines, line by line; lines are windows then.
qsf_code encode_windows(const Options& options, QSFEngine* engine, const std::string& text,
                        Windows& windows, qsf_error& error) {
  if (!options.lines) return encode(engine, text, windows.tokens, error);
  windows.begins = {0};
  std::vector<int> tokens;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (const qsf_code code = encode(engine, line, tokens, error); code != QSF_OK) return code;
    windows.tokens.insert(windows.tokens.end(), tokens.begin(), tokens.end());
    windows.begins.push_back(windows.tokens.size());
    at = end + 1;
  }
  return QSF_OK;
}

// Says what makes a comparison meaningless: other tokens, or other ids for the same text.
std::string find_mismatch(const Options& options, QSFEngine* engine, QSFEngine* reference,
                          const std::string& text, const Windows& windows) {
  const int n_vocab = info_of(engine).n_vocab;
  const int n_reference = info_of(reference).n_vocab;
  if (n_vocab != n_reference) {
    return "a vocabulary of " + std::to_string(n_reference) + " tokens, the model has " +
           std::to_string(n_vocab) + "; only models of one vocabulary can be compared";
  }
  Windows others;
  qsf_error error = {};
  if (encode_windows(options, reference, text, others, error) != QSF_OK) return error.message;
  if (others.tokens == windows.tokens && others.begins == windows.begins &&
      leading_token(engine) == leading_token(reference))
    return {};
  return "it encodes the text to other tokens than the model; only models of one tokenizer can be "
         "compared";
}

// Cuts a text that was encoded whole; the first token of each window becomes `leading` unless that
// is -1.
void cut_into_windows(const Options& options, Windows& windows, int leading) {
  const auto context = static_cast<std::size_t>(options.context);
  windows.begins = {0};
  while (windows.begins.back() + context <= windows.tokens.size()) {
    if (leading >= 0) windows.tokens[windows.begins.back()] = leading;
    windows.begins.push_back(windows.begins.back() + context);
  }
}

// Returns what is wrong with the windows; empty: nothing.
std::string check_windows(const Options& options, Windows& windows) {
  const std::string context = std::to_string(options.context);
  if (windows.count() == 0) {
    return options.file + ": " + std::to_string(windows.tokens.size()) +
           " tokens, expected at least one window of " + context +
           "; give a longer text or a smaller --context";
  }
  for (std::size_t i = 0; i < windows.count(); ++i) {
    const std::size_t n = windows.window(i).size();
    windows.longest = std::max(windows.longest, n);
    if (n >= 4 && n <= static_cast<std::size_t>(options.context)) continue;
    return options.file + ": line " + std::to_string(i + 1) + " has " + std::to_string(n) +
           " tokens, expected 4 to --context " + context;
  }
  if (options.max_windows > 0) {
    const std::size_t n = std::min(windows.count(), static_cast<std::size_t>(options.max_windows));
    windows.begins.resize(n + 1);
  }
  return {};
}

void print_scores(const Windows& windows, const Scores& scores, std::uint64_t elapsed_ns) {
  std::printf("%zu windows of %zu tokens%s, %zu tokens scored\n", windows.count(), windows.longest,
              windows.n_tokens() == windows.count() * windows.longest ? "" : " at most",
              scores.loss.count());
  std::printf("%.1f tokens/s\n", per_second(windows.n_tokens(), elapsed_ns));
  if (scores.divergence.count() > 0) {
    std::printf("reference PPL = %.4f +/- %.4f\n", perplexity(scores.reference_loss),
                perplexity_error(scores.reference_loss));
    std::printf("mean KLD = %.6f +/- %.6f\n", scores.divergence.value(), scores.divergence.error());
    std::printf("top-1 agreement = %.3f %% +/- %.3f %%\n", 100.0 * scores.same_top.value(),
                100.0 * scores.same_top.error());
  }
  std::printf("PPL = %.4f +/- %.4f\n", perplexity(scores.loss), perplexity_error(scores.loss));
}

std::string find_non_finite(const Options& options, const Scores& scores) {
  const auto finite = [](const Mean& loss) {
    return std::isfinite(perplexity(loss)) && std::isfinite(perplexity_error(loss));
  };
  const bool compared = scores.divergence.count() > 0;
  const bool reference = compared && !finite(scores.reference_loss);
  if (finite(scores.loss) && !reference) return {};
  return (reference ? options.reference : options.model) +
         ": the perplexity is no finite number, since the model's logits are not finite; its "
         "weights or its configuration are damaged";
}

int run(const Options& options) {
  std::string problem = check_model_path(options.model);
  if (problem.empty() && !options.reference.empty()) problem = check_model_path(options.reference);
  if (!problem.empty()) {
    print_error(program_name(), problem);
    return kFailure;
  }
  std::optional<std::string> text = read_text(options.file, kMaxTextBytes, problem);
  if (!text) {
    print_error(program_name(), problem);
    return kFailure;
  }
  qsf_error error = {};
  const EnginePtr engine = open_model(options, error);
  if (engine == nullptr) return report(error);
  EnginePtr reference;
  Windows windows;
  if (encode_windows(options, engine.get(), *text, windows, error) != QSF_OK) return report(error);
  if (!options.reference.empty()) {
    reference = open_reference(options, error);
    if (reference == nullptr) return report(error);
    problem = find_mismatch(options, engine.get(), reference.get(), *text, windows);
    if (!problem.empty()) {
      print_error(program_name(), options.reference + ": " + problem);
      return kFailure;
    }
  }
  text.reset();
  if (!options.lines) cut_into_windows(options, windows, leading_token(engine.get()));
  problem = check_windows(options, windows);
  if (!problem.empty()) {
    print_error(program_name(), problem);
    return kFailure;
  }
  Scores scores;
  const std::uint64_t start = now_ns();
  if (measure(options, engine.get(), reference.get(), windows, scores, error, problem) != QSF_OK) {
    return report(error);
  }
  const std::uint64_t elapsed_ns = now_ns() - start;
  if (problem.empty()) problem = find_non_finite(options, scores);
  if (!problem.empty()) {
    print_error(program_name(), problem);
    return kFailure;
  }
  print_scores(windows, scores, elapsed_ns);
  if (std::fflush(stdout) != 0) {
    print_error(program_name(), "standard output: cannot write the result");
    return kFailure;
  }
  return kSuccess;
}

}  // namespace

int perplexity_main(int argc, char** argv) {
  Options options;
  if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
  return run(options);
}

}  // namespace qsf_tools
