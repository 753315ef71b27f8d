// SPDX-License-Identifier: MIT
//
// Passes: which texts take part, what they deliver, and which are parked.

#include <algorithm>
#include <utility>

#include "tools/common/system_files.h"
#include "tools/common/tool_support.h"
#include "tools/serve/schedule/scheduler.h"
#include "tools/serve/schedule/scheduler_state.h"

namespace qsf_tools {

namespace {

constexpr int kFailedPasses = 3;
constexpr double kNewestPass = 0.2;  // its weight in running means

void add_to_mean(double& mean, double value) {
  mean = mean == 0.0 ? value : mean + kNewestPass * (value - mean);
}

TextEnd end_of(qsf_stop_reason reason) {
  switch (reason) {
    case QSF_STOP_END_OF_TEXT: return TextEnd::kStop;
    case QSF_STOP_STRING: return TextEnd::kStopString;
    case QSF_STOP_CALLBACK: return TextEnd::kReceiver;
    case QSF_STOP_MAX_TOKENS:
    case QSF_STOP_CONTEXT_FULL:
    case QSF_STOP_CANCELLED: return TextEnd::kLength;
  }
  return TextEnd::kLength;
}

ApiError server_error(const std::string& message) {
  ApiError error;
  error.status = 500;
  error.message = message;
  error.type = "server_error";
  return error;
}

TextToken text_token(const qsf_generated_token& token) {
  return {.token = token.token,
          .is_rest = token.is_rest != 0,
          .is_end = token.is_end != 0,
          .text = token.text,
          .log_prob = token.log_prob,
          .top = {token.top, static_cast<std::size_t>(token.n_top)}};
}

}  // namespace

int Scheduler::Text::on_generated(const qsf_generated_token* token, void* user) {
  Text& text = *static_cast<Text*>(user);
  Job& job = *text.job;
  const std::uint64_t now = steady_ns();
  if (token->is_rest == 0 && token->is_end == 0) {
    if (job.first_token_ns == 0) job.first_token_ns = now;
    if (text.has_token) {
      text.metrics->time_between_tokens.add(static_cast<double>(now - text.last_token_ns) * 1e-9);
    } else {
      text.metrics->time_to_first_token.add(static_cast<double>(now - job.arrived_ns) * 1e-9);
    }
    text.has_token = true;
    text.last_token_ns = now;
  }
  return job.job->on_token(text.index, text_token(*token)) ? 0 : 1;
}

int Scheduler::Text::on_prompt_token(const qsf_generated_token* token, void* user) {
  const Text& text = *static_cast<const Text*>(user);
  text.job->job->on_prompt_token(text.index, text_token(*token));
  return 0;
}

void Scheduler::Text::on_prompt(std::uint64_t done, std::uint64_t total, void* user) {
  Text& text = *static_cast<Text*>(user);
  if (total > 0) text.prompt_share = static_cast<double>(done) / static_cast<double>(total);
}

bool Scheduler::step() {
  bool ran = false;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (models_.loaded(i) != nullptr) ran = step_model(i) || ran;
  }
  return ran;
}

// Ends the wait of a text for the prompt that another one computes, once that is done. What it
// cannot take over it computes.
void Scheduler::take_prompt(Text& text) {
  if (text.prompt_of == nullptr || text.parked || text.ended) return;
  if (!text.prompt_of->ended) {
    if (text.prompt_of->in_prompt()) return;
    int n_tokens = 0;
    qsf_generation_take_prompt(text.generation.get(), text.prompt_of->session.get(), &n_tokens,
                               nullptr);
  }
  text.prompt_of = nullptr;
}

// Prompts first, in the order in which they get rows, then texts that generate.
std::vector<Scheduler::Text*> Scheduler::members_of(std::size_t index, int& n_generating) {
  std::vector<Text*> prompts;
  std::vector<Text*> generating;
  for (const auto& job : jobs_) {
    if (job->model != index || job->ended || job->job->is_full()) continue;
    for (const auto& text : job->texts) {
      take_prompt(*text);
      if (text->ended || text->parked || text->prompt_of != nullptr) continue;
      (text->in_prompt() ? prompts : generating).push_back(text.get());
    }
  }
  n_generating = static_cast<int>(generating.size());
  const auto rank = [](const Text* text) { return text->remaining_rows() - text->aged_rows; };
  std::stable_sort(prompts.begin(), prompts.end(),
                   [&rank](const Text* a, const Text* b) { return rank(a) < rank(b); });
  prompts.insert(prompts.end(), generating.begin(), generating.end());
  return prompts;
}

