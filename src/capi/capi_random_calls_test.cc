// SPDX-License-Identifier: MIT
//
// Random sequences of calls of the C interface: sessions, forks, generations that step together and
// are parked, samplers, files, cancellations and frees in any order, from callbacks too. Every call
// must return a code that the header names for it, with a message where it failed, and leave
// sessions as long as it says. Leaks and reads of freed memory are the sanitizers' to find.
//
// Usage: capi_random_calls_test MODEL.qsf [CALLS [SEED]]
//
// `./check long capi-calls` makes a million calls under AddressSanitizer.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "qsf/qsf.h"

namespace {

constexpr int kMaxSessions = 4;
constexpr int kContext = 96;
constexpr int kCallsPerEngine = 4000;

struct Session {
  QSFSession* handle = nullptr;
};
struct Generation {
  QSFGeneration* handle = nullptr;
  QSFSession* session = nullptr;  // null: freed, and lives as long as this
};

[[noreturn]] void fail(std::uint64_t n_calls, const char* what, const std::string& detail) {
  std::fprintf(stderr, "call %llu: %s: %s\n", static_cast<unsigned long long>(n_calls), what,
               detail.c_str());
  std::abort();
}

class RandomCalls {
 public:
  RandomCalls(std::string model, std::uint64_t seed)
      : model_(std::move(model)),
        path_((std::filesystem::temp_directory_path() /
               ("capi_random_calls." + std::to_string(::getpid()) + ".session"))
                  .string()),
        state_(seed * 2 + 1) {}
  RandomCalls(const RandomCalls&) = delete;
  RandomCalls& operator=(const RandomCalls&) = delete;
  ~RandomCalls() { std::remove(path_.c_str()); }

  // Makes `n` calls, with a new engine now and then.
  void run(std::uint64_t n) {
    while (n_calls_ < n) {
      open();
      const std::uint64_t end = std::min(n, n_calls_ + kCallsPerEngine);
      while (n_calls_ < end) call();
      close();
    }
  }
  std::uint64_t n_calls() const { return n_calls_; }
  std::uint64_t n_done() const { return n_done_; }
  std::uint64_t n_refused() const { return n_refused_; }
  std::uint64_t n_tokens() const { return n_tokens_; }
  std::uint64_t n_in_callbacks() const { return n_in_callbacks_; }
  std::uint64_t n_prefix_hits() const { return n_prefix_hits_; }

 private:
  std::uint32_t below(std::uint32_t n) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>((state_ >> 33) % n);
  }
  bool once_in(std::uint32_t n) { return below(n) == 0; }

  void open() {
    QSFConfig* const config = qsf_config_default();
    qsf_config_set_threads(config, 1);
    qsf_config_set_max_seq_len(config, kContext);
    qsf_config_set_max_sessions(config, kMaxSessions);
    if (once_in(2)) qsf_config_set_rows_per_pass(config, 1 + static_cast<int>(below(8)));
    if (once_in(3)) qsf_config_set_kv_positions(config, kContext + 64);
    if (once_in(4)) qsf_config_set_kv_type(config, QSF_KV_8BIT);
    const bool window = once_in(4);
    if (window) qsf_config_set_kv_policy(config, QSF_KV_POLICY_WINDOW, 20, 4, 0);
    has_prefix_cache_ = !window && once_in(2);
    qsf_config_set_prefix_cache(config, has_prefix_cache_ ? 1 : 0);
    qsf_config_set_reuse_answers(config, has_prefix_cache_ && once_in(3) ? 1 : 0);
    check(qsf_engine_open(model_.c_str(), config, &engine_, &error_), "qsf_engine_open", {QSF_OK});
    qsf_config_free(config);
    qsf_model_info info = {};
    info.struct_size = sizeof info;
    check(qsf_engine_model_info(engine_, &info, &error_), "qsf_engine_model_info", {QSF_OK});
    n_vocab_ = info.n_vocab;
    hidden_size_ = info.hidden_size;
    logits_.resize(static_cast<std::size_t>(n_vocab_));
  }

