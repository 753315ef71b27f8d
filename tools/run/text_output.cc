// SPDX-License-Identifier: MIT
//
// Writing to standard output without a buffer of our own: every piece is on its way at once.

#include "tools/run/text_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace qsf_tools {

bool TextOutput::write(std::string_view text) {
  if (failed()) return false;
  if (!text.empty()) last_ = text.back();
  while (!text.empty()) {
    const ssize_t n_written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n_written < 0 && errno == EINTR) continue;
    if (n_written < 0) {
      error_ = errno;
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(n_written));
  }
  return true;
}

bool TextOutput::end_line() {
  return last_ == '\n' ? !failed() : write("\n");
}

bool TextOutput::reader_left() const {
  return error_ == EPIPE;
}

const char* TextOutput::reason() const {
  return std::strerror(error_);
}

}  // namespace qsf_tools
