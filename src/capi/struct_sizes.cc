// SPDX-License-Identifier: MIT

#include "capi/struct_sizes.h"

namespace qsf::capi {

namespace {

constexpr std::size_t kWord = 8;
constexpr std::size_t kMaxStructBytes = 4096;  // a larger size was never set by anyone

}  // namespace

Status check_struct_size(const char* name, std::size_t size,
                         std::span<const std::size_t> released) {
  for (const std::size_t known : released) {
    if (size == known) return ok_status();
  }
  if (size > released.back() && size <= kMaxStructBytes && size % kWord == 0) return ok_status();
  return invalid_argument(
      "%s: struct_size %zu, expected %zu or the size of another release: call its init function or "
      "set it to sizeof",
      name, size, released.back());
}

Status check_unknown_bytes(const char* name, const void* from, std::size_t n_known,
                           std::size_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(from);
  for (std::size_t i = n_known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return unsupported(
        "%s: struct_size %zu, byte %zu is 0x%02x: this library knows %zu bytes; leave the others 0 "
        "or use a newer library",
        name, size, i, static_cast<unsigned>(bytes[i]), n_known);
  }
  return ok_status();
}

}  // namespace qsf::capi
