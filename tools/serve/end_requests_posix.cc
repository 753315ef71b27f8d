// SPDX-License-Identifier: MIT

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

#include "tools/serve/end_requests.h"

namespace qsf_tools {

namespace {

constexpr unsigned kSecondsToStop = 5;

}  // namespace

struct EndRequests::State {
  void wait() {
    int n_interrupts = 0;
    for (;;) {
      int signal = 0;
      if (::sigwait(&signals, &signal) != 0 || over) return;
      n_interrupts += signal == SIGINT ? 1 : 0;
      if (n_interrupts >= 2) {
        // A pass that reads from a slow disk is not waited for.
        ::alarm(kSecondsToStop);
        stop();
      } else {
        drain();
      }
    }
  }

  sigset_t signals = {};
  std::function<void()> drain;
  std::function<void()> stop;
  std::thread thread;
  std::atomic<bool> over{false};
};

EndRequests::EndRequests() : state_(std::make_unique<State>()) {
  // Macros on macOS.
  sigemptyset(&state_->signals);
  sigaddset(&state_->signals, SIGINT);
  sigaddset(&state_->signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &state_->signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

EndRequests::~EndRequests() = default;

void EndRequests::start(std::function<void()> drain, std::function<void()> stop) {
  state_->drain = std::move(drain);
  state_->stop = std::move(stop);
  state_->thread = std::thread([this] { state_->wait(); });
}

void EndRequests::end() {
  state_->over = true;
  ::pthread_kill(state_->thread.native_handle(), SIGTERM);
  state_->thread.join();
}

}  // namespace qsf_tools
