// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/job_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace qsf_tools {

void JobQueue::push(WaitingJob job) {
  const std::string& key = job.job->tenant();
  auto tenant = std::find_if(turns_.begin(), turns_.end(),
                             [&key](const Tenant& other) { return other.key == key; });
  if (tenant == turns_.end()) {
    tenant = turns_.emplace(turns_.end());
    tenant->key = key;
  }
  ++n_jobs_;
  tenant->jobs.push_back(std::move(job));
}

WaitingJob& JobQueue::front() {
  assert(!empty());
  for (;;) {
    Tenant& tenant = turns_.front();
    if (!tenant.has_turn) {
      tenant.has_turn = true;
      tenant.credit += kQuantumTokens;
    }
    WaitingJob& job = tenant.jobs.front();
    if (job.cost <= tenant.credit) return job;
    tenant.has_turn = false;
    turns_.splice(turns_.end(), turns_, turns_.begin());
  }
}

WaitingJob JobQueue::take_front() {
  const std::uint64_t cost = front().cost;
  Tenant& tenant = turns_.front();
  tenant.credit -= cost;
  WaitingJob job = std::move(tenant.jobs.front());
  tenant.jobs.pop_front();
  --n_jobs_;
  if (tenant.jobs.empty()) turns_.pop_front();  // and its credit with it
  return job;
}

void JobQueue::remove_if(const std::function<bool(WaitingJob&)>& gone) {
  for (auto tenant = turns_.begin(); tenant != turns_.end();) {
    auto& jobs = tenant->jobs;
    for (auto job = jobs.begin(); job != jobs.end();) {
      if (gone(*job)) {
        --n_jobs_;
        job = jobs.erase(job);
      } else {
        ++job;
      }
    }
    tenant = jobs.empty() ? turns_.erase(tenant) : std::next(tenant);
  }
}

}  // namespace qsf_tools
