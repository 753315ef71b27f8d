// SPDX-License-Identifier: MIT
#include "tools/serve/web/file_answer.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace qsf_tools {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Whether a list of entity tags, or a star, names a tag. `weak`: one marked as weak does too.
bool names_tag(std::string_view list, std::string_view etag, bool weak) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view item = trimmed(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (weak && item.starts_with("W/")) item.remove_prefix(2);
    if (item == etag || item == "*") return true;
  }
  return false;
}

std::optional<std::uint64_t> number(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size()) return {};
  return value;
}

// Returns the answer to a header Range of one range; nothing where it is another or not understood.
std::optional<FileAnswer> answer_range(std::string_view range, std::uint64_t file_bytes) {
  constexpr std::string_view kUnit = "bytes=";
  if (!range.starts_with(kUnit)) return std::nullopt;
  range = trimmed(range.substr(kUnit.size()));
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view first_text = range.substr(0, dash);
  const std::string_view last_text = range.substr(dash + 1);
  const std::optional<std::uint64_t> first = number(first_text);
  const std::optional<std::uint64_t> last = number(last_text);
  if ((!first && !first_text.empty()) || (!last && !last_text.empty())) return std::nullopt;
  if (!first && !last) return std::nullopt;
  if (!first) {  // the last so many bytes
    const std::uint64_t n_bytes = std::min(*last, file_bytes);
    if (n_bytes == 0) return FileAnswer{.status = 416};
    return FileAnswer{.status = 206, .first = file_bytes - n_bytes, .n_bytes = n_bytes};
  }
  if (last && *last < *first) return std::nullopt;
  if (*first >= file_bytes) return FileAnswer{.status = 416};
  const std::uint64_t end = last && *last < file_bytes ? *last + 1 : file_bytes;
  return FileAnswer{.status = 206, .first = *first, .n_bytes = end - *first};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

FileAnswer answer_file(const HttpRequest& request, std::uint64_t file_bytes,
                       std::string_view etag) {
  const std::string_view if_match = request.header("If-Match");
  if (!if_match.empty() && !names_tag(if_match, etag, /*weak=*/false)) return {.status = 412};
  if (names_tag(request.header("If-None-Match"), etag, /*weak=*/true)) return {.status = 304};
  const std::string_view if_range = request.header("If-Range");
  if (if_range.empty() || if_range == etag) {
    if (const auto ranged = answer_range(request.header("Range"), file_bytes)) return *ranged;
  }
  return {.status = 200, .first = 0, .n_bytes = file_bytes};
}

std::string decoded_path(std::string_view path) {
  std::string decoded;
  for (std::size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '%') {
      const int high = i + 2 < path.size() ? hex_digit(path[i + 1]) : -1;
      const int low = i + 2 < path.size() ? hex_digit(path[i + 2]) : -1;
      if (high < 0 || low < 0) return {};
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return {};
    decoded += c;
  }
  return decoded;
}

}  // namespace qsf_tools