  qsf_prefix_stats prefix_stats() {
    qsf_prefix_stats stats = {};
    stats.struct_size = sizeof stats;
    check(qsf_engine_prefix_stats(engine_, &stats, &error_), "qsf_engine_prefix_stats", {QSF_OK});
    if (stats.idle_pages > stats.pages || stats.entries > stats.pages) {
      fail(n_calls_, "qsf_engine_prefix_stats", "parts of more than all");
    }
    return stats;
  }

  // In a random order where the header allows any.
  void close() {
    const bool generations_first = once_in(2);
    if (generations_first) free_generations();
    while (!sessions_.empty()) free_session(below(static_cast<std::uint32_t>(sessions_.size())));
    free_generations();
    for (QSFSampler* const sampler : samplers_) qsf_sampler_free(sampler);
    samplers_.clear();
    for (; n_parked_ > 0; --n_parked_) {
      if (std::filesystem::exists(park_path(n_parked_))) {
        fail(n_calls_, "a file of a parked generation is left", park_path(n_parked_));
      }
    }
    const qsf_prefix_stats stats = prefix_stats();
    if (stats.idle_pages != stats.pages) {
      fail(n_calls_, "qsf_engine_prefix_stats", "a page is held by no one and not idle");
    }
    n_prefix_hits_ += stats.hits;
    qsf_free(engine_);
    engine_ = nullptr;
  }
  void free_generations() {
    for (const Generation& generation : generations_) qsf_generation_free(generation.handle);
    generations_.clear();
  }

  // Checks what a call returned. In a callback, calls that compute or change are refused as well.
  bool check(qsf_code code, const char* what, std::vector<qsf_code> allowed) {
    ++n_calls_;
    if (depth_ > 0) allowed.push_back(QSF_INVALID_ARGUMENT);
    if (std::find(allowed.begin(), allowed.end(), code) == allowed.end()) {
      fail(n_calls_, what, "code " + std::to_string(code) + ": " + error_.message);
    }
    if (error_.code != code || (code == QSF_OK) != (error_.message[0] == '\0')) {
      fail(n_calls_, what, std::string("the error does not fit the code: ") + error_.message);
    }
    ++(code == QSF_OK ? n_done_ : n_refused_);
    return code == QSF_OK;
  }

  QSFSession* any_session() {
    if (sessions_.empty()) return nullptr;
    return sessions_[below(static_cast<std::uint32_t>(sessions_.size()))].handle;
  }

  std::vector<int> tokens() {
    std::vector<int> tokens(below(once_in(8) ? 110 : 12));
    for (int& token : tokens) token = static_cast<int>(below(static_cast<std::uint32_t>(n_vocab_)));
    if (once_in(40) && !tokens.empty()) tokens[0] = once_in(2) ? -1 : n_vocab_;
    return tokens;
  }

  void call() {
    switch (below(24)) {
      case 0:
      case 1: return create_session();
      case 2: return fork();
      case 3: return free_a_session();
      case 4: return prefill();
      case 5: return once_in(2) ? step_session() : step_sessions();
      case 6: return generate();
      case 7: return truncate();
      case 8: return save_or_load();
      case 9:
      case 10: return create_generation();
      case 11: return free_a_generation();
      case 12:
      case 13:
      case 14:
      case 15: return step();
      case 16: return cancel();
      case 17: return read();
      case 18: return sample();
      case 19: return admit();
      case 20: return park();
      case 21:
      case 22: return resume();
      default: return once_in(2) ? score() : embed();
    }
  }

