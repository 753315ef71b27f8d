// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/serve_metrics.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace qsf_tools {

namespace {

// A pass that takes this many times the longest one before, and this long, is stuck.
constexpr std::uint64_t kStuckPasses = 10;
constexpr std::uint64_t kStuckNs = 60'000'000'000;
constexpr int kStuckPassesWithoutRows = 3;

// One metric in the text format of Prometheus.
class MetricText {
 public:
  explicit MetricText(std::string& text) : text_(text) {}

  void head(const char* name, const char* type, const char* help) {
    text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void value(const std::string& series, std::uint64_t number) {
    text_ += series + " " + std::to_string(number) + "\n";
  }
  void value(const std::string& series, double number) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, " %.9g\n", number);
    text_ += series + buffer;
  }
  void counter(const char* name, const char* help, std::uint64_t number) {
    head(name, "counter", help);
    value(name, number);
  }
  void gauge(const char* name, const char* help, std::uint64_t number) {
    head(name, "gauge", help);
    value(name, number);
  }
  void gauge(const char* name, const char* help, double number) {
    head(name, "gauge", help);
    value(name, number);
  }

 private:
  std::string& text_;
};

// Text as a JSON string or the value of a label: both escape quotes and backslashes alike.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

namespace {

void append_folder(MetricText& out, const CacheFolderGauges& folder) {
  out.counter("qsf_cache_folder_hits_total",
              "Prompts that began with pages read from the cache folder", folder.hits);
  out.counter("qsf_cache_folder_hit_tokens_total", "Their tokens that were read",
              folder.hit_tokens);
  out.gauge("qsf_cache_folder_files", "Files in the cache folder", folder.files);
  out.gauge("qsf_cache_folder_bytes", "Their bytes", folder.bytes);
  out.counter("qsf_cache_folder_written_bytes_total", "Bytes written to the cache folder",
              folder.bytes_written);
  out.counter("qsf_cache_folder_read_bytes_total", "Bytes read from it", folder.bytes_read);
  out.counter("qsf_cache_folder_removed_files_total", "Files removed for newer ones",
              folder.removed_files);
  out.counter("qsf_cache_folder_dropped_pages_total",
              "Pages not written because too many left memory in one pass", folder.dropped_pages);
  out.head("qsf_cache_folder_errors_total", "counter", "Pages that could not be written or read");
  out.value("qsf_cache_folder_errors_total{operation=\"write\"}", folder.write_errors);
  out.value("qsf_cache_folder_errors_total{operation=\"read\"}", folder.read_errors);
}

}  // namespace

std::string_view to_string(ServerState state) noexcept {
  switch (state) {
    case ServerState::kStarting: return "starting";
    case ServerState::kReady: return "ready";
    case ServerState::kDraining: return "draining";
    case ServerState::kStuck: return "stuck";
  }
  return "ready";
}

void DurationHistogram::add(double seconds) noexcept {
  const auto* const bound = std::lower_bound(kBoundsSeconds.begin(), kBoundsSeconds.end(), seconds);
  counts_[static_cast<std::size_t>(bound - kBoundsSeconds.begin())].fetch_add(
      1, std::memory_order_relaxed);
  sum_us_.fetch_add(static_cast<std::uint64_t>(std::max(seconds, 0.0) * 1e6),
                    std::memory_order_relaxed);
}

void DurationHistogram::append_to(std::string& text, std::string_view name,
                                  std::string_view help) const {
  const std::string metric(name);
  MetricText out(text);
  out.head(metric.c_str(), "histogram", std::string(help).c_str());
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    char bound[24] = "+Inf";
    if (i < kBoundsSeconds.size()) std::snprintf(bound, sizeof bound, "%g", kBoundsSeconds[i]);
    out.value(metric + "_bucket{le=\"" + bound + "\"}", total);
  }
  out.value(metric + "_sum", static_cast<double>(sum_us_.load(std::memory_order_relaxed)) * 1e-6);
  out.value(metric + "_count", total);
}

