// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/clock.h"

extern char** environ;

namespace qsf_tools {
namespace {

constexpr std::size_t kErrorBytes = 600;  // of standard error that a message quotes
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    for (const int end : ends) {
      if (end >= 0) ::close(end);
    }
  }
  int take(int end) {
    const int handle = ends[end];
    ends[end] = -1;
    return handle;
  }
};

void close_handle(int& handle) {
  if (handle >= 0) ::close(handle);
  handle = -1;
}

}  // namespace

ChildProcess::ChildProcess(std::string name, pid_t pid, int in, int out, int err) noexcept
    : name_(std::move(name)), pid_(pid), in_(in), out_(out), err_(err) {
  for (const int handle : {in_, out_, err_}) ::fcntl(handle, F_SETFL, O_NONBLOCK);
}

qsf::Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    const std::vector<std::string>& arguments) {
  Pipe to_child;
  Pipe from_child;
  Pipe errors;
  for (Pipe* pipe : {&to_child, &from_child, &errors}) {
    if (::pipe2(pipe->ends, O_CLOEXEC) != 0) return qsf::io_error("pipe: %s", std::strerror(errno));
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child.ends[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child.ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // SIGPIPE is ignored here, and a child would inherit that.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int failure = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    return qsf::io_error("%s: cannot be run: %s", argv[0], std::strerror(failure));
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(arguments[0], pid, to_child.take(1), from_child.take(0), errors.take(0)));
}

ChildProcess::~ChildProcess() {
  close_handle(in_);
  close_handle(out_);
  if (!reap(qsf::monotonic_ns() + kNsPerSecond)) {
    ::kill(-pid_, SIGKILL);
    reap(UINT64_MAX);
  }
  close_handle(err_);
}

bool ChildProcess::reap(std::uint64_t deadline_ns) {
  while (!reaped_) {
    const pid_t ended = ::waitpid(pid_, &exit_status_, deadline_ns == UINT64_MAX ? 0 : WNOHANG);
    reaped_ = ended == pid_ || (ended < 0 && errno != EINTR);
    if (reaped_ || qsf::monotonic_ns() >= deadline_ns) break;
    ::poll(nullptr, 0, 5);
  }
  return reaped_;
}

void ChildProcess::drain_errors() {
  char part[4096];
  for (;;) {
    const ssize_t n = err_ < 0 ? 0 : ::read(err_, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) close_handle(err_);
    if (n <= 0) return;
    errors_.append(part, static_cast<std::size_t>(n));
    if (errors_.size() > 16 * kErrorBytes) errors_.erase(0, errors_.size() - kErrorBytes);
  }
}

std::string ChildProcess::last_words() {
  drain_errors();
  std::string text =
      errors_.size() <= kErrorBytes ? errors_ : errors_.substr(errors_.size() - kErrorBytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.empty() ? "" : "; it said: " + text;
}

// Says what became of a child that closed a pipe too early.
qsf::Status ChildProcess::gone() {
  const bool ended = reap(qsf::monotonic_ns() + kNsPerSecond);
  if (ended && WIFSIGNALED(exit_status_)) {
    return qsf::io_error("%s: died of signal %d%s", name_.c_str(), WTERMSIG(exit_status_),
                         last_words().c_str());
  }
  if (ended && WIFEXITED(exit_status_)) {
    return qsf::io_error("%s: ended with exit code %d before it had answered%s", name_.c_str(),
                         WEXITSTATUS(exit_status_), last_words().c_str());
  }
  return qsf::io_error("%s: closed its output before it had answered%s", name_.c_str(),
                       last_words().c_str());
}

qsf::Status ChildProcess::wait_for(int handle, short events, std::uint64_t deadline_ns) {
  for (;;) {
    const std::uint64_t now = qsf::monotonic_ns();
    if (now >= deadline_ns) {
      return qsf::io_error("%s: no answer in time; raise --timeout if it needs longer%s",
                           name_.c_str(), last_words().c_str());
    }
    pollfd waits[2] = {{handle, events, 0}, {err_, POLLIN, 0}};
    const std::uint64_t left_ms = (deadline_ns - now) / 1'000'000 + 1;
    const int n = ::poll(waits, err_ >= 0 ? 2 : 1,
                         static_cast<int>(std::min<std::uint64_t>(left_ms, 1U << 30)));
    if (n < 0 && errno != EINTR) return qsf::io_error("poll: %s", std::strerror(errno));
    if (n <= 0) continue;
    if (err_ >= 0 && waits[1].revents != 0) drain_errors();
    if (waits[0].revents != 0) return qsf::ok_status();
  }
}

qsf::Status ChildProcess::write(std::span<const char> bytes, std::uint64_t deadline_ns) {
  while (!bytes.empty()) {
    QSF_RETURN_IF_ERROR(wait_for(in_, POLLOUT, deadline_ns));
    const ssize_t n = ::write(in_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return gone();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return qsf::ok_status();
}

qsf::Status ChildProcess::read(std::span<char> bytes, std::uint64_t deadline_ns) {
  while (!bytes.empty()) {
    QSF_RETURN_IF_ERROR(wait_for(out_, POLLIN, deadline_ns));
    const ssize_t n = ::read(out_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return gone();
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return qsf::ok_status();
}

}  // namespace qsf_tools
