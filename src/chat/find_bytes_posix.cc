// SPDX-License-Identifier: MIT

#include <cstring>

#include "chat/jinja_text.h"

namespace qsf::jinja {

std::size_t find_bytes(std::string_view haystack, std::string_view needle, std::size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found =
      memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - haystack.data());
}

}  // namespace qsf::jinja
