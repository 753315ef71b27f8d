// SPDX-License-Identifier: MIT
//
// Waiting requests, in the order of deficit round robin over tenants.
//
// Each tenant (an API key) has a queue, first come first served. In its turn a tenant receives
// kQuantumTokens of credit, and its first request is next when the credit covers the request's
// cost. A tenant with long requests gets as many tokens as one with short ones.
//
// Based on: Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin", 1995.

#ifndef QSF_TOOLS_SERVE_SCHEDULE_JOB_QUEUE_H_
#define QSF_TOOLS_SERVE_SCHEDULE_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tools/serve/text_request.h"

namespace qsf_tools {

struct WaitingJob {
  std::shared_ptr<ServeJob> job;
  std::size_t model = 0;        // index in the list of models
  TextAdapter adapter;          // that the model's name chose
  bool prepared = false;        // `texts` is set
  bool waits_for_room = false;  // without texts: its next step found none
  std::vector<TextRequest> texts;
  std::uint64_t prompt_tokens = 0;  // of all texts; an estimate until it is prepared
  std::uint64_t cost = 0;           // prompt tokens and tokens to be reserved
  std::uint64_t arrived_ns = 0;
};

// Threads  one
class JobQueue {
 public:
  static constexpr std::uint64_t kQuantumTokens = 512;

  void push(WaitingJob job);
  bool empty() const noexcept { return n_jobs_ == 0; }
  std::size_t size() const noexcept { return n_jobs_; }

  // The next job; it stays the next one until it is taken, removed, or its cost is set.
  // Requires  !empty()
  WaitingJob& front();
  // Removes the next job and charges its tenant. Requires  !empty()
  WaitingJob take_front();

  // Removes the jobs for which `gone` is true.
  void remove_if(const std::function<bool(WaitingJob&)>& gone);

 private:
  struct Tenant {
    std::string key;
    std::uint64_t credit = 0;
    bool has_turn = false;  // received its quantum in this turn
    std::deque<WaitingJob> jobs;
  };

  std::list<Tenant> turns_;  // tenants with jobs; the first one's turn it is
  std::size_t n_jobs_ = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SCHEDULE_JOB_QUEUE_H_
