// SPDX-License-Identifier: MIT

#include "platform/memory.h"

#include "base/bit_cast.h"

namespace qsf {

MutableByteSpan whole_pages(MutableByteSpan bytes, std::size_t page) noexcept {
  const auto begin = bit_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = align_up(begin, page);
  const std::uintptr_t end = (begin + bytes.size()) & ~(page - 1);
  if (first >= end) return {};
  return {bytes.data() + (first - begin), end - first};
}

void touch_pages(MutableByteSpan bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += page_bytes()) {
    volatile std::byte& byte = bytes[at];
    byte = byte;
  }
  if (bytes.empty()) return;
  volatile std::byte& last = bytes.back();
  last = last;
}

}  // namespace qsf
