// SPDX-License-Identifier: MIT
#include "tools/serve/api/api_settings.h"

#include <chrono>
#include <random>

namespace qsf_tools {

namespace {

// Random enough for ids and seeds; nothing depends on their being secret.
std::uint64_t random_bits() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return generator();
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kLength = 24;
  std::string id(prefix);
  for (int i = 0; i < kLength; ++i) id += kDigits[random_bits() % kDigits.size()];
  return id;
}

std::int64_t system_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::uint64_t steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

ApiSettings::ApiSettings()
    : access(&engine_access()),
      list_models([] { return std::vector<ModelListing>(); }),
      now_seconds(&system_seconds),
      now_ns(&steady_ns),
      make_id(&random_id),
      make_seed(&random_bits) {
  qsf_sampling_init(&sampling);
}

}  // namespace qsf_tools
