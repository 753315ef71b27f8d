// SPDX-License-Identifier: MIT

#include "kernels/testing/guard_pages.h"

#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace qsf::kernels::testing_support {
namespace {

constexpr std::byte kPattern{0xA5};

}  // namespace

GuardedBytes::GuardedBytes(std::size_t n_bytes) : n_bytes_(n_bytes) {
  const std::size_t page = guard_bytes();
  const std::size_t usable = align_up(n_bytes + 1, page);  // at least one pattern byte in front
  mapped_bytes_ = usable + 2 * page;
  base_ = map_between_guards(mapped_bytes_);
  QSF_CHECK(base_ != nullptr);
  std::memset(base_ + page, static_cast<int>(kPattern), usable);
  data_ = base_ + page + usable - n_bytes;
  if (n_bytes > 0) std::memset(data_, 0, n_bytes);
}

GuardedBytes::~GuardedBytes() {
  if (base_ != nullptr) unmap_guarded(base_, mapped_bytes_);
}

GuardedBytes::GuardedBytes(GuardedBytes&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      data_(other.data_),
      n_bytes_(other.n_bytes_) {}

bool GuardedBytes::front_intact() const noexcept {
  for (const std::byte* p = base_ + guard_bytes(); p < data_; ++p) {
    if (*p != kPattern) return false;
  }
  return true;
}

}  // namespace qsf::kernels::testing_support
