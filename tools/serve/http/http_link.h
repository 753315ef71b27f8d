// SPDX-License-Identifier: MIT
//
// What a server shares with the exchanges it has handed out: budgets, counts, and the list of
// responses that wait for the network thread. It lives as long as the last exchange.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_LINK_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_LINK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/serve/http/http_server.h"
#include "tools/serve/http/socket_calls.h"

namespace qsf_tools {

class HttpOutput;

// Bytes that may be taken at once.  Threads  any
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t limit_bytes) : limit_(limit_bytes) {}

  bool try_take(std::size_t n_bytes) {
    std::size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (n_bytes > limit_ || used > limit_ - n_bytes) return false;
    } while (!used_.compare_exchange_weak(used, used + n_bytes, std::memory_order_relaxed));
    return true;
  }
  // Takes past the limit, for what is there already.
  void take(std::size_t n_bytes) { used_.fetch_add(n_bytes, std::memory_order_relaxed); }
  void give(std::size_t n_bytes) { used_.fetch_sub(n_bytes, std::memory_order_relaxed); }

  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  std::size_t limit() const { return limit_; }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_ = 0;
};

// A part of a budget, given back at the end.
class ByteShare {
 public:
  explicit ByteShare(ByteBudget& budget) : budget_(&budget) {}
  ByteShare(ByteShare&& other) noexcept : budget_(other.budget_), bytes_(other.bytes_) {
    other.bytes_ = 0;
  }
  ByteShare& operator=(ByteShare&& other) noexcept {
    release();
    budget_ = other.budget_;
    bytes_ = other.bytes_;
    other.bytes_ = 0;
    return *this;
  }
  ~ByteShare() { release(); }

  bool try_grow(std::size_t n_bytes) {
    if (!budget_->try_take(n_bytes)) return false;
    bytes_ += n_bytes;
    return true;
  }
  void release() {
    budget_->give(bytes_);
    bytes_ = 0;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  ByteBudget* budget_;
  std::size_t bytes_ = 0;
};

using HttpCount = std::atomic<std::uint64_t>;

struct HttpLink {
  explicit HttpLink(const HttpLimits& its_limits);
  HttpLink(const HttpLink&) = delete;
  HttpLink& operator=(const HttpLink&) = delete;

  // Tells the network thread that `output` has something for it.  Threads  any
  void wake(std::shared_ptr<HttpOutput> output);
  // Returns what was woken since the last call.  Threads  the network thread
  std::vector<std::shared_ptr<HttpOutput>> take_woken();

  void count_refusal(HttpRefusal why) { ++refused[static_cast<std::size_t>(why)]; }
  void count_response(int status);

  const HttpLimits limits;
  const WakeSignal wake_signal;  // of the network thread
  std::atomic<bool> is_draining = false;
  std::atomic<bool> is_stopped = false;
  std::atomic<std::thread::id> network_thread = {};

  ByteBudget heads;
  ByteBudget bodies;
  ByteBudget output;

  HttpCount connections_open = 0;
  HttpCount connections_accepted = 0;
  HttpCount bytes_received = 0;
  HttpCount bytes_sent = 0;
  HttpCount peers_gone = 0;
  std::array<HttpCount, static_cast<std::size_t>(HttpRefusal::kCount)> refused = {};
  std::array<HttpCount, 600> responses = {};

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpOutput>> woken_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_LINK_H_
