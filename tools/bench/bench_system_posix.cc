// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tools/bench/bench_system.h"
#include "tools/common/posix_calls.h"

extern char** environ;

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxOutputBytes = 1U << 20;

// The two ends of a pipe, closed when it goes.
struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

std::string read_to_end(int from) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t n = ::read(from, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    if (text.size() < kMaxOutputBytes) text.append(part, static_cast<std::size_t>(n));
  }
}

bool is_program(const std::string& path) {
  if (path.find('/') != std::string::npos) return ::access(path.c_str(), X_OK) == 0;
  const char* const folders = std::getenv("PATH");
  std::string folder;
  for (const char c : std::string(folders == nullptr ? "" : folders) + ":") {
    if (c != ':') {
      folder.push_back(c);
      continue;
    }
    if (::access((folder + "/" + path).c_str(), X_OK) == 0) return true;
    folder.clear();
  }
  return false;
}

}  // namespace

std::string system_name() {
  utsname system = {};
  if (::uname(&system) != 0) return {};
  return std::string(system.sysname) + " " + system.release;
}

std::uint64_t machine_memory_bytes() {
  const long n_pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (n_pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<std::uint64_t>(n_pages) * static_cast<std::uint64_t>(page_bytes);
}

bool is_readable(const std::string& path) {
  return ::access(path.c_str(), R_OK) == 0;
}

std::string program_problem(const std::string& path) {
  return is_program(path) ? "" : "no such program; expected the llama-bench of a llama.cpp build";
}

qsf::Result<std::string> output_of_program(const std::vector<std::string>& arguments) {
  Pipe pipe;
  if (!open_pipe(pipe.ends)) return qsf::io_error("pipe: %s", std::strerror(errno));
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failure = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    return qsf::io_error("%s: cannot be run: %s", argv[0], std::strerror(failure));
  }
  pipe.close_end(1);
  std::string output = read_to_end(pipe.ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return output;
  std::string command;
  for (const std::string& argument : arguments) command += (command.empty() ? "" : " ") + argument;
  return qsf::unsupported(
      "the peer failed with %s %d: %s", WIFEXITED(status) ? "exit code" : "signal",
      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), command.c_str());
}

}  // namespace qsf_tools