void ServeMetrics::set_gauges(const ServeGauges& gauges) {
  const std::lock_guard lock(mutex_);
  gauges_ = gauges;
}

ServeGauges ServeMetrics::gauges() const {
  const std::lock_guard lock(mutex_);
  return gauges_;
}

void ServeMetrics::add_tokens(std::uint64_t prompt, std::uint64_t cached,
                              std::uint64_t generated) noexcept {
  prompt_tokens_.fetch_add(prompt, std::memory_order_relaxed);
  cached_tokens_.fetch_add(cached, std::memory_order_relaxed);
  generated_tokens_.fetch_add(generated, std::memory_order_relaxed);
}

void ServeMetrics::pass_begins(std::uint64_t now_ns) noexcept {
  pass_start_ns_.store(now_ns, std::memory_order_relaxed);
}

void ServeMetrics::pass_ended(std::uint64_t now_ns, int rows, bool had_members) noexcept {
  const std::uint64_t took = now_ns - pass_start_ns_.exchange(0, std::memory_order_relaxed);
  passes_.fetch_add(1, std::memory_order_relaxed);
  if (took > longest_pass_ns_.load(std::memory_order_relaxed)) {
    longest_pass_ns_.store(took, std::memory_order_relaxed);
  }
  const int without =
      rows > 0 || !had_members ? 0 : passes_without_rows_.load(std::memory_order_relaxed) + 1;
  passes_without_rows_.store(without, std::memory_order_relaxed);
}

void ServeMetrics::add_drafts(int n_drafted, int n_accepted) noexcept {
  drafted_tokens_.fetch_add(static_cast<std::uint64_t>(n_drafted), std::memory_order_relaxed);
  accepted_tokens_.fetch_add(static_cast<std::uint64_t>(n_accepted), std::memory_order_relaxed);
}

ServerState ServeMetrics::state(std::uint64_t now_ns) const noexcept {
  const std::uint64_t start = pass_start_ns_.load(std::memory_order_relaxed);
  const std::uint64_t longest = longest_pass_ns_.load(std::memory_order_relaxed);
  const bool hangs =
      start != 0 && now_ns > start && now_ns - start > std::max(kStuckNs, kStuckPasses * longest);
  if (hangs || passes_without_rows_.load(std::memory_order_relaxed) >= kStuckPassesWithoutRows) {
    return ServerState::kStuck;
  }
  return state_.load(std::memory_order_relaxed);
}

