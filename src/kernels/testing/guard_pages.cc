// SPDX-License-Identifier: MIT
//
// Guarded operands by mmap and mprotect.

#include "kernels/testing/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"

namespace qsf::kernels::testing_support {
namespace {

constexpr std::byte kPattern{0xA5};

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

GuardedBytes::GuardedBytes(std::size_t n_bytes) : n_bytes_(n_bytes) {
  const std::size_t page = page_bytes();
  const std::size_t usable = align_up(n_bytes + 1, page);  // at least one pattern byte in front
  mapped_bytes_ = usable + 2 * page;
  void* base = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  QSF_CHECK(base != MAP_FAILED);
  base_ = static_cast<std::byte*>(base);
  QSF_CHECK(mprotect(base_ + page, usable, PROT_READ | PROT_WRITE) == 0);
  std::memset(base_ + page, static_cast<int>(kPattern), usable);
  data_ = base_ + page + usable - n_bytes;
  if (n_bytes > 0) std::memset(data_, 0, n_bytes);
}

GuardedBytes::~GuardedBytes() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

GuardedBytes::GuardedBytes(GuardedBytes&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      data_(other.data_),
      n_bytes_(other.n_bytes_) {}

bool GuardedBytes::front_intact() const noexcept {
  for (const std::byte* p = base_ + page_bytes(); p < data_; ++p) {
    if (*p != kPattern) return false;
  }
  return true;
}

}  // namespace qsf::kernels::testing_support
