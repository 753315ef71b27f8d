// SPDX-License-Identifier: MIT
//
// Logging is a callback: the library itself never prints.

#ifndef QSF_BASE_LOG_H_
#define QSF_BASE_LOG_H_

#include <string_view>

namespace qsf {

enum class LogLevel { kInfo, kWarning };

// Receives one line without its newline. May be called from any thread, one call at a time.
struct LogSink {
  void (*write)(LogLevel level, std::string_view line, void* user) = nullptr;
  void* user = nullptr;

  void info(std::string_view line) const {
    if (write != nullptr) write(LogLevel::kInfo, line, user);
  }
  void warning(std::string_view line) const {
    if (write != nullptr) write(LogLevel::kWarning, line, user);
  }
};

}  // namespace qsf

#endif  // QSF_BASE_LOG_H_
