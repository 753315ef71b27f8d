// SPDX-License-Identifier: MIT
//
// The counters of a server: written by the scheduler, read by the network thread at any time, so
// that health and metrics are answered while a pass runs.

#ifndef QSF_TOOLS_SERVE_SCHEDULE_SERVE_METRICS_H_
#define QSF_TOOLS_SERVE_SCHEDULE_SERVE_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace qsf_tools {

enum class ServerState : std::uint8_t { kStarting, kReady, kDraining, kStuck };
std::string_view to_string(ServerState state) noexcept;

// A histogram of durations in the form of Prometheus.
// Threads  any
class DurationHistogram {
 public:
  static constexpr std::array<double, 16> kBoundsSeconds = {
      0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0};

  void add(double seconds) noexcept;
  // Appends the lines of a metric of that name.
  void append_to(std::string& text, std::string_view name, std::string_view help) const;

 private:
  std::array<std::atomic<std::uint64_t>, kBoundsSeconds.size() + 1> counts_{};
  std::atomic<std::uint64_t> sum_us_{0};
};

// Why a prompt found no cached prefix.
inline constexpr std::array kMissReasons = {"no_entry", "too_short", "other_key", "continued"};

// The folder of the prefix cache, as qsf_prefix_stats tells it.
struct CacheFolderGauges {
  std::uint64_t hits = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t removed_files = 0;
  std::uint64_t dropped_pages = 0;
  std::uint64_t write_errors = 0;
  std::uint64_t read_errors = 0;
};

// What the scheduler tells of one engine, and of all waiting requests. Written whole after a pass.
struct ServeGauges {
  std::string model;  // loaded and used last; empty: none
  std::uint64_t budget_bytes = 0;
  std::uint64_t planned_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  double resident_share = 1.0;
  std::uint64_t weight_bytes_read = 0;
  double read_bytes_per_second = 0.0;
  double tokens_per_second = 0.0;
  std::uint64_t kv_pages = 0;
  std::uint64_t kv_pages_free = 0;
  std::uint64_t kv_pages_shared = 0;
  std::uint64_t prefix_hits = 0;
  std::array<std::uint64_t, 4> prefix_misses{};  // in the order of kMissReasons
  std::uint64_t prefix_evictions = 0;
  CacheFolderGauges folder;
  std::uint64_t running = 0;
  std::uint64_t parked = 0;
  std::uint64_t parkings = 0;  // so far
  std::uint64_t waiting = 0;
  std::uint64_t waiting_prompt_tokens = 0;
};

class ServeMetrics {
 public:
  // Of the scheduler.
  void set_state(ServerState state) noexcept { state_.store(state, std::memory_order_relaxed); }
  void set_gauges(const ServeGauges& gauges);
  void add_tokens(std::uint64_t prompt, std::uint64_t cached, std::uint64_t generated) noexcept;
  void add_drafts(int n_drafted, int n_accepted) noexcept;
  // A pass begins, or ended with that many rows.
  void pass_begins(std::uint64_t now_ns) noexcept;
  void pass_ended(std::uint64_t now_ns, int rows, bool had_members) noexcept;
  DurationHistogram time_to_first_token;
  DurationHistogram time_between_tokens;
  DurationHistogram queue_time;

  // Threads  any
  ServerState state(std::uint64_t now_ns) const noexcept;
  ServeGauges gauges() const;
  // The text of /metrics and the body of /status. `connections` and `http` come from the server.
  std::string prometheus(std::uint64_t now_ns, std::uint64_t connections,
                         std::string_view http_lines) const;
  std::string status_json(std::uint64_t now_ns, std::uint64_t connections) const;

 private:
  std::atomic<ServerState> state_{ServerState::kStarting};
  std::atomic<std::uint64_t> pass_start_ns_{0};  // 0: no pass runs
  std::atomic<std::uint64_t> longest_pass_ns_{0};
  std::atomic<int> passes_without_rows_{0};
  std::atomic<std::uint64_t> prompt_tokens_{0};
  std::atomic<std::uint64_t> cached_tokens_{0};
  std::atomic<std::uint64_t> drafted_tokens_{0};
  std::atomic<std::uint64_t> accepted_tokens_{0};
  std::atomic<std::uint64_t> generated_tokens_{0};
  std::atomic<std::uint64_t> passes_{0};
  mutable std::mutex mutex_;
  ServeGauges gauges_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SCHEDULE_SERVE_METRICS_H_
