// SPDX-License-Identifier: MIT
//
// Requests: how they come in, wait, are admitted and end. The passes are in scheduler_pass.cc.

#include "tools/serve/schedule/scheduler.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <utility>

#include "tools/common/tool_support.h"
#include "tools/serve/schedule/scheduler_state.h"

namespace qsf_tools {

namespace {

// What a request of a model that is not loaded counts as, until it is made into tokens.
constexpr std::uint64_t kUnknownTokens = 256;
constexpr std::size_t kMaxPrefixKeyBytes = 256;
constexpr int kMostRetrySeconds = 120;
constexpr std::uint64_t kPublishNs = 50'000'000;
constexpr auto kLongestWait = std::chrono::milliseconds(500);

ApiError unavailable(const std::string& message) {
  ApiError error;
  error.status = 503;
  error.message = message;
  error.type = "unavailable_error";
  error.retry_after_seconds = 1;
  return error;
}

// Of texts that cannot be in memory together, whatever else has ended.
ApiError too_large_error() {
  ApiError error;
  error.message =
      "the texts of this request do not fit the KV cache together; ask for fewer, or for less of "
      "each (max_tokens), or start the server with more --kv-positions";
  error.param = "n";
  error.code = "kv_cache_exceeded";
  return error;
}

}  // namespace

ApiError to_api_error(const qsf_error& failed) {
  ApiError error;
  error.message = failed.message;
  if (failed.code == QSF_IO || failed.code == QSF_CORRUPT || failed.code == QSF_INTERNAL) {
    error.status = 500;
    error.type = "server_error";
  }
  return error;
}

Scheduler::Scheduler(ServedModels& models, ScheduleSettings settings, ServeMetrics& metrics)
    : models_(models), settings_(std::move(settings)), metrics_(metrics) {
  for (std::size_t i = 0; i < models_.size(); ++i) states_.push_back(std::make_unique<Model>());
}

Scheduler::~Scheduler() = default;

std::optional<ApiError> Scheduler::submit(std::shared_ptr<ServeJob> job) {
  const std::optional<ModelChoice> model = models_.find(job->model());
  if (!model) {
    ApiError error;
    error.status = 404;
    error.message = "The model '" + job->model() + "' does not exist; GET /v1/models lists them";
    error.type = "not_found_error";
    error.param = "model";
    error.code = "model_not_found";
    return error;
  }
  WaitingJob waiting;
  waiting.job = std::move(job);
  waiting.model = model->index;
  waiting.adapter = model->adapter;
  waiting.prompt_tokens = waiting.cost = kUnknownTokens;
  waiting.arrived_ns = steady_ns();
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return unavailable("the server is shutting down");
    if (n_waiting_ >= settings_.max_waiting) {
      return busy_error(std::to_string(n_waiting_) + " requests are waiting");
    }
    if (waiting_tokens_ >= settings_.max_waiting_tokens) {
      return busy_error(std::to_string(waiting_tokens_) + " prompt tokens are waiting");
    }
    ++n_waiting_;
    waiting_tokens_ += waiting.prompt_tokens;
    inbox_.push_back(std::move(waiting));
    woken_ = true;
  }
  changed_.notify_one();
  return std::nullopt;
}

// Requires  the mutex is held
ApiError Scheduler::busy_error(const std::string& why) const {
  ApiError error;
  error.status = 429;
  error.message = "the server is busy: " + why + "; try again in " +
                  std::to_string(retry_after_seconds_) + " s";
  error.type = "rate_limit_error";
  error.code = "server_busy";
  error.retry_after_seconds = retry_after_seconds_;
  return error;
}

void Scheduler::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

void Scheduler::drain() {
  metrics_.set_state(ServerState::kDraining);
  {
    const std::lock_guard lock(mutex_);
    draining_ = woken_ = true;
  }
  changed_.notify_one();
}

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = stopping_ = woken_ = true;
  }
  changed_.notify_one();
}

std::string Scheduler::run() {
  ApiError error;
  if (models_.load(
          0, [](std::size_t) { return true; }, error) == ServedModels::Loading::kFailed) {
    return error.message;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!draining_) metrics_.set_state(ServerState::kReady);
  }
  for (;;) {
    const auto [draining, stopping] = take_inbox();
    drop_gone();
    refuse_late();
    if (draining) refuse_waiting();
    resume_parked();
    admit();
    if (stopping) {
      for (const auto& job : jobs_) {
        const ApiError ended = unavailable("the server was stopped");
        end_job(*job, &ended);
      }
    }
    sweep();
    if (draining && jobs_.empty() && (computing_.empty() || stopping)) return {};
    const bool computed = compute();
    const bool stepped = step();
    const bool idle = !computed && !stepped;
    publish(idle);
    wait(idle);
  }
}

