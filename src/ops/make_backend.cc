// SPDX-License-Identifier: MIT

#include "ops/make_backend.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "kernels/kernel_set.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

Result<std::optional<std::uint32_t>> read_prefetch_bytes() {
  const char* const text = std::getenv("QSF_PREFETCH_BYTES");
  if (text == nullptr || *text == '\0') return std::optional<std::uint32_t>();
  const std::string_view whole = text;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (error != std::errc() || end != whole.data() + whole.size() || value > kMaxPrefetchBytes) {
    return invalid_argument("QSF_PREFETCH_BYTES: \"%.40s\", expected a number from 0 to %u", text,
                            kMaxPrefetchBytes);
  }
  return std::optional<std::uint32_t>(value);
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, bool exact) {
  QSF_ASSIGN_OR_RETURN(const kernels::Isa isa, kernels::choose_host_isa());
  QSF_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> prefetch_bytes, read_prefetch_bytes());
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(
      pool, kernels::kernel_set(isa),
      CpuBackendOptions{.exact = exact, .prefetch_bytes = prefetch_bytes}));
}

}  // namespace qsf
