// SPDX-License-Identifier: MIT
//
// For tests that run qsf-convert as a user does.

#ifndef QSF_TOOLS_TESTING_CONVERT_TOOL_H_
#define QSF_TOOLS_TESTING_CONVERT_TOOL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "import/testing/hf_folder.h"

namespace qsf::testing_support {

struct Outcome {
  int code = -1;                 // -1: ended by a signal
  std::uint64_t peak_bytes = 0;  // of memory that it had
  std::string out;
  std::string err;
};

inline constexpr rlim_t kNoLimit = RLIM_INFINITY;

// Starts a tool, the first of `arguments`, with its output in files of `scratch`.
inline pid_t start_tool(const TemporaryFolder& scratch, std::vector<std::string> arguments,
                        rlim_t file_bytes = kNoLimit, rlim_t address_bytes = kNoLimit) {
  arguments.front() = QSF_BIN_DIR "/" + arguments.front();
  const pid_t child = fork();
  if (child != 0) return child;
  static_cast<void>(!freopen(scratch.file("stdout").c_str(), "w", stdout));
  static_cast<void>(!freopen(scratch.file("stderr").c_str(), "w", stderr));
  if (file_bytes != kNoLimit) {
    const rlimit limit = {file_bytes, file_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (address_bytes != kNoLimit) {
    const rlimit limit = {address_bytes, address_bytes};
    setrlimit(RLIMIT_AS, &limit);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

inline pid_t start(const TemporaryFolder& scratch, std::vector<std::string> arguments,
                   rlim_t file_bytes, rlim_t address_bytes = kNoLimit) {
  arguments.insert(arguments.begin(), "qsf-convert");
  return start_tool(scratch, std::move(arguments), file_bytes, address_bytes);
}

inline Outcome finish(const TemporaryFolder& scratch, pid_t child) {
  int status = 0;
  rusage usage = {};
  wait4(child, &status, 0, &usage);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          static_cast<std::uint64_t>(usage.ru_maxrss) * 1024, scratch.read("stdout"),
          scratch.read("stderr")};
}

inline Outcome run(const std::vector<std::string>& arguments, rlim_t file_bytes = kNoLimit) {
  const TemporaryFolder scratch;
  return finish(scratch, start(scratch, arguments, file_bytes));
}

// A failure is one line on stderr that begins with the tool's name, behind warnings and, on a slow
// machine, lines of progress; and nothing on stdout.
inline void expect_failure(const Outcome& outcome, int code, const std::string& message) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  std::string last = outcome.err;
  const auto comes_before = [](const std::string& line) {
    return line.starts_with("qsf-convert: warning:") || line.find(" %, ") != std::string::npos;
  };
  while (comes_before(last.substr(0, last.find('\n')))) last = last.substr(last.find('\n') + 1);
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(last.starts_with("qsf-convert: ")) << outcome.err;
  EXPECT_THAT(last, testing::HasSubstr(message));
}

}  // namespace qsf::testing_support

#endif  // QSF_TOOLS_TESTING_CONVERT_TOOL_H_