void Scheduler::wait(bool idle) {
  std::unique_lock lock(mutex_);
  if (idle && !woken_) changed_.wait_for(lock, kLongestWait, [this] { return woken_; });
  woken_ = false;
}

// Takes the requests that arrived, and what is to be done in this turn: together, so that no
// request arrives behind an order to end and is forgotten.
Scheduler::Orders Scheduler::take_inbox() {
  std::vector<WaitingJob> arrived;
  Orders orders;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(inbox_);
    orders = {.draining = draining_, .stopping = stopping_};
  }
  for (WaitingJob& waiting : arrived) {
    // What is wrong with a request is told at once, not when its turn comes.
    if (models_.loaded(waiting.model) != nullptr && !prepare(waiting)) continue;
    queue_.push(std::move(waiting));
    room_changed_ = true;
  }
  return orders;
}

void Scheduler::drop_gone() {
  queue_.remove_if([this](WaitingJob& waiting) {
    if (!waiting.job->is_gone()) return false;
    const std::lock_guard lock(mutex_);
    --n_waiting_;
    waiting_tokens_ -= waiting.prompt_tokens;
    return true;
  });
  for (const auto& job : jobs_) {
    if (!job->ended && job->job->is_gone()) {
      log_job(*job, 499);
      job->ended = true;
    }
  }
  sweep();
}

void Scheduler::refuse_late() {
  const std::uint64_t now = steady_ns();
  queue_.remove_if([this, now](WaitingJob& waiting) {
    const double waited = static_cast<double>(now - waiting.arrived_ns) * 1e-9;
    if (waited < settings_.max_wait_seconds) return false;
    ApiError error;
    {
      const std::lock_guard lock(mutex_);
      error = busy_error("the request waited " + std::to_string(std::lround(waited)) + " s");
    }
    refuse(waiting, error);
    return true;
  });
}

void Scheduler::refuse_waiting() {
  queue_.remove_if([this](WaitingJob& waiting) {
    refuse(waiting, unavailable("the server is shutting down"));
    return true;
  });
}

// Answers a waiting request that is taken from the queue.
void Scheduler::refuse(WaitingJob& waiting, const ApiError& error) {
  {
    const std::lock_guard lock(mutex_);
    --n_waiting_;
    waiting_tokens_ -= waiting.prompt_tokens;
  }
  waiting.job->on_error(error);
}

// Makes the texts of a request. Returns false when the request was answered or has no texts.
bool Scheduler::prepare(WaitingJob& waiting) {
  const LoadedModel& model = *models_.loaded(waiting.model);
  std::optional<ApiError> error = waiting.job->prepare(model, waiting.texts);
  if (!error && waiting.texts.empty()) {
    {
      const std::lock_guard lock(mutex_);
      --n_waiting_;
      waiting_tokens_ -= waiting.prompt_tokens;
    }
    computing_.push_back(std::move(waiting));
    return false;
  }
  if (!error) error = choose_adapter(waiting);
  if (!error) error = check(model, waiting.texts);
  if (error) {
    refuse(waiting, *error);
    return false;
  }
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cost = 0;
  for (const TextRequest& text : waiting.texts) {
    prompt_tokens += text.prompt.size();
    cost += text.prompt.size() + static_cast<std::uint64_t>(reserved_tokens(text));
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_tokens_ += prompt_tokens - waiting.prompt_tokens;
  }
  waiting.prepared = true;
  waiting.prompt_tokens = prompt_tokens;
  waiting.cost = cost;
  return true;
}

// Gives texts that choose no adapter the one of the model's name.
std::optional<ApiError> Scheduler::choose_adapter(WaitingJob& waiting) {
  const TextAdapter& named = waiting.adapter;
  for (TextRequest& text : waiting.texts) {
    if (!text.adapter) text.adapter = named;
    const int number = text.adapter->number;
    if (number == 0 || named.number == 0 || number == named.number) continue;
    ApiError error;
    error.message = "'lora' names adapter " + std::to_string(number - 1) + ", but 'model' is '" +
                    waiting.job->model() + "', adapter " + std::to_string(named.number - 1) +
                    "; a text takes one adapter";
    error.param = "lora";
    return error;
  }
  return std::nullopt;
}

