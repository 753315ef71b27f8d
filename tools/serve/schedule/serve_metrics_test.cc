// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/serve_metrics.h"

#include <gtest/gtest.h>

#include <string>

namespace qsf_tools {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(ServeMetricsTest, StateFollowsTheServer) {
  ServeMetrics metrics;
  EXPECT_EQ(metrics.state(kSecond), ServerState::kStarting);
  metrics.set_state(ServerState::kReady);
  EXPECT_EQ(metrics.state(kSecond), ServerState::kReady);
  metrics.set_state(ServerState::kDraining);
  EXPECT_EQ(metrics.state(kSecond), ServerState::kDraining);
}

TEST(ServeMetricsTest, PassesWithoutRowsAreStuck) {
  ServeMetrics metrics;
  metrics.set_state(ServerState::kReady);
  for (int i = 0; i < 2; ++i) {
    metrics.pass_begins(kSecond);
    metrics.pass_ended(2 * kSecond, 0, true);
  }
  EXPECT_EQ(metrics.state(2 * kSecond), ServerState::kReady);
  metrics.pass_begins(2 * kSecond);
  metrics.pass_ended(3 * kSecond, 0, true);
  EXPECT_EQ(metrics.state(3 * kSecond), ServerState::kStuck);
  metrics.pass_begins(3 * kSecond);
  metrics.pass_ended(4 * kSecond, 1, true);
  EXPECT_EQ(metrics.state(4 * kSecond), ServerState::kReady);
}

TEST(ServeMetricsTest, APassThatDoesNotEndIsStuck) {
  ServeMetrics metrics;
  metrics.set_state(ServerState::kReady);
  metrics.pass_begins(kSecond);
  EXPECT_EQ(metrics.state(50 * kSecond), ServerState::kReady);
  EXPECT_EQ(metrics.state(90 * kSecond), ServerState::kStuck);
  metrics.pass_ended(90 * kSecond, 1, true);
  EXPECT_EQ(metrics.state(90 * kSecond), ServerState::kReady);
  // Passes that long are normal from then on.
  metrics.pass_begins(100 * kSecond);
  EXPECT_EQ(metrics.state(300 * kSecond), ServerState::kReady);
}

TEST(ServeMetricsTest, AHistogramCountsUpToEachBound) {
  DurationHistogram histogram;
  for (const double seconds : {0.001, 0.005, 0.3, 5000.0}) histogram.add(seconds);
  std::string text;
  histogram.append_to(text, "name", "help");
  EXPECT_NE(text.find("name_bucket{le=\"0.005\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name_bucket{le=\"0.2\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name_bucket{le=\"0.5\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name_bucket{le=\"600\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name_bucket{le=\"+Inf\"} 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name_count 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name_sum 5000.306\n"), std::string::npos) << text;
}

TEST(ServeMetricsTest, NamesAreQuoted) {
  ServeMetrics metrics;
  ServeGauges gauges;
  gauges.model = "a\"b\\c\n";
  metrics.set_gauges(gauges);
  const std::string status = metrics.status_json(kSecond, 3);
  EXPECT_NE(status.find("\"model\":\"a\\\"b\\\\c \""), std::string::npos) << status;
  EXPECT_NE(status.find("\"connections\":3}"), std::string::npos) << status;
}

TEST(ServeMetricsTest, TheLongestStatusIsWhole) {
  ServeMetrics metrics;
  ServeGauges gauges;
  gauges.budget_bytes = gauges.planned_bytes = gauges.resident_bytes = ~std::uint64_t{0};
  gauges.waiting = gauges.waiting_prompt_tokens = gauges.running = gauges.parked =
      ~std::uint64_t{0};
  gauges.kv_pages = gauges.kv_pages_free = gauges.kv_pages_shared = ~std::uint64_t{0};
  gauges.read_bytes_per_second = gauges.tokens_per_second = 1e18;
  metrics.set_gauges(gauges);
  EXPECT_TRUE(metrics.status_json(kSecond, ~std::uint64_t{0}).ends_with("}"));
}

}  // namespace
}  // namespace qsf_tools