std::string ServeMetrics::prometheus(std::uint64_t now_ns, std::uint64_t connections,
                                     std::string_view http_lines) const {
  const ServeGauges now = gauges();
  std::string text;
  MetricText out(text);
  out.head("qsf_state", "gauge", "1 for the state that the server is in");
  for (const ServerState state :
       {ServerState::kStarting, ServerState::kReady, ServerState::kDraining, ServerState::kStuck}) {
    out.value("qsf_state{state=" + quoted(to_string(state)) + "}",
              std::uint64_t{this->state(now_ns) == state ? 1U : 0U});
  }
  out.counter("qsf_prompt_tokens_total", "Prompt tokens of ended texts, cached ones included",
              prompt_tokens_.load(std::memory_order_relaxed));
  out.counter("qsf_cached_prompt_tokens_total", "Prompt tokens read from the prefix cache",
              cached_tokens_.load(std::memory_order_relaxed));
  out.counter("qsf_generated_tokens_total", "Generated tokens",
              generated_tokens_.load(std::memory_order_relaxed));
  out.counter("qsf_drafted_tokens_total", "Tokens drafted by speculation",
              drafted_tokens_.load(std::memory_order_relaxed));
  out.counter("qsf_accepted_draft_tokens_total", "Drafted tokens that were accepted",
              accepted_tokens_.load(std::memory_order_relaxed));
  out.counter("qsf_passes_total", "Passes through the layers",
              passes_.load(std::memory_order_relaxed));
  out.gauge("qsf_connections", "Open connections", connections);
  out.gauge("qsf_waiting_requests", "Requests that wait for admission", now.waiting);
  out.gauge("qsf_waiting_prompt_tokens", "Their prompt tokens", now.waiting_prompt_tokens);
  out.gauge("qsf_running_texts", "Texts that are being generated", now.running);
  out.gauge("qsf_parked_texts", "Texts parked in session files", now.parked);
  out.counter("qsf_parkings_total", "How often a text was parked", now.parkings);
  out.gauge("qsf_kv_pages", "Pages of the KV cache", now.kv_pages);
  out.gauge("qsf_kv_pages_free", "Pages that no text holds", now.kv_pages_free);
  out.gauge("qsf_kv_pages_shared", "Pages held by the prefix cache", now.kv_pages_shared);
  out.counter("qsf_prefix_hits_total", "Prompts that began with a cached prefix", now.prefix_hits);
  out.head("qsf_prefix_misses_total", "counter", "Prompts without a cached prefix, by reason");
  for (std::size_t i = 0; i < kMissReasons.size(); ++i) {
    out.value(std::string("qsf_prefix_misses_total{reason=\"") + kMissReasons[i] + "\"}",
              now.prefix_misses[i]);
  }
  out.counter("qsf_prefix_evictions_total", "Pages evicted from the prefix cache",
              now.prefix_evictions);
  append_folder(out, now.folder);
  out.counter("qsf_weight_bytes_read_total", "Bytes of weights read from the file",
              now.weight_bytes_read);
  out.gauge("qsf_memory_budget_bytes", "Budget of the memory plan", now.budget_bytes);
  out.gauge("qsf_memory_planned_bytes", "Memory planned", now.planned_bytes);
  out.gauge("qsf_memory_resident_bytes", "Memory of the process", now.resident_bytes);
  out.gauge("qsf_memory_peak_resident_bytes", "The most so far", now.peak_resident_bytes);
  out.gauge("qsf_tokens_per_second", "Tokens generated a second, over the newest passes",
            now.tokens_per_second);
  time_to_first_token.append_to(text, "qsf_time_to_first_token_seconds",
                                "From the request to its first token");
  time_between_tokens.append_to(text, "qsf_time_between_tokens_seconds",
                                "Between two tokens of a text");
  queue_time.append_to(text, "qsf_queue_seconds", "From the request to its admission");
  text += http_lines;
  return text;
}

std::string ServeMetrics::status_json(std::uint64_t now_ns, std::uint64_t connections) const {
  const ServeGauges now = gauges();
  char numbers[900];
  std::snprintf(
      numbers, sizeof numbers,
      "\"memory\":{\"budget_bytes\":%" PRIu64 ",\"planned_bytes\":%" PRIu64
      ",\"resident_bytes\":%" PRIu64
      "},\"stream\":{\"resident_share\":%.4f,"
      "\"bytes_per_second\":%.0f},\"tokens_per_second\":%.2f,\"queue\":{\"requests\":%" PRIu64
      ",\"prompt_tokens\":%" PRIu64 "},\"running\":%" PRIu64 ",\"parked\":%" PRIu64
      ",\"kv\":{\"pages\":%" PRIu64 ",\"free\":%" PRIu64 ",\"shared\":%" PRIu64
      "},\"connections\":%" PRIu64 "}",
      now.budget_bytes, now.planned_bytes, now.resident_bytes, now.resident_share,
      now.read_bytes_per_second, now.tokens_per_second, now.waiting, now.waiting_prompt_tokens,
      now.running, now.parked, now.kv_pages, now.kv_pages_free, now.kv_pages_shared, connections);
  return "{\"state\":" + quoted(to_string(state(now_ns))) + ",\"model\":" + quoted(now.model) +
         "," + numbers;
}

}  // namespace qsf_tools