// Refuses texts that can never run, and sets what the request left open.
std::optional<ApiError> Scheduler::check(const LoadedModel& model,
                                         std::vector<TextRequest>& texts) const {
  ApiError error;
  if (texts.size() > static_cast<std::size_t>(settings_.max_texts)) {
    error.message = "n: " + std::to_string(texts.size()) + " texts, this server computes at most " +
                    std::to_string(settings_.max_texts) + " at a time";
    error.param = "n";
    return error;
  }
  const int context = model.info.context;
  for (TextRequest& text : texts) {
    const int n_prompt = static_cast<int>(text.prompt.size());
    if (n_prompt == 0) {
      error.message = "the prompt has no tokens";
      error.param = "prompt";
      return error;
    }
    if (n_prompt >= context) {
      error.message = "This model's maximum context length is " + std::to_string(context) +
                      " tokens. However, your prompt has " + std::to_string(n_prompt) +
                      " tokens. Please shorten it.";
      error.param = "messages";
      error.code = "context_length_exceeded";
      error.n_prompt_tokens = n_prompt;
      error.n_ctx = context;
      return error;
    }
    text.names_limit = text.max_tokens >= 0;
    const int room = context - n_prompt;
    text.max_tokens = text.names_limit ? std::min(text.max_tokens, room) : room;
  }
  if (settings_.evicts) return std::nullopt;
  qsf_kv_page_counts pages = {};
  pages.struct_size = sizeof pages;
  qsf_engine_kv_pages(model.engine, &pages, nullptr);
  std::int64_t n_pages = 0;
  for (const TextRequest& text : texts) {
    const std::int64_t positions = std::min<std::int64_t>(
        static_cast<std::int64_t>(text.prompt.size()) + reserved_tokens(text), context);
    n_pages += (positions + pages.page_positions - 1) / std::max(pages.page_positions, 1);
  }
  if (n_pages > pages.pages) return too_large_error();
  return std::nullopt;
}

void Scheduler::admit() {
  if (!room_changed_) return;
  while (!queue_.empty()) {
    WaitingJob& next = queue_.front();
    if (models_.loaded(next.model) == nullptr) {
      ApiError error;
      const auto loading = models_.load(
          next.model, [this](std::size_t model) { return is_idle(model); }, error);
      if (loading == ServedModels::Loading::kWait) break;
      if (loading == ServedModels::Loading::kFailed) {
        WaitingJob failed = queue_.take_front();
        refuse(failed, error);
        continue;
      }
      *states_[next.model] = {};  // loaded again, it is measured again
    }
    if (!next.prepared) {
      if (prepare(next)) continue;
      next.cost = 0;  // its tenant is not charged
      queue_.take_front();
      continue;
    }
    if (n_texts() + next.texts.size() > static_cast<std::size_t>(settings_.max_texts)) break;
    // What came before goes first.
    if (n_parked() > 0) break;
    if (std::any_of(computing_.begin(), computing_.end(), [this](const WaitingJob& job) {
          return job.waits_for_room || !has_positions(job);
        })) {
      break;
    }
    if (start(next) == Start::kNoRoom) break;
  }
  room_changed_ = false;
}

