// SPDX-License-Identifier: MIT
//
// Signals of a chat; see chat_interrupt.h.

#include "tools/run/chat_interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace qsf_tools {

namespace {

constexpr int kSignals[] = {SIGINT, SIGWINCH, SIGCONT};

std::atomic<QSFEngine*> g_answering{nullptr};
std::atomic<bool> g_interrupted{false};
std::atomic<int> g_wake_fd{-1};
static_assert(std::atomic<QSFEngine*>::is_always_lock_free, "used in a signal handler");

void on_signal(int number) {
  const int saved = errno;
  QSFEngine* engine = g_answering.load();
  if (number == SIGINT && engine != nullptr) {
    g_interrupted.store(true);
    qsf_engine_cancel(engine);
  } else {
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

}  // namespace

ChatInterrupt::ChatInterrupt() {
  if (::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) pipe_[0] = pipe_[1] = -1;
  g_wake_fd.store(pipe_[1]);
  handle_all(on_signal);
}

ChatInterrupt::~ChatInterrupt() {
  handle_all(SIG_DFL);
  g_wake_fd.store(-1);
  ::close(pipe_[0]);
  ::close(pipe_[1]);
}

void ChatInterrupt::begin_answer(QSFEngine* engine) {
  g_interrupted.store(false);
  g_answering.store(engine);
}

bool ChatInterrupt::end_answer() {
  g_answering.store(nullptr);
  return g_interrupted.load();
}

ChatInterrupt::Wake ChatInterrupt::wait(int fd) {
  pollfd waited[] = {{.fd = fd, .events = POLLIN, .revents = 0},
                     {.fd = pipe_[0], .events = POLLIN, .revents = 0}};
  while (::poll(waited, 2, -1) < 0 && errno == EINTR) {
  }
  if ((waited[1].revents & POLLIN) == 0) return Wake::kInput;
  Wake wake = Wake::kRedraw;
  char numbers[64];
  ssize_t n_read = 0;
  while ((n_read = ::read(pipe_[0], numbers, sizeof numbers)) > 0) {
    for (ssize_t i = 0; i < n_read; ++i) {
      if (numbers[i] == SIGINT) wake = Wake::kInterrupted;
    }
  }
  return wake;
}

void ChatInterrupt::forget() {
  char numbers[64];
  while (::read(pipe_[0], numbers, sizeof numbers) > 0) {
  }
}

}  // namespace qsf_tools
