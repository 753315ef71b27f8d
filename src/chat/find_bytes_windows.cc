// SPDX-License-Identifier: MIT

#include <vector>

#include "chat/jinja_text.h"

namespace qsf::jinja {

// Knuth, Morris and Pratt: templates come from files, so that no text may take quadratic time.
std::size_t find_bytes(std::string_view haystack, std::string_view needle, std::size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // The length of the longest proper beginning of the needle that ends at each of its bytes.
  std::vector<std::size_t> borders(needle.size());
  for (std::size_t i = 1, border = 0; i < needle.size(); ++i) {
    while (border > 0 && needle[i] != needle[border]) border = borders[border - 1];
    if (needle[i] == needle[border]) ++border;
    borders[i] = border;
  }
  for (std::size_t i = from, n_equal = 0; i < haystack.size(); ++i) {
    while (n_equal > 0 && haystack[i] != needle[n_equal]) n_equal = borders[n_equal - 1];
    if (haystack[i] == needle[n_equal]) ++n_equal;
    if (n_equal == needle.size()) return i + 1 - n_equal;
  }
  return std::string_view::npos;
}

}  // namespace qsf::jinja