// Runs a pass of one model. Returns false when it has nothing to compute.
bool Scheduler::step_model(std::size_t index) {
  Model& state = *states_[index];
  const LoadedModel& model = *models_.loaded(index);
  if (!state.rates.has_value()) {
    qsf_plan_info plan = {};
    plan.struct_size = sizeof plan;
    qsf_plan_get_info(qsf_engine_plan(model.engine), &plan, nullptr);
    state.streamed = plan.everything_resident == 0;
    state.rates.emplace(state.streamed, settings_.max_token_gap_seconds);
  }
  int n_generating = 0;
  const std::vector<Text*> members = members_of(index, n_generating);
  if (members.empty()) return false;
  std::vector<QSFGeneration*> generations;
  std::vector<double> shares;
  for (const Text* text : members) {
    generations.push_back(text->generation.get());
    shares.push_back(text->prompt_share);
  }
  qsf_step_counts counts = {};
  qsf_error error = {};
  const std::uint64_t start = steady_ns();
  const qsf_code code =
      run_pass(index, generations, state.rates->max_prompt_rows(n_generating), counts, error);
  const double seconds = static_cast<double>(steady_ns() - start) * 1e-9;
  if (code != QSF_OK) {
    if (++state.failed_passes < kFailedPasses) return true;
    state.failed_passes = 0;
    end_failing(index, members, error);
    return true;
  }
  state.failed_passes = 0;
  const int n_rows = counts.prompt_rows + counts.generated_rows;
  if (n_rows > 0 && seconds > 0.0) {
    state.rates->add(counts.prompt_rows, counts.generated_rows, seconds);
    add_to_mean(rows_per_second_, n_rows / seconds);
    add_to_mean(tokens_per_second_, (counts.generated_rows + counts.accepted_rows) / seconds);
    metrics_.add_drafts(counts.drafted_rows, counts.accepted_rows);
  }
  qsf_engine_stats stats = {};
  stats.struct_size = sizeof stats;
  if (state.streamed && qsf_engine_get_stats(model.engine, &stats, nullptr) == QSF_OK) {
    const std::uint64_t read = stats.weight_bytes_read - state.weight_bytes_read;
    state.weight_bytes_read = stats.weight_bytes_read;
    add_to_mean(read_bytes_per_second_, static_cast<double>(read) / seconds);
  }
  // Before the session of a text that has ended is freed.
  for (const Text* member : members) {
    for (const auto& text : member->job->texts) take_prompt(*text);
  }
  // A prompt that got no row ages by its share of the rows that others got: a long one is not
  // overtaken for ever, and prompts of one length are still computed one after the other.
  const std::size_t n_prompts = members.size() - static_cast<std::size_t>(n_generating);
  const double aged = static_cast<double>(counts.prompt_rows) /
                      static_cast<double>(std::max(n_prompts, std::size_t{1}));
  for (std::size_t i = 0; i < members.size(); ++i) {
    Text& text = *members[i];
    if (text.in_prompt() && text.prompt_share == shares[i]) text.aged_rows += aged;
    if (qsf_generation_is_finished(text.generation.get()) != 0) end_text(text);
  }
  sweep();
  if (counts.n_waiting > 0) park_youngest(index);
  return n_rows > 0 || counts.n_finished > 0 || counts.n_waiting > 0 || counts.n_reading > 0;
}

qsf_code Scheduler::run_pass(std::size_t index, const std::vector<QSFGeneration*>& members,
                             int max_prompt_rows, qsf_step_counts& counts, qsf_error& error) {
  qsf_step_options options;
  qsf_step_options_init(&options);
  options.max_prompt_rows = max_prompt_rows;
  counts.struct_size = sizeof counts;
  metrics_.pass_begins(steady_ns());
  const qsf_code code = qsf_engine_step_with(models_.loaded(index)->engine, members.data(),
                                             members.size(), &options, &counts, &error);
  const int n_done =
      counts.prompt_rows + counts.generated_rows + counts.n_finished + counts.n_reading;
  metrics_.pass_ended(steady_ns(), n_done, code == QSF_OK);
  last_model_ = index;
  models_.touch(index);
  return code;
}

