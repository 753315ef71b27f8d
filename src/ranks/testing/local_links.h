// SPDX-License-Identifier: MIT
//
// For tests: links between ranks that are threads of one process.

#ifndef QSF_RANKS_TESTING_LOCAL_LINKS_H_
#define QSF_RANKS_TESTING_LOCAL_LINKS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ranks/link.h"

namespace qsf::testing_support {

class LocalLink final : public Link {
 public:
  using Group = std::vector<std::unique_ptr<LocalLink>>;
  static Group create(unsigned n_ranks) {
    Group group;
    for (unsigned rank = 0; rank < n_ranks; ++rank) group.push_back(std::make_unique<LocalLink>());
    for (unsigned rank = 0; rank < n_ranks; ++rank) {
      group[rank]->rank_ = rank;
      for (const auto& other : group) group[rank]->peers_.push_back(other.get());
    }
    return group;
  }

  unsigned rank() const noexcept override { return rank_; }
  unsigned n_ranks() const noexcept override { return static_cast<unsigned>(peers_.size()); }
  std::string host_of(unsigned /*rank*/) const override { return "here"; }
  Status send(unsigned to, std::vector<std::byte> bytes) override {
    QSF_CHECK(to < peers_.size() && to != rank_);
    LocalLink& peer = *peers_[to];
    const std::lock_guard lock(peer.mutex_);
    peer.messages_.push_back({rank_, std::move(bytes)});
    peer.arrived_.notify_one();
    return ok_status();
  }
  Result<std::optional<LinkMessage>> receive(std::chrono::milliseconds at_most) override {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, at_most, [this] { return !messages_.empty(); });
    if (delay_.count() > 0) {
      const auto of_others = [this] { return first_of_others() != messages_.end(); };
      arrived_.wait_for(lock, delay_, of_others);
    }
    auto next = delay_.count() > 0 ? first_of_others() : messages_.begin();
    if (next == messages_.end()) next = messages_.begin();
    if (next == messages_.end()) return std::optional<LinkMessage>();
    LinkMessage message = std::move(*next);
    messages_.erase(next);
    return std::optional(std::move(message));
  }
  void begin_work() noexcept override { works_ = true; }
  void end_work() noexcept override { works_ = false; }
  bool works() const noexcept { return works_; }
  // From now on a message of rank 0 comes later by this, or behind one of another rank.
  void delay_first_rank(std::chrono::milliseconds delay) {
    const std::lock_guard lock(mutex_);
    delay_ = delay;
  }

 private:
  std::deque<LinkMessage>::iterator first_of_others() {
    return std::find_if(messages_.begin(), messages_.end(),
                        [](const LinkMessage& message) { return message.from != 0; });
  }

  unsigned rank_ = 0;
  std::vector<LocalLink*> peers_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<LinkMessage> messages_;
  std::chrono::milliseconds delay_{0};
  std::atomic<bool> works_{false};
};

}  // namespace qsf::testing_support

#endif  // QSF_RANKS_TESTING_LOCAL_LINKS_H_