  // A second call from within a callback of the first. Handles that are freed there live on.
  void call_in_callback() {
    if (depth_ > 0 || !once_in(6)) return;
    ++depth_;
    ++n_in_callbacks_;
    const qsf_error kept = error_;
    call();
    error_ = kept;
    --depth_;
  }
  static void on_token(int token, const char* text, void* user) {
    RandomCalls& calls = *static_cast<RandomCalls*>(user);
    if (token < 0 || token >= calls.n_vocab_ || text == nullptr) {
      fail(calls.n_calls_, "on_token", "wrong arguments");
    }
    ++calls.n_tokens_;
    calls.call_in_callback();
  }
  static void on_progress(std::uint64_t done, std::uint64_t total, void* user) {
    RandomCalls& calls = *static_cast<RandomCalls*>(user);
    if (done > total) fail(calls.n_calls_, "on_progress", "more than all");
    calls.call_in_callback();
  }
  static int on_generated(const qsf_generated_token* token, void* user) {
    RandomCalls& calls = *static_cast<RandomCalls*>(user);
    if (token->log_prob > 0.0F || token->n_top > 3 || token->text == nullptr) {
      fail(calls.n_calls_, "on_generated", "wrong arguments");
    }
    calls.call_in_callback();
    return calls.once_in(30) ? 1 : 0;
  }
  static int on_prompt_token(const qsf_generated_token* token, void* user) {
    RandomCalls& calls = *static_cast<RandomCalls*>(user);
    if (token->log_prob > 0.0F || token->n_top > 3 || token->text[0] != '\0') {
      fail(calls.n_calls_, "on_prompt_token", "wrong arguments");
    }
    calls.call_in_callback();
    return calls.once_in(30) ? 1 : 0;
  }
  static int on_mask(std::uint32_t* allowed, std::size_t n_words, void* user) {
    RandomCalls& calls = *static_cast<RandomCalls*>(user);
    if (calls.once_in(50)) return 1;
    allowed[calls.below(static_cast<std::uint32_t>(n_words))] = 0;
    calls.call_in_callback();
    return 0;
  }

