// SPDX-License-Identifier: MIT
//
// The option of the ways in which weights are read.

#ifndef QSF_TOOLS_COMMON_READ_PATH_OPTION_H_
#define QSF_TOOLS_COMMON_READ_PATH_OPTION_H_

#include <CLI/CLI.hpp>
#include <string>

#include "qsf/qsf.h"

namespace qsf_tools {

inline void add_read_path_option(
    CLI::App& app, std::string& value,
    const char* description =
        "How weights are read: auto, uring, pread, or mmap, which leaves it "
        "to the kernel what stays in memory") {
  app.add_option("--io", value, description)
      ->type_name("PATH")
      ->check(CLI::IsMember({"auto", "uring", "pread", "mmap"}))
      ->capture_default_str();
}

// Requires  a value that the option accepts
inline qsf_read_path read_path_of(const std::string& value) {
  if (value == "uring") return QSF_READ_URING;
  if (value == "pread") return QSF_READ_PREAD;
  return value == "mmap" ? QSF_READ_MMAP : QSF_READ_AUTO;
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_READ_PATH_OPTION_H_
