// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tools/common/console.h"

namespace qsf_tools {
namespace {

void (*g_handler)() = nullptr;

void call_handler(int) {
  g_handler();
}

int descriptor_of(StandardStream stream) {
  return stream == StandardStream::kInput    ? STDIN_FILENO
         : stream == StandardStream::kOutput ? STDOUT_FILENO
                                             : STDERR_FILENO;
}

}  // namespace

void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free, which is this one. Output opened for reading refuses writes.
    static_cast<void>(::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY));
  }
}

bool is_terminal(StandardStream stream) {
  return ::isatty(descriptor_of(stream)) == 1;
}

std::ptrdiff_t read_input(char* to, std::size_t n_bytes) {
  const ssize_t n_read = ::read(STDIN_FILENO, to, n_bytes);
  return n_read < 0 ? -errno : n_read;
}

std::ptrdiff_t write_output(std::string_view text) {
  const ssize_t n_written = ::write(STDOUT_FILENO, text.data(), text.size());
  return n_written < 0 ? -errno : n_written;
}

void ignore_write_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

void on_interrupt(Interrupts which, void (*handler)()) {
  g_handler = handler;
  struct sigaction action = {};
  action.sa_handler = call_handler;
  if (which == Interrupts::kFirst) {
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    return;
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

}  // namespace qsf_tools
