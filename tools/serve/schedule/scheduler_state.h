// SPDX-License-Identifier: MIT
//
// What the scheduler knows of a text, of its request and of a model. Private to scheduler.cc and
// scheduler_pass.cc.

#ifndef QSF_TOOLS_SERVE_SCHEDULE_SCHEDULER_STATE_H_
#define QSF_TOOLS_SERVE_SCHEDULE_SCHEDULER_STATE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/handles.h"
#include "tools/serve/schedule/scheduler.h"

namespace qsf_tools {

inline std::uint64_t steady_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// An error of the engine: the request's, unless it tells of files, damage or the engine itself.
ApiError to_api_error(const qsf_error& failed);

// A text that was admitted.
struct Scheduler::Text {
  Job* job = nullptr;
  std::size_t index = 0;  // in its job
  TextRequest request;
  SessionPtr session;
  GenerationPtr generation;  // freed before its session
  ServeMetrics* metrics = nullptr;
  Text* prompt_of = nullptr;  // computes the same prompt; this one waits for it
  bool ended = false;
  bool parked = false;
  bool has_token = false;
  double prompt_share = 0.0;  // of the prompt that is computed
  double aged_rows = 0.0;     // its share of the rows that others got meanwhile
  std::uint64_t last_token_ns = 0;

  bool in_prompt() const noexcept { return !has_token && prompt_share < 1.0; }
  double remaining_rows() const noexcept {
    return (1.0 - prompt_share) * static_cast<double>(request.prompt.size());
  }

  static int on_generated(const qsf_generated_token* token, void* user);
  static int on_prompt_token(const qsf_generated_token* token, void* user);
  static void on_prompt(std::uint64_t done, std::uint64_t total, void* user);
};

// A request that was admitted.
struct Scheduler::Job {
  std::shared_ptr<ServeJob> job;
  std::size_t model = 0;
  GrammarPtr grammar;  // of all its texts
  std::vector<std::unique_ptr<Text>> texts;
  std::size_t n_ended = 0;
  bool ended = false;
  std::uint64_t arrived_ns = 0;
  std::uint64_t admitted_ns = 0;
  std::uint64_t first_token_ns = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t generated_tokens = 0;
};

struct Scheduler::Model {
  std::optional<PassRates> rates;  // once it is loaded
  bool streamed = false;
  int failed_passes = 0;  // in a row
  std::uint64_t weight_bytes_read = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SCHEDULE_SCHEDULER_STATE_H_
