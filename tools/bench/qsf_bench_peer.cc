// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_peer.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/common/tool_support.h"

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

// Runs a program and returns what it wrote to standard output; its standard error is dropped.
qsf::Result<std::string> run_program(const std::vector<std::string>& arguments) {
  Pipe pipe;
  if (::pipe2(pipe.ends, O_CLOEXEC) != 0) return qsf::io_error("pipe: %s", std::strerror(errno));
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

std::string text_of(const nlohmann::json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

qsf::Result<double> run_peer(const BenchOptions& options, unsigned n_threads, const BenchTest& test,
                             PeerInfo& info) {
  std::vector<std::string> arguments = {options.peer,
                                        "-m",
                                        options.peer_model,
                                        "-t",
                                        std::to_string(n_threads),
                                        "-p",
                                        std::to_string(test.generate ? 0 : test.n_tokens),
                                        "-n",
                                        std::to_string(test.generate ? test.n_tokens : 0),
                                        "-r",
                                        "1",
                                        "-o",
                                        "json"};
  // Builds without this option still run the tests that do not need it.
  if (test.depth > 0) arguments.insert(arguments.end(), {"-d", std::to_string(test.depth)});
  QSF_ASSIGN_OR_RETURN(const std::string output, run_program(arguments));
  const nlohmann::json parsed = nlohmann::json::parse(output, nullptr, false);
  const bool has_entry = parsed.is_array() && !parsed.empty() && parsed[0].is_object();
  const auto rate = has_entry ? parsed[0].find("avg_ts") : parsed.end();
  if (!has_entry || rate == parsed[0].end() || !rate->is_number()) {
    return qsf::unsupported(
        "%s: expected the JSON of llama-bench, an array of objects with avg_ts; got \"%s\"",
        options.peer.c_str(), valid_utf8(output.substr(0, 80)).c_str());
  }
  const nlohmann::json& entry = parsed[0];
  info.commit = text_of(entry, "build_commit");
  info.model_type = text_of(entry, "model_type");
  const auto bytes = entry.find("model_size");
  if (bytes != entry.end() && bytes->is_number_unsigned()) {
    info.model_bytes = bytes->get<std::uint64_t>();
  }
  return rate->get<double>();
}

}  // namespace qsf_tools