// A pass fails as a whole. Which texts it fails for shows when each runs alone: what cannot be read
// may be the embedding of one token. Those end with the error, and the others go on.
void Scheduler::end_failing(std::size_t index, const std::vector<Text*>& members,
                            const qsf_error& error) {
  const std::string& id = models_.loaded(index)->id;
  for (Text* const text : members) {
    if (text->job->ended) continue;
    qsf_step_counts counts = {};
    qsf_error failed = error;
    if (members.size() > 1 &&
        run_pass(index, {text->generation.get()}, 0, counts, failed) == QSF_OK) {
      if (qsf_generation_is_finished(text->generation.get()) != 0) end_text(*text);
      continue;
    }
    print_error(program_name(), id + ": " + failed.message);
    const ApiError ended = server_error("model '" + id + "': " + failed.message);
    end_job(*text->job, &ended);
  }
  sweep();
}

void Scheduler::end_text(Text& text) {
  Job& job = *text.job;
  qsf_generate_result result = {};
  result.struct_size = sizeof result;
  qsf_error error = {};
  const qsf_code code = qsf_generation_get_result(text.generation.get(), &result, &error);
  text.ended = true;
  ++job.n_ended;
  room_changed_ = true;
  if (job.ended) return;  // by another of its texts
  if (code != QSF_OK) {
    const ApiError failed = to_api_error(error);
    end_job(job, &failed);
    return;
  }
  const TextResult out = {.end = end_of(result.reason),
                          .stop_string = {},
                          .prompt_tokens = static_cast<int>(text.request.prompt.size()),
                          .cached_tokens = result.cached_tokens,
                          .generated_tokens = result.generated_tokens,
                          .queue_ns = job.admitted_ns - job.arrived_ns,
                          .prompt_ns = result.prompt_ns,
                          .generate_ns = result.generate_ns};
  job.prompt_tokens += static_cast<std::uint64_t>(out.prompt_tokens);
  job.cached_tokens += static_cast<std::uint64_t>(out.cached_tokens);
  job.generated_tokens += static_cast<std::uint64_t>(out.generated_tokens);
  metrics_.add_tokens(static_cast<std::uint64_t>(out.prompt_tokens),
                      static_cast<std::uint64_t>(out.cached_tokens),
                      static_cast<std::uint64_t>(out.generated_tokens));
  text.generation.reset();
  text.session.reset();
  job.job->on_text_end(text.index, out);
  if (job.n_ended == job.texts.size()) end_job(job, nullptr);
}

// Writes the text that was admitted last to a session file, which frees its pages. Never the
// oldest one: it gets the pages, so one text always ends.
void Scheduler::park_youngest(std::size_t model) {
  std::vector<Text*> running;
  for (const auto& job : jobs_) {
    if (job->model != model || job->ended) continue;
    for (const auto& text : job->texts) {
      if (!text->ended && !text->parked) running.push_back(text.get());
    }
  }
  if (running.size() < 2) return;
  Text& text = *running.back();
  const std::string path = settings_.park_folder + "/qsf-" + this_process() + "-" +
                           std::to_string(++n_parkings_) + ".session";
  qsf_error error = {};
  if (qsf_generation_park(text.generation.get(), path.c_str(), &error) == QSF_OK) {
    // Its pages are for those that wait. It is not tried again until a text has ended: it would
    // take the same pages back.
    text.parked = true;
    return;
  }
  // Without room on the disk something has to give way, and it is told why.
  print_error(program_name(), error.message);
  const ApiError failed =
      server_error(std::string("the text had to leave memory, and ") + error.message);
  end_job(*text.job, &failed);
  sweep();
}

void Scheduler::resume_parked() {
  if (!room_changed_) return;
  for (const auto& job : jobs_) {
    if (job->ended) continue;
    for (const auto& text : job->texts) {
      if (!text->parked || text->ended) continue;
      int resumed = 0;
      qsf_error error = {};
      if (qsf_generation_resume(text->generation.get(), &resumed, &error) != QSF_OK) {
        print_error(program_name(), error.message);
        const ApiError failed = server_error(error.message);
        end_job(*job, &failed);
        break;
      }
      if (resumed == 0) return;  // the older ones first
      text->parked = false;
    }
  }
  sweep();
}

}  // namespace qsf_tools