// Starts the next request. It is taken from the queue unless there is no room for it.
Scheduler::Start Scheduler::start(WaitingJob& waiting) {
  const LoadedModel& model = *models_.loaded(waiting.model);
  auto job = std::make_unique<Job>();
  job->job = waiting.job;
  job->model = waiting.model;
  job->arrived_ns = waiting.arrived_ns;
  bool has_room = true;
  std::optional<ApiError> error =
      create_grammar(*job, model, waiting.texts.front().constraint, has_room);
  for (const TextRequest& text : waiting.texts) {
    if (error || !has_room) break;
    error = create_text(*job, model, text);
    if (error) break;
    qsf_error failed = {};
    int admitted = 0;
    if (qsf_generation_admit(job->texts.back()->generation.get(), &admitted, &failed) != QSF_OK) {
      error = to_api_error(failed);
      break;
    }
    has_room = admitted != 0;
  }
  if (!error && !has_room) {
    if (!is_idle(job->model)) return Start::kNoRoom;
    error = too_large_error();  // also with nothing beside it
  }
  WaitingJob taken = queue_.take_front();
  if (error) {
    refuse(taken, *error);
    return Start::kRefused;
  }
  {
    const std::lock_guard lock(mutex_);
    --n_waiting_;
    waiting_tokens_ -= taken.prompt_tokens;
  }
  for (std::size_t i = 0; i < job->texts.size(); ++i) {
    Text& text = *job->texts[i];
    if (text.request.prompt_log_probs) continue;  // each computes all of its own
    const auto alike = std::find_if(job->texts.begin(), job->texts.end(), [&](const auto& other) {
      return other->request.prompt == text.request.prompt;
    });
    if (alike->get() != &text) text.prompt_of = alike->get();
  }
  job->admitted_ns = steady_ns();
  metrics_.queue_time.add(static_cast<double>(job->admitted_ns - job->arrived_ns) * 1e-9);
  models_.touch(job->model);
  jobs_.push_back(std::move(job));
  jobs_.back()->job->on_admitted();
  return Start::kStarted;
}

// Compiles the grammar of a request's texts. `has_room` false: no more grammars fit now.
std::optional<ApiError> Scheduler::create_grammar(Job& job, const LoadedModel& model,
                                                  const TextConstraint& constraint,
                                                  bool& has_room) {
  qsf_grammar_kind kind = QSF_GRAMMAR_GBNF;
  switch (constraint.kind) {
    case TextConstraint::Kind::kNone: return std::nullopt;
    case TextConstraint::Kind::kGrammar: break;
    case TextConstraint::Kind::kJsonSchema: kind = QSF_GRAMMAR_JSON_SCHEMA; break;
    case TextConstraint::Kind::kJsonObject: kind = QSF_GRAMMAR_JSON_OBJECT; break;
  }
  qsf_error failed = {};
  QSFGrammar* grammar = nullptr;
  const qsf_code code = qsf_grammar_create(model.engine, kind, constraint.source.data(),
                                           constraint.source.size(), &grammar, &failed);
  job.grammar.reset(grammar);
  has_room = code != QSF_OUT_OF_BUDGET;
  if (code == QSF_OK || !has_room) return std::nullopt;
  ApiError error = to_api_error(failed);
  error.param = constraint.param;
  return error;
}

std::optional<ApiError> Scheduler::create_text(Job& job, const LoadedModel& model,
                                               TextRequest request) {
  Text& text = *job.texts.emplace_back(std::make_unique<Text>());
  text.job = &job;
  text.index = job.texts.size() - 1;
  text.request = std::move(request);
  text.metrics = &metrics_;
  TextRequest& own = text.request;
  qsf_error failed = {};
  QSFSession* session = nullptr;
  if (qsf_session_create(model.engine, &session, &failed) != QSF_OK) return to_api_error(failed);
  text.session.reset(session);
  const TextAdapter adapter = own.adapter.value_or(TextAdapter());
  if (qsf_session_set_adapter(session, adapter.number, adapter.scale, &failed) != QSF_OK) {
    return to_api_error(failed);
  }

  std::vector<const char*> stop;
  for (const std::string& one : own.stop) stop.push_back(one.c_str());
  std::vector<const char*> breakers;
  for (const std::string& one : own.dry_breakers) breakers.push_back(one.c_str());
  own.sampling.logit_bias = own.logit_bias.data();
  own.sampling.n_logit_bias = own.logit_bias.size();
  if (!breakers.empty()) {
    own.sampling.dry_breakers = breakers.data();
    own.sampling.n_dry_breakers = breakers.size();
  }
  own.sampling.grammar = job.grammar.get();
  own.sampling.grammar_trigger = own.constraint.trigger.c_str();
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt_tokens = own.prompt.data();
  options.n_prompt_tokens = own.prompt.size();
  options.max_tokens = own.max_tokens;
  options.reserve_tokens = reserved_tokens(own);
  options.sampling = &own.sampling;
  options.stop = stop.data();
  options.n_stop = stop.size();
  options.end_tokens = own.end_tokens.data();
  options.n_end_tokens = own.end_tokens.size();
  options.ignore_end_of_text = own.ignore_end ? 1 : 0;
  options.on_generated = Text::on_generated;
  options.on_prompt = Text::on_prompt;
  options.user_data = &text;
  options.keep_special = own.keep_special ? 1 : 0;
  options.log_probs = own.log_probs ? 1 : 0;
  options.n_top_log_probs = own.n_top_log_probs;
  if (own.prompt_log_probs) options.on_prompt_token = Text::on_prompt_token;
  options.report_end = own.prompt_log_probs ? 1 : 0;
  // The library takes no longer key; such a salt shares nothing.
  if (settings_.prefix_cache && job.job->tenant().size() <= kMaxPrefixKeyBytes) {
    options.prefix_key = job.job->tenant().data();
    options.prefix_key_bytes = job.job->tenant().size();
  }
  QSFGeneration* generation = nullptr;
  if (qsf_generation_create(session, &options, &generation, &failed) != QSF_OK) {
    return to_api_error(failed);
  }
  text.generation.reset(generation);
  return std::nullopt;
}

