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
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
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

// A model that converts in a second, and a text of some hundred tokens.
inline const std::string kModel = QSF_SOURCE_DIR "/models/tales-5M";
inline const std::string kTale = QSF_SOURCE_DIR "/testdata/tale.txt";

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

enum class FileState {
  kInTheMaking,  // has no name yet, or a temporary one
  kRemoved,      // has lost its name
};

// Waits until `is_so()` while a tool runs, which finish() has yet to wait for. Returns whether it
// still ran then.
template <typename Condition>
bool wait_for(pid_t child, const Condition& is_so) {
  for (;;) {
    siginfo_t ended = {};
    waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == child) return false;
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Waits until a tool has an open file whose name, as the system tells it, `is_it`; as wait_for().
template <typename Condition>
bool wait_for_open(pid_t child, const Condition& is_it) {
  const std::string links = "/proc/" + std::to_string(child) + "/fd";
  return wait_for(child, [&] {
    std::error_code failure;
    for (std::filesystem::directory_iterator entry(links, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      std::error_code gone;
      if (is_it(std::filesystem::read_symlink(entry->path(), gone).string())) return true;
    }
    return false;
  });
}

// Waits until a tool has such a file of that folder open, as wait_for().
inline bool wait_for_file(const TemporaryFolder& folder, pid_t child, FileState wanted) {
  return wait_for_open(child, [&](const std::string& file) {
    if (!file.starts_with(folder.path())) return false;
    // A file that never had a name is shown with a number in its place.
    const bool in_the_making =
        file.find("/#") != std::string::npos || file.find(".tmp-") != std::string::npos;
    const bool removed = !in_the_making && file.ends_with(" (deleted)");
    return wanted == FileState::kInTheMaking ? in_the_making : removed;
  });
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

// A failure is one line on stderr that begins with the tool's name, behind warnings, what a
// conversion goes on from and, on a slow machine, lines of progress; and nothing on stdout.
inline void expect_failure(const Outcome& outcome, int code, const std::string& message) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  std::string last = outcome.err;
  const auto comes_before = [](const std::string& line) {
    return line.starts_with("qsf-convert: warning:") ||
           line.starts_with("qsf-convert: resuming from") || line.find(" %, ") != std::string::npos;
  };
  while (comes_before(last.substr(0, last.find('\n')))) last = last.substr(last.find('\n') + 1);
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(last.starts_with("qsf-convert: ")) << outcome.err;
  EXPECT_THAT(last, testing::HasSubstr(message));
}

}  // namespace qsf::testing_support

#endif  // QSF_TOOLS_TESTING_CONVERT_TOOL_H_
