// SPDX-License-Identifier: MIT
//
// The scheduler: the thread that runs all texts of all requests, pass by pass.
//
// Every pass of a model carries a row of each generating text and prompt rows of newcomers. Prompt
// rows are limited so that the gap between two tokens of a text stays within a bound (PassRates);
// the shortest remaining prompt comes first, and one that waits ages by its share of the rows that
// others got.
//
// A request is admitted when the KV pages of all its texts are reserved. From then on it ends by
// itself, or because its client has gone. Texts of a request with one prompt compute it once: the
// first does, and the others take it over. A text that finds no page is parked in a session file
// and goes on later with the same bits; the oldest text is never parked, so one always ends. A text
// whose client takes no output is left out of passes and keeps its pages.

#ifndef QSF_TOOLS_SERVE_SCHEDULE_SCHEDULER_H_
#define QSF_TOOLS_SERVE_SCHEDULE_SCHEDULER_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/handles.h"
#include "tools/serve/schedule/job_queue.h"
#include "tools/serve/schedule/pass_rates.h"
#include "tools/serve/schedule/serve_metrics.h"
#include "tools/serve/schedule/served_models.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

struct ScheduleSettings {
  int default_max_tokens = 1024;                 // reserved for a text that names no limit
  double max_token_gap_seconds = 0.0;            // 0: the defaults of PassRates
  std::size_t max_waiting = 256;                 // requests
  std::uint64_t max_waiting_tokens = 1U << 20U;  // of their prompts
  double max_wait_seconds = 60.0;
  int max_texts = 16;        // running or parked, of all models
  std::string park_folder;   // for session files
  bool prefix_cache = true;  // as ModelSettings has it
  bool evicts = false;       // positions leave the KV cache: texts take less of it than they have
  bool log_requests = false;
};

class Scheduler {
 public:
  Scheduler(ServedModels& models, ScheduleSettings settings, ServeMetrics& metrics);
  ~Scheduler();

  // Takes a request, or says why not.
  // Threads  any; it does not block
  std::optional<ApiError> submit(std::shared_ptr<ServeJob> job);
  // Looks again at texts whose clients have gone or take output again.
  // Threads  any
  void wake();
  // Refuses new requests; run() returns when the admitted ones have ended.
  // Threads  any
  void drain();
  // Ends all texts; run() returns.
  // Threads  any
  void stop();

  // Loads the first model, and runs until drain() or stop(). Returns what is wrong with the first
  // model, empty for nothing.
  std::string run();

 private:
  struct Text;  // scheduler_state.h, for the two files of this class
  struct Job;
  struct Model;

  // The parts of a turn, in this order.
  struct Orders {
    bool draining = false;
    bool stopping = false;
  };
  Orders take_inbox();
  void drop_gone();
  void refuse_late();
  void refuse_waiting();
  void resume_parked();
  void admit();
  bool compute();
  bool step();
  void publish(bool idle);
  void wait(bool idle);

  bool prepare(WaitingJob& waiting);
  static std::optional<ApiError> choose_adapter(WaitingJob& waiting);
  enum class Start { kStarted, kNoRoom, kRefused };
  Start start(WaitingJob& waiting);
  std::optional<ApiError> check(const LoadedModel& model, std::vector<TextRequest>& texts) const;
  std::optional<ApiError> create_grammar(Job& job, const LoadedModel& model,
                                         const TextConstraint& constraint, bool& has_room);
  std::optional<ApiError> create_text(Job& job, const LoadedModel& model, TextRequest request);
  void take_prompt(Text& text);
  bool step_model(std::size_t index);
  qsf_code run_pass(std::size_t index, const std::vector<QSFGeneration*>& members,
                    int max_prompt_rows, qsf_step_counts& counts, qsf_error& error);
  void end_failing(std::size_t index, const std::vector<Text*>& members, const qsf_error& error);
  std::vector<Text*> members_of(std::size_t index, int& n_generating);
  void end_text(Text& text);
  void end_job(Job& job, const ApiError* error);
  void sweep();
  void park_youngest(std::size_t model);
  void refuse(WaitingJob& waiting, const ApiError& error);
  ApiError busy_error(const std::string& why) const;
  bool is_idle(std::size_t model) const;
  bool has_positions(const WaitingJob& computing) const;
  int reserved_tokens(const TextRequest& text) const;
  std::size_t n_texts() const;
  std::size_t n_parked() const;
  void log_job(const Job& job, int status) const;

  ServedModels& models_;
  ScheduleSettings settings_;
  ServeMetrics& metrics_;
  std::vector<std::unique_ptr<Model>> states_;  // of each model
  std::size_t last_model_ = 0;                  // that a pass ran for
  JobQueue queue_;
  std::vector<std::unique_ptr<Job>> jobs_;  // admitted, the oldest first
  std::vector<WaitingJob> computing_;       // jobs without texts
  bool room_changed_ = false;               // a text ended or was parked since the last admission
  std::uint64_t n_parkings_ = 0;
  std::uint64_t published_ns_ = 0;
  double rows_per_second_ = 0.0;  // running means over passes, and so below
  double tokens_per_second_ = 0.0;
  double read_bytes_per_second_ = 0.0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WaitingJob> inbox_;
  std::size_t n_waiting_ = 0;  // in the inbox and in the queue
  std::uint64_t waiting_tokens_ = 0;
  int retry_after_seconds_ = 1;
  bool woken_ = false;
  bool draining_ = false;
  bool stopping_ = false;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SCHEDULE_SCHEDULER_H_
