// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "tools/common/posix_calls.h"
#include "tools/run/chat_input.h"

namespace qsf_tools {

namespace {

constexpr int kSignals[] = {SIGINT, SIGWINCH, SIGCONT};

std::atomic<int> g_wake_fd{-1};

void on_signal(int number) {
  const int saved = errno;
  if (number != SIGINT || !ChatInterrupt::cancel_answer()) {
    const char byte = static_cast<char>(number);
    // A pipe that is full has enough in it to wake the reader.
    static_cast<void>(!::write(g_wake_fd.load(), &byte, 1));
  }
  errno = saved;
}

void handle_all(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

// A signal writes its number, so that waiting ends whenever it comes. One chat runs at a time.
int g_pipe[2] = {-1, -1};

}  // namespace

ChatInterrupt::ChatInterrupt() {
  if (!open_pipe(g_pipe)) g_pipe[0] = g_pipe[1] = -1;
  for (const int end : g_pipe) ::fcntl(end, F_SETFL, O_NONBLOCK);
  g_wake_fd.store(g_pipe[1]);
  handle_all(on_signal);
}

ChatInterrupt::~ChatInterrupt() {
  handle_all(SIG_DFL);
  g_wake_fd.store(-1);
  ::close(g_pipe[0]);
  ::close(g_pipe[1]);
}

ChatInterrupt::Wake ChatInterrupt::wait() {
  pollfd waited[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                     {.fd = g_pipe[0], .events = POLLIN, .revents = 0}};
  while (::poll(waited, 2, -1) < 0 && errno == EINTR) {
  }
  if ((waited[1].revents & POLLIN) == 0) return Wake::kInput;
  Wake wake = Wake::kRedraw;
  char numbers[64];
  ssize_t n_read = 0;
  while ((n_read = ::read(g_pipe[0], numbers, sizeof numbers)) > 0) {
    for (ssize_t i = 0; i < n_read; ++i) {
      if (numbers[i] == SIGINT) wake = Wake::kInterrupted;
    }
  }
  return wake;
}

void ChatInterrupt::discard() {
  char numbers[64];
  while (::read(g_pipe[0], numbers, sizeof numbers) > 0) {
  }
}

}  // namespace qsf_tools
