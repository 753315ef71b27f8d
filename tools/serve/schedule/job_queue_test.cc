// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/job_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qsf_tools {
namespace {

// A job that is no more than its tenant.
class NamedJob : public ServeJob {
 public:
  explicit NamedJob(std::string tenant) : tenant_(std::move(tenant)) {}

  const std::string& model() const noexcept override { return tenant_; }
  const std::string& tenant() const noexcept override { return tenant_; }
  std::optional<ApiError> prepare(const LoadedModel&, std::vector<TextRequest>&) override {
    return std::nullopt;
  }
  bool compute_step(const LoadedModel&) override { return false; }
  void on_admitted() override {}
  bool on_token(std::size_t, const TextToken&) override { return true; }
  void on_text_end(std::size_t, const TextResult&) override {}
  void on_end() override {}
  void on_error(const ApiError&) override {}
  bool is_full() const noexcept override { return false; }
  bool is_gone() const noexcept override { return false; }

 private:
  std::string tenant_;
};

void push(JobQueue& queue, const std::string& tenant, std::uint64_t cost, std::uint64_t number) {
  WaitingJob job;
  job.job = std::make_shared<NamedJob>(tenant);
  job.cost = cost;
  job.arrived_ns = number;  // tells jobs of a tenant apart
  queue.push(std::move(job));
}

TEST(JobQueueTest, ATenantIsServedInOrderOfArrival) {
  JobQueue queue;
  for (std::uint64_t i = 0; i < 5; ++i) push(queue, "a", 10'000 - 1000 * i, i);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(queue.take_front().arrived_ns, i);
  EXPECT_TRUE(queue.empty());
}

TEST(JobQueueTest, TenantsGetEqualTokensNotEqualRequests) {
  JobQueue queue;
  for (std::uint64_t i = 0; i < 400; ++i) push(queue, "short", 100, i);
  for (std::uint64_t i = 0; i < 400; ++i) push(queue, "long", 2000, i);
  std::map<std::string, std::uint64_t> tokens;
  for (int i = 0; i < 200; ++i) {
    const WaitingJob job = queue.take_front();
    tokens[job.job->tenant()] += job.cost;
  }
  EXPECT_NEAR(static_cast<double>(tokens["short"]), static_cast<double>(tokens["long"]), 2600.0);
}

TEST(JobQueueTest, ANewcomerDoesNotWaitForAnothersQueue) {
  JobQueue queue;
  for (std::uint64_t i = 0; i < 100; ++i) push(queue, "busy", 500, i);
  queue.take_front();
  push(queue, "new", 500, 0);
  int before = 0;
  while (queue.take_front().job->tenant() != "new") ++before;
  EXPECT_LE(before, 2);
}

TEST(JobQueueTest, TheNextJobStaysTheNext) {
  JobQueue queue;
  push(queue, "a", 5000, 1);
  push(queue, "b", 700, 2);
  const std::uint64_t next = queue.front().arrived_ns;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(queue.front().arrived_ns, next);
  EXPECT_EQ(queue.take_front().arrived_ns, next);
}

TEST(JobQueueTest, AnIdleTenantSavesNoCredit) {
  JobQueue queue;
  for (std::uint64_t i = 0; i < 50; ++i) {
    push(queue, "a", 1, i);
    queue.take_front();
  }
  // With the credit of fifty turns it would have both of its jobs served before b's first.
  push(queue, "a", 2000, 1);
  push(queue, "a", 2000, 2);
  push(queue, "b", 2000, 3);
  std::vector<std::uint64_t> order;
  while (!queue.empty()) order.push_back(queue.take_front().arrived_ns);
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 3, 2}));
}

TEST(JobQueueTest, RemovedJobsAreGone) {
  JobQueue queue;
  for (std::uint64_t i = 0; i < 6; ++i) push(queue, i % 2 == 0 ? "even" : "odd", 10, i);
  queue.remove_if([](WaitingJob& job) { return job.job->tenant() == "even"; });
  EXPECT_EQ(queue.size(), 3U);
  std::vector<std::uint64_t> left;
  while (!queue.empty()) left.push_back(queue.take_front().arrived_ns);
  EXPECT_EQ(left, (std::vector<std::uint64_t>{1, 3, 5}));
}

}  // namespace
}  // namespace qsf_tools