// Does a step of each job without texts that finds room. Returns false without any.
bool Scheduler::compute() {
  bool computed = false;
  const std::size_t n_ended = std::erase_if(computing_, [&](WaitingJob& computing) {
    if (computing.job->is_gone()) return true;
    models_.touch(computing.model);
    computing.waits_for_room = !has_positions(computing);
    if (computing.waits_for_room) return false;
    computed = true;
    return !computing.job->compute_step(*models_.loaded(computing.model));
  });
  if (computed || n_ended > 0) room_changed_ = true;  // a model may be idle now
  return computed;
}

// Whether the KV cache has room for the next step of a job without texts; also where it has not,
// and no text that ends would change that.
bool Scheduler::has_positions(const WaitingJob& computing) const {
  const std::size_t model = computing.model;
  const std::size_t positions = computing.job->step_positions();
  const auto holds_pages = [model](const auto& job) { return job->model == model && !job->ended; };
  if (positions == 0 || std::none_of(jobs_.begin(), jobs_.end(), holds_pages)) return true;
  qsf_kv_page_counts pages = {};
  pages.struct_size = sizeof pages;
  if (qsf_engine_kv_pages(models_.loaded(model)->engine, &pages, nullptr) != QSF_OK) return true;
  return positions <= static_cast<std::size_t>(pages.unreserved_pages) *
                          static_cast<std::size_t>(pages.page_positions);
}

// Tokens behind its prompt that memory is reserved for. Requires  checked
int Scheduler::reserved_tokens(const TextRequest& text) const {
  return text.names_limit ? text.max_tokens
                          : std::min(text.max_tokens, settings_.default_max_tokens);
}

bool Scheduler::is_idle(std::size_t model) const {
  if (std::any_of(computing_.begin(), computing_.end(),
                  [model](const WaitingJob& job) { return job.model == model; })) {
    return false;
  }
  return std::none_of(jobs_.begin(), jobs_.end(),
                      [model](const auto& job) { return job->model == model && !job->ended; });
}

std::size_t Scheduler::n_texts() const {
  std::size_t n = 0;
  for (const auto& job : jobs_) n += job->texts.size() - job->n_ended;
  return n;
}

std::size_t Scheduler::n_parked() const {
  std::size_t n = 0;
  for (const auto& job : jobs_) {
    for (const auto& text : job->texts) n += text->parked && !text->ended ? 1 : 0;
  }
  return n;
}

// Ends a request: by its last text, or by an error.
void Scheduler::end_job(Job& job, const ApiError* error) {
  if (job.ended) return;
  job.ended = true;
  if (error != nullptr) {
    job.job->on_error(*error);
  } else {
    job.job->on_end();
  }
  const int status = error != nullptr ? error->status : 200;
  log_job(job, status);
}

// Frees the requests that have ended.
void Scheduler::sweep() {
  const std::size_t n = std::erase_if(jobs_, [](const auto& job) { return job->ended; });
  if (n > 0) room_changed_ = true;
}

