// SPDX-License-Identifier: MIT
//
// Shared parts of the command-line tools; see tool_support.h.

#include "tools/common/tool_support.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tools/common/console.h"
#include "tools/common/file_path.h"

namespace qsf_tools {

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kRedraw = kSecond / 10;

std::uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// Returns the bytes of the UTF-8 character that `text` begins with, 0 when it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t n_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (text.size() < n_bytes) return 0;
  for (std::size_t i = 1; i < n_bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  const unsigned second = byte(1);
  const bool refused = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                       (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return refused ? 0 : n_bytes;
}

}  // namespace

void print_error(std::string_view tool, std::string_view message) {
  std::string line = std::string(tool) + ": " + valid_utf8(message);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  std::fprintf(stderr, "%s\n", for_terminal(line).c_str());
}

bool is_regular_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file_path(path), ignored);
}

std::optional<std::string> read_text(const std::string& path, std::size_t max_bytes,
                                     std::string& error) {
  const bool is_stdin = path == "-";
  const std::string name = is_stdin ? "standard input" : path;
  const auto close = [](std::FILE* file) { return std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> opened(
      is_stdin ? nullptr : std::fopen(path.c_str(), "rb"), close);
  std::FILE* const file = is_stdin ? stdin : opened.get();
  if (file == nullptr) {
    error = name + ": " + std::strerror(errno);
    return std::nullopt;
  }
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n_read = std::fread(buffer, 1, sizeof buffer, file)) {
    text.append(buffer, n_read);
    if (text.size() > max_bytes) {
      error = name + ": more than " + megabytes(max_bytes) + " of text";
      return std::nullopt;
    }
  }
  if (std::ferror(file) == 0) return text;
  error = name + ": " + std::strerror(errno);
  return std::nullopt;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n_bytes = character_bytes(text);
    out += n_bytes == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, n_bytes);
    text.remove_prefix(std::max<std::size_t>(n_bytes, 1));
  }
  return out;
}

std::string for_terminal(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      shown += kReplacement;
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      shown += kReplacement;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

std::string megabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

double per_second(std::uint64_t count, std::uint64_t ns) {
  return ns == 0 ? 0.0 : static_cast<double>(count) / seconds(ns);
}

double seconds(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

ProgressLine::ProgressLine(std::string_view tool, bool enabled)
    : tool_(tool),
      enabled_(enabled),
      terminal_(is_terminal(StandardStream::kError)),
      next_ns_(now_ns() + kSecond) {}

bool ProgressLine::due() {
  return enabled_ && now_ns() >= next_ns_;
}

void ProgressLine::show(const std::string& text) {
  if (!enabled_) return;
  next_ns_ = now_ns() + (terminal_ ? kRedraw : kSecond);
  // ESC [ K clears what a longer line left behind.
  std::fprintf(stderr, terminal_ ? "\r%s: %s\033[K" : "%s: %s\n", tool_.c_str(), text.c_str());
  drawn_ = terminal_;
}

void ProgressLine::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace qsf_tools