  void create_session() {
    QSFSession* session = nullptr;
    if (check(qsf_session_create(engine_, &session, &error_), "qsf_session_create",
              {QSF_OK, QSF_OUT_OF_BUDGET})) {
      sessions_.push_back({session});
    }
  }
  void fork() {
    QSFSession* const from = any_session();
    if (from == nullptr) return;
    QSFSession* session = nullptr;
    const std::size_t length = qsf_session_length(from);
    if (!check(qsf_session_fork(from, &session, &error_), "qsf_session_fork",
               {QSF_OK, QSF_OUT_OF_BUDGET, QSF_INVALID_ARGUMENT})) {
      return;
    }
    if (qsf_session_length(session) != length) fail(n_calls_, "qsf_session_fork", "another length");
    sessions_.push_back({session});
  }
  void free_session(std::size_t i) {
    QSFSession* const session = sessions_[i].handle;
    sessions_.erase(sessions_.begin() + static_cast<std::ptrdiff_t>(i));
    for (Generation& generation : generations_) {
      if (generation.session == session) generation.session = nullptr;
    }
    qsf_session_free(session);
    ++n_calls_;
  }
  void free_a_session() {
    if (sessions_.empty()) return;
    free_session(below(static_cast<std::uint32_t>(sessions_.size())));
  }
  bool generates(const QSFSession* session) const {
    return std::any_of(generations_.begin(), generations_.end(), [session](const Generation& g) {
      return g.session == session && qsf_generation_is_finished(g.handle) == 0;
    });
  }
  // Checks a call that appends `n` tokens to a session, or changes nothing when it fails.
  void check_append(qsf_code code, const char* what, QSFSession* session, std::size_t before,
                    std::size_t n) {
    const bool done =
        check(code, what, {QSF_OK, QSF_OUT_OF_BUDGET, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
    const std::size_t length = qsf_session_length(session);
    // A token generated before may enter the context as well.
    if (done ? length < before + n || length > before + n + 1 : length < before && length != 0) {
      fail(n_calls_, what, "length " + std::to_string(length) + " after " + std::to_string(before));
    }
    if (length > kContext) fail(n_calls_, what, "longer than the context");
    if (done && generates(session)) fail(n_calls_, what, "changed a session that generates");
  }
  void prefill() {
    QSFSession* const session = any_session();
    if (session == nullptr) return;
    const std::vector<int> list = tokens();
    const std::size_t before = qsf_session_length(session);
    const qsf_code code = qsf_session_prefill(session, list.data(), list.size(),
                                              once_in(2) ? logits_.data() : nullptr, &error_);
    check_append(code, "qsf_session_prefill", session, before, list.size());
  }
  void step_session() {
    QSFSession* const session = any_session();
    if (session == nullptr) return;
    const std::size_t before = qsf_session_length(session);
    const int token = static_cast<int>(below(static_cast<std::uint32_t>(n_vocab_)));
    check_append(qsf_session_step(session, token, logits_.data(), &error_), "qsf_session_step",
                 session, before, 1);
  }

  void step_sessions() {
    std::vector<QSFSession*> list;
    std::vector<int> next;
    for (const Session& session : sessions_) {
      if (once_in(3)) continue;
      list.push_back(session.handle);
      next.push_back(static_cast<int>(below(static_cast<std::uint32_t>(n_vocab_))));
    }
    if (once_in(30) && !list.empty()) {
      list.push_back(list[0]);
      next.push_back(0);
    }
    std::vector<float> logits(list.size() * static_cast<std::size_t>(n_vocab_));
    check(qsf_engine_step_sessions(engine_, list.data(), next.data(), list.size(),
                                   once_in(3) ? nullptr : logits.data(), &error_),
          "qsf_engine_step_sessions",
          {QSF_OK, QSF_OUT_OF_BUDGET, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
  }

  // Options that live as long as the call, or the generation that copies them.
  struct Options {
    qsf_sampling sampling;
    qsf_generate_options options;
    std::string prompt;
    std::vector<int> tokens;
  };
  void choose(Options& chosen) {
    qsf_sampling_init(&chosen.sampling);
    chosen.sampling.seed = below(1000);
    chosen.sampling.temperature = once_in(2) ? 0.0F : 0.9F;
    if (once_in(4)) chosen.sampling.frequency_penalty = 0.5F;
    if (once_in(4)) chosen.sampling.dry_multiplier = 0.8F;
    if (once_in(4)) chosen.sampling.xtc_probability = 0.5F;
    if (once_in(4)) chosen.sampling.typical_p = 0.8F;
    if (once_in(6)) chosen.sampling.on_mask = on_mask;
    chosen.sampling.user_data = this;
    if (once_in(40)) chosen.sampling.top_p = 2.0F;  // out of range
    qsf_generate_options_init(&chosen.options);
    chosen.options.sampling = &chosen.sampling;
    chosen.options.max_tokens = static_cast<int>(below(once_in(8) ? 200 : 10));
    chosen.prompt = std::string(below(once_in(8) ? 150 : 12), "ab c"[below(4)]);
    chosen.options.prompt = chosen.prompt.c_str();
    chosen.options.prompt_bytes = chosen.prompt.size();
    const bool is_alike = has_prefix_cache_ && once_in(3);
    if (is_alike || once_in(4)) {
      chosen.tokens = is_alike ? std::vector<int>(65 + below(20), 7) : tokens();
      chosen.options.prompt_tokens = chosen.tokens.data();
      chosen.options.n_prompt_tokens = chosen.tokens.size();
      if (!once_in(20)) {
        chosen.options.prompt = nullptr;
        chosen.options.prompt_bytes = 0;
      }
    }
    chosen.options.ignore_end_of_text = once_in(3) ? 1 : 0;
    chosen.options.keep_special = once_in(3) ? 1 : 0;
    if (once_in(has_prefix_cache_ ? 2 : 40)) {
      chosen.options.prefix_key = "one key";
      chosen.options.prefix_key_bytes = once_in(3) ? 7 : 3;
    }
    chosen.options.on_token = on_token;
    chosen.options.on_prompt = once_in(3) ? on_progress : nullptr;
    if (once_in(3)) {
      chosen.options.on_generated = on_generated;
      chosen.options.log_probs = once_in(2) ? 1 : 0;
      chosen.options.n_top_log_probs = chosen.options.log_probs != 0 ? 3 : 0;
    }
    chosen.options.on_prompt_token = once_in(4) ? on_prompt_token : nullptr;
    chosen.options.report_end = once_in(3) ? 1 : 0;
    chosen.options.reserve_tokens = once_in(3) ? 1 : 0;
    chosen.options.echo_prompt = once_in(4) ? 1 : 0;
    chosen.options.user_data = this;
  }
  void generate() {
    QSFSession* const session = any_session();
    if (session == nullptr) return;
    Options chosen;
    choose(chosen);
    qsf_generate_result result = {};
    result.struct_size = sizeof result;
    const std::vector<qsf_code> codes = {QSF_OK, QSF_OUT_OF_BUDGET, QSF_INVALID_ARGUMENT,
                                         QSF_CANCELLED};
    if (once_in(3)) {
      const qsf_code code = qsf_engine_generate(engine_, &chosen.options, &result, &error_);
      check(code, "qsf_engine_generate", codes);
    } else {
      const qsf_code code = qsf_session_generate(session, &chosen.options, &result, &error_);
      check(code, "qsf_session_generate", codes);
    }
  }
  void truncate() {
    QSFSession* const session = any_session();
    if (session == nullptr) return;
    const std::size_t before = qsf_session_length(session);
    const std::size_t n = once_in(10) ? before + 1 : below(static_cast<std::uint32_t>(before) + 1);
    const bool done = check(qsf_session_truncate(session, n, &error_), "qsf_session_truncate",
                            {QSF_OK, QSF_INVALID_ARGUMENT});
    if (qsf_session_length(session) != (done ? n : before)) {
      fail(n_calls_, "qsf_session_truncate", "another length");
    }
  }
  void save_or_load() {
    QSFSession* const session = any_session();
    if (session == nullptr) return;
    if (once_in(2)) {
      saved_ = check(qsf_session_save(session, path_.c_str(), &error_), "qsf_session_save",
                     {QSF_OK, QSF_INVALID_ARGUMENT, QSF_CANCELLED, QSF_OUT_OF_BUDGET}) ||
               saved_;
      return;
    }
    check(qsf_session_load(session, path_.c_str(), &error_), "qsf_session_load",
          {QSF_OK, QSF_INVALID_ARGUMENT, QSF_NOT_FOUND, QSF_OUT_OF_BUDGET, QSF_CANCELLED});
  }

  void create_generation() {
    QSFSession* const session = any_session();
    if (session == nullptr) return;
    Options chosen;
    choose(chosen);
    QSFGeneration* generation = nullptr;
    if (check(qsf_generation_create(session, &chosen.options, &generation, &error_),
              "qsf_generation_create", {QSF_OK, QSF_INVALID_ARGUMENT, QSF_OUT_OF_BUDGET})) {
      generations_.push_back({generation, session});
    }
  }
  void free_a_generation() {
    if (generations_.empty()) return;
    const std::size_t i = below(static_cast<std::uint32_t>(generations_.size()));
    QSFGeneration* const generation = generations_[i].handle;
    generations_.erase(generations_.begin() + static_cast<std::ptrdiff_t>(i));
    qsf_generation_free(generation);
    ++n_calls_;
  }
  void step() {
    std::vector<QSFGeneration*> members;
    for (const Generation& generation : generations_) {
      if (!once_in(4)) members.push_back(generation.handle);
    }
    if (once_in(30) && !members.empty()) members.push_back(members[0]);
    if (once_in(60)) members.push_back(nullptr);
    qsf_step_counts counts = {};
    counts.struct_size = sizeof counts;
    qsf_step_options options;
    qsf_step_options_init(&options);
    options.max_prompt_rows = static_cast<int>(below(6));
    const bool done = check(qsf_engine_step_with(engine_, members.data(), members.size(),
                                                 once_in(2) ? nullptr : &options, &counts, &error_),
                            "qsf_engine_step_with", {QSF_OK, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
    if (done && counts.n_finished > static_cast<int>(members.size())) {
      fail(n_calls_, "qsf_engine_step_with", "more finished than members");
    }
    // Ended ones make room, lest all sessions generate for ever.
    if (depth_ == 0 && once_in(2)) drop_finished();
  }
  Generation* any_generation() {
    if (generations_.empty()) return nullptr;
    return &generations_[below(static_cast<std::uint32_t>(generations_.size()))];
  }
  void admit() {
    const Generation* const generation = any_generation();
    if (generation == nullptr) return;
    const bool finished = qsf_generation_is_finished(generation->handle) != 0;
    int admitted = -1;
    const bool done =
        check(qsf_generation_admit(generation->handle, &admitted, &error_), "qsf_generation_admit",
              {QSF_OK, QSF_INVALID_ARGUMENT, QSF_OUT_OF_BUDGET});
    if (admitted != 0 && (!done || finished)) fail(n_calls_, "qsf_generation_admit", "admitted");
    qsf_kv_page_counts pages = {};
    pages.struct_size = sizeof pages;
    check(qsf_engine_kv_pages(engine_, &pages, &error_), "qsf_engine_kv_pages", {QSF_OK});
    if (pages.unreserved_pages > pages.free_pages || pages.free_pages > pages.pages) {
      fail(n_calls_, "qsf_engine_kv_pages", "more than all");
    }
  }
  std::string park_path(std::uint64_t i) const { return path_ + "." + std::to_string(i); }
  void park() {
    const Generation* const generation = any_generation();
    if (generation == nullptr) return;
    const bool parked = qsf_generation_is_parked(generation->handle) != 0;
    const std::size_t before = qsf_session_length(generation->session);
    const bool done =
        check(qsf_generation_park(generation->handle, park_path(++n_parked_).c_str(), &error_),
              "qsf_generation_park", {QSF_OK, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
    if ((qsf_generation_is_parked(generation->handle) != 0) != (done || parked)) {
      fail(n_calls_, "qsf_generation_park", "is parked, or not");
    }
    if (qsf_session_length(generation->session) != before) {
      fail(n_calls_, "qsf_generation_park", "another length");
    }
  }
  void resume() {
    const Generation* const generation = any_generation();
    if (generation == nullptr) return;
    const bool parked = qsf_generation_is_parked(generation->handle) != 0;
    const std::size_t before = qsf_session_length(generation->session);
    int resumed = -1;
    const bool done = check(qsf_generation_resume(generation->handle, &resumed, &error_),
                            "qsf_generation_resume", {QSF_OK, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
    if (resumed != 0 && (!done || !parked)) fail(n_calls_, "qsf_generation_resume", "resumed");
    if (parked != (resumed != 0 || qsf_generation_is_parked(generation->handle) != 0)) {
      fail(n_calls_, "qsf_generation_resume", "is parked, or not");
    }
    if (qsf_session_length(generation->session) != before) {
      fail(n_calls_, "qsf_generation_resume", "another length");
    }
  }
  void drop_finished() {
    for (std::size_t i = generations_.size(); i > 0; --i) {
      QSFGeneration* const generation = generations_[i - 1].handle;
      const bool stands = (qsf_generation_is_waiting(generation) != 0 ||
                           qsf_generation_is_parked(generation) != 0) &&
                          once_in(4);
      if (qsf_generation_is_finished(generation) == 0 && !stands) continue;
      qsf_generation_free(generation);
      generations_.erase(generations_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
  }
  void cancel() {
    ++n_calls_;
    if (once_in(3)) {
      qsf_engine_cancel(engine_);
    } else {
      qsf_session_cancel(any_session());
    }
  }
  void read() {
    QSFSession* const session = any_session();
    if (session != nullptr) {
      std::vector<int> list(below(40));
      std::size_t n = 0;
      check(qsf_session_get_tokens(session, list.data(), list.size(), &n, &error_),
            "qsf_session_get_tokens", {QSF_OK});
      if (n != qsf_session_length(session)) fail(n_calls_, "qsf_session_get_tokens", "number");
    }
    prefix_stats();
    for (const Generation& generation : generations_) {
      qsf_generate_result result = {};
      result.struct_size = sizeof result;
      const bool finished = qsf_generation_is_finished(generation.handle) != 0;
      const bool done = check(qsf_generation_get_result(generation.handle, &result, &error_),
                              "qsf_generation_get_result",
                              {QSF_OK, QSF_INVALID_ARGUMENT, QSF_OUT_OF_BUDGET, QSF_CANCELLED});
      if (done && !finished) fail(n_calls_, "qsf_generation_get_result", "it has not ended");
    }
  }
  void sample() {
    if (samplers_.size() < 3) {
      qsf_sampling sampling;
      qsf_sampling_init(&sampling);
      sampling.dry_multiplier = once_in(2) ? 0.0F : 1.0F;
      sampling.presence_penalty = 0.3F;
      QSFSampler* sampler = nullptr;
      if (check(qsf_sampler_create(engine_, &sampling, &sampler, &error_), "qsf_sampler_create",
                {QSF_OK})) {
        samplers_.push_back(sampler);
      }
      return;
    }
    const std::size_t i = below(static_cast<std::uint32_t>(samplers_.size()));
    QSFSampler* const sampler = samplers_[i];
    if (once_in(6)) {
      samplers_.erase(samplers_.begin() + static_cast<std::ptrdiff_t>(i));
      qsf_sampler_free(sampler);
      ++n_calls_;
      return;
    }
    if (once_in(5)) qsf_sampler_reset(sampler);
    for (float& logit : logits_) logit = static_cast<float>(below(1000)) * 0.01F;
    int token = -1;
    check(qsf_sampler_sample(sampler, logits_.data(), &token, &error_), "qsf_sampler_sample",
          {QSF_OK});
    if (token < 0 || token >= n_vocab_) fail(n_calls_, "qsf_sampler_sample", "no such token");
    check(qsf_sampler_accept(sampler, token, &error_), "qsf_sampler_accept", {QSF_OK});
  }
  void embed() {
    const std::vector<int> list = tokens();
    std::vector<float> embedding(static_cast<std::size_t>(hidden_size_));
    check(qsf_engine_embed(engine_, list.data(), list.size(),
                           once_in(2) ? QSF_POOLING_MEAN : QSF_POOLING_LAST, 1, embedding.data(),
                           &error_),
          "qsf_engine_embed", {QSF_OK, QSF_OUT_OF_BUDGET, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
  }
  void score() {
    const std::vector<int> list = tokens();
    std::vector<double> log_probs(list.empty() ? 1 : list.size());
    check(qsf_engine_score(engine_, list.data(), list.size(), 1, log_probs.data(), &error_),
          "qsf_engine_score", {QSF_OK, QSF_OUT_OF_BUDGET, QSF_INVALID_ARGUMENT, QSF_CANCELLED});
  }

  const std::string model_;
  const std::string path_;
  std::uint64_t state_;
  QSFEngine* engine_ = nullptr;
  int n_vocab_ = 0;
  int hidden_size_ = 0;
  std::vector<Session> sessions_;
  std::vector<Generation> generations_;
  std::vector<QSFSampler*> samplers_;
  std::vector<float> logits_;
  qsf_error error_ = {};
  bool saved_ = false;
  std::uint64_t n_parked_ = 0;  // files that the engine's generations were parked in
  int depth_ = 0;               // of callbacks
  bool has_prefix_cache_ = false;
  std::uint64_t n_calls_ = 0;
  std::uint64_t n_done_ = 0;
  std::uint64_t n_refused_ = 0;
  std::uint64_t n_tokens_ = 0;
  std::uint64_t n_in_callbacks_ = 0;
  std::uint64_t n_prefix_hits_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: capi_random_calls_test MODEL.qsf [CALLS [SEED]]\n");
    return 2;
  }
  const std::uint64_t n_calls = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20000;
  RandomCalls calls(argv[1], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  calls.run(n_calls);
  std::fprintf(stderr,
               "%llu calls, %llu done, %llu refused, %llu tokens, %llu calls in callbacks, %llu "
               "cached prefixes\n",
               static_cast<unsigned long long>(calls.n_calls()),
               static_cast<unsigned long long>(calls.n_done()),
               static_cast<unsigned long long>(calls.n_refused()),
               static_cast<unsigned long long>(calls.n_tokens()),
               static_cast<unsigned long long>(calls.n_in_callbacks()),
               static_cast<unsigned long long>(calls.n_prefix_hits()));
  // Nothing passes because nothing ran.
  const bool ran = calls.n_done() > n_calls / 4 && calls.n_refused() > n_calls / 50 &&
                   calls.n_tokens() > n_calls / 8 && calls.n_in_callbacks() > n_calls / 200 &&
                   calls.n_prefix_hits() > 0;
  return ran ? 0 : 1;
}