void Scheduler::log_job(const Job& job, int status) const {
  if (!settings_.log_requests) return;
  const std::uint64_t now = steady_ns();
  const auto ms_since = [](std::uint64_t from, std::uint64_t to) {
    return to > from ? static_cast<double>(to - from) * 1e-6 : 0.0;
  };
  // The id of a model is a file's name: the only text of this line that is not ours.
  std::string id;
  for (const char c : models_.entry(job.model).id) {
    if (c == '"' || c == '\\') id += '\\';
    id += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  std::printf("{\"model\":\"%s\",\"status\":%d,\"prompt_tokens\":%" PRIu64
              ",\"cached_tokens\":%" PRIu64 ",\"generated_tokens\":%" PRIu64
              ",\"queue_ms\":%.1f,\"first_token_ms\":%.1f,\"total_ms\":%.1f}\n",
              id.c_str(), status, job.prompt_tokens, job.cached_tokens, job.generated_tokens,
              ms_since(job.arrived_ns, job.admitted_ns),
              ms_since(job.arrived_ns, job.first_token_ns), ms_since(job.arrived_ns, now));
  std::fflush(stdout);
}

// Tells the numbers of now: now and then while passes run, and whenever they pause.
void Scheduler::publish(bool idle) {
  const std::uint64_t now = steady_ns();
  if (!idle && now - published_ns_ < kPublishNs) return;
  published_ns_ = now;
  const LoadedModel* const model = models_.loaded(last_model_);
  std::uint64_t waiting_tokens = 0;
  {
    const std::lock_guard lock(mutex_);
    waiting_tokens = waiting_tokens_;
  }
  ServeGauges gauges;
  gauges.waiting = queue_.size();
  gauges.waiting_prompt_tokens = waiting_tokens;
  gauges.running = n_texts() - n_parked();
  gauges.parked = n_parked();
  gauges.parkings = n_parkings_;
  gauges.tokens_per_second = gauges.running > 0 ? tokens_per_second_ : 0.0;
  gauges.read_bytes_per_second = gauges.running > 0 ? read_bytes_per_second_ : 0.0;
  if (model != nullptr) {
    gauges.model = model->id;
    qsf_engine_stats stats = {};
    stats.struct_size = sizeof stats;
    if (qsf_engine_get_stats(model->engine, &stats, nullptr) == QSF_OK) {
      gauges.planned_bytes = stats.planned_bytes;
      gauges.resident_bytes = stats.resident_bytes;
      gauges.peak_resident_bytes = stats.peak_resident_bytes;
      gauges.weight_bytes_read = stats.weight_bytes_read;
    }
    qsf_plan_info plan = {};
    plan.struct_size = sizeof plan;
    if (qsf_plan_get_info(qsf_engine_plan(model->engine), &plan, nullptr) == QSF_OK) {
      gauges.budget_bytes = plan.budget_bytes;
      gauges.resident_share = plan.resident_share;
    }
    qsf_kv_page_counts pages = {};
    pages.struct_size = sizeof pages;
    if (qsf_engine_kv_pages(model->engine, &pages, nullptr) == QSF_OK) {
      gauges.kv_pages = static_cast<std::uint64_t>(pages.pages);
      gauges.kv_pages_free = static_cast<std::uint64_t>(pages.free_pages);
    }
    qsf_prefix_stats prefixes = {};
    prefixes.struct_size = sizeof prefixes;
    if (qsf_engine_prefix_stats(model->engine, &prefixes, nullptr) == QSF_OK) {
      gauges.kv_pages_shared = static_cast<std::uint64_t>(prefixes.pages);
      gauges.prefix_hits = prefixes.hits;
      gauges.prefix_misses = {prefixes.misses_no_entry, prefixes.misses_too_short,
                              prefixes.misses_other_key, prefixes.continued};
      gauges.prefix_evictions = prefixes.evicted_pages;
      gauges.folder = {.hits = prefixes.folder_hits,
                       .hit_tokens = prefixes.folder_hit_tokens,
                       .files = prefixes.folder_files,
                       .bytes = prefixes.folder_bytes,
                       .bytes_written = prefixes.folder_bytes_written,
                       .bytes_read = prefixes.folder_bytes_read,
                       .removed_files = prefixes.folder_removed_files,
                       .dropped_pages = prefixes.folder_dropped_pages,
                       .write_errors = prefixes.folder_write_errors,
                       .read_errors = prefixes.folder_read_errors};
    }
  }
  metrics_.set_gauges(gauges);
  const double seconds =
      rows_per_second_ > 0.0 ? static_cast<double>(waiting_tokens) / rows_per_second_ : 1.0;
  const std::lock_guard lock(mutex_);
  retry_after_seconds_ =
      static_cast<int>(std::clamp(std::ceil(seconds), 1.0, static_cast<double>(kMostRetrySeconds)));
}

}  // namespace qsf_tools
