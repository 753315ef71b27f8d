// SPDX-License-Identifier: MIT
//
// Lists of CPUs and quotas decoded, and the threads that follow from them.
//
// One thread a core: the second hardware thread of a core shares the vector units and caches that
// matrix kernels fill, and a bandwidth-bound decode gains nothing from it.

#include "platform/cpu_count.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "platform/threads.h"

namespace qsf {
namespace {

// Takes the next word, up to white space or the end.
std::string_view take_word(std::string_view* text) {
  const std::size_t first = std::min(text->find_first_not_of(" \t\n"), text->size());
  const std::size_t last = std::min(text->find_first_of(" \t\n", first), text->size());
  const std::string_view word = text->substr(first, last - first);
  text->remove_prefix(last);
  return word;
}

bool parse_number(std::string_view text, std::int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size();
}

double quota_of(std::int64_t quota_us, std::int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return kNoQuota;
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

}  // namespace

std::vector<unsigned> parse_cpu_list(std::string_view text) {
  constexpr std::int64_t kMaxCpu = 1 << 16;
  std::vector<unsigned> cpus;
  text = take_word(&text);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = std::min(range.find('-'), range.size());
    std::int64_t first = 0;
    if (!parse_number(range.substr(0, dash), &first)) return {};
    std::int64_t last = first;
    if (dash < range.size() && !parse_number(range.substr(dash + 1), &last)) return {};
    if (first < 0 || last < first || last > kMaxCpu) return {};
    for (std::int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<unsigned>(cpu));
  }
  return cpus;
}

double parse_cpu_max(std::string_view text) {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  if (!parse_number(take_word(&text), &quota_us)) return kNoQuota;
  if (!parse_number(take_word(&text), &period_us)) return kNoQuota;
  return quota_of(quota_us, period_us);
}

double parse_cfs_quota(std::string_view quota_text, std::string_view period_text) {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  if (!parse_number(take_word(&quota_text), &quota_us)) return kNoQuota;
  if (!parse_number(take_word(&period_text), &period_us)) return kNoQuota;
  return quota_of(quota_us, period_us);
}

namespace {

unsigned at_most_quota(const std::string& root, std::size_t n_cpus) {
  const double usable = std::min(
      {static_cast<double>(n_cpus), std::ceil(cpu_quota(root)), static_cast<double>(kMaxThreads)});
  return std::max(1U, static_cast<unsigned>(usable));
}

}  // namespace

unsigned usable_cores(const std::string& root, std::span<const unsigned> cpus) {
  return at_most_quota(root, one_cpu_per_core(root, cpus).size());
}

unsigned usable_cpus(const std::string& root, std::span<const unsigned> cpus) {
  return at_most_quota(root, cpus.size());
}

unsigned default_thread_count() {
  return usable_cores("", allowed_cpus());
}

}  // namespace qsf
