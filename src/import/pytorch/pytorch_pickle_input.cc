// SPDX-License-Identifier: MIT

#include "import/pytorch/pytorch_pickle_input.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <span>

namespace qsf {
namespace {

constexpr std::size_t kBufferBytes = 64U << 10;

}  // namespace

PickleInput::PickleInput(const File& file, std::uint64_t begin, std::uint64_t n_bytes) noexcept
    : file_(file),
      begin_(begin),
      n_bytes_(std::min(n_bytes, kMaxPickleBytes)),
      cut_(n_bytes > kMaxPickleBytes) {}

bool PickleInput::fill() {
  if (!ok()) return false;
  if (remaining() == 0) {
    status_ = cut_ ? unsupported("the pickle is longer than %" PRIu64 " bytes", kMaxPickleBytes)
                   : corrupt("the pickle ends at byte %" PRIu64
                             " without being complete; the file is truncated or damaged",
                             n_bytes_);
    return false;
  }
  buffer_.resize(std::min<std::uint64_t>(kBufferBytes, remaining()));
  used_ = 0;
  status_ = file_.read_exact_at(begin_ + position_, buffer_);
  return ok();
}

bool PickleInput::take(MutableByteSpan to) {
  while (ok() && !to.empty()) {
    if (used_ == buffer_.size() && !fill()) return false;
    const std::size_t n = std::min(to.size(), buffer_.size() - used_);
    std::memcpy(to.data(), buffer_.data() + used_, n);
    used_ += n;
    position_ += n;
    to = to.subspan(n);
  }
  return ok();
}

std::string PickleInput::read_text(std::size_t n_bytes) {
  std::string text(n_bytes, '\0');
  if (!take(std::as_writable_bytes(std::span(text)))) text.clear();
  return text;
}

std::string PickleInput::read_line(std::size_t max_bytes) {
  std::string line;
  while (line.size() <= max_bytes) {
    const char next = read<char>();
    if (!ok()) return {};
    if (next == '\n') return line;
    line += next;
  }
  status_ = corrupt("a line of more than %zu bytes", max_bytes);
  return {};
}

}  // namespace qsf
