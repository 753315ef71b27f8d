// SPDX-License-Identifier: MIT
//
// Names of files for tests: no two processes share one, so that two runs on a machine do not write
// over each other's files.

#ifndef QSF_BASE_TESTING_TEMPORARY_PATH_H_
#define QSF_BASE_TESTING_TEMPORARY_PATH_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <system_error>

namespace qsf::testing_support {

// Returns a path for a file or a folder of this process. What is there when the process ends is
// removed.
inline std::string temporary_path(const std::string& name) {
  struct Paths {
    ~Paths() {
      std::error_code ignored;
      for (const std::string& path : made) std::filesystem::remove_all(path, ignored);
    }
    std::set<std::string> made;
  };
  static Paths paths;
  return *paths.made.insert(testing::TempDir() + "qsf." + std::to_string(::getpid()) + "." + name)
              .first;
}

}  // namespace qsf::testing_support

#endif  // QSF_BASE_TESTING_TEMPORARY_PATH_H_
