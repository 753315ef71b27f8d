// SPDX-License-Identifier: MIT
//
// Messages between the processes (ranks) of a group.

#ifndef QSF_RANKS_LINK_H_
#define QSF_RANKS_LINK_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/status.h"

namespace qsf {

struct LinkMessage {
  unsigned from = 0;  // rank
  std::vector<std::byte> bytes;
};

// Messages of one rank to another arrive in the order in which they were sent.
// Threads  one at a time
class Link {
 public:
  virtual ~Link() = default;
  virtual unsigned rank() const noexcept = 0;
  virtual unsigned n_ranks() const noexcept = 0;
  // The host that a rank runs on.
  virtual std::string host_of(unsigned rank) const = 0;
  // Sends without waiting for the receiver. Requires  to < n_ranks(), and is another rank
  // Fails  kIo
  virtual Status send(unsigned to, std::vector<std::byte> bytes) = 0;
  // Waits for the next message of any rank, asleep; nothing when none came in time.
  // Fails  kIo
  virtual Result<std::optional<LinkMessage>> receive(std::chrono::milliseconds at_most) = 0;

  // Between these two calls a rank that counts no progress for long is at fault, where a link
  // watches over its ranks. Neither fails.
  virtual void begin_work() noexcept {}
  virtual void end_work() noexcept {}
  // Tells that the work of this rank goes on. Threads  any
  virtual void count_progress() noexcept {}
  // Waits for all ranks to come here, and leaves. Called once, last of all.
  virtual void leave() {}
  // In place of leave(): ends the run on all ranks, with a line that says why.
  virtual void abandon(const std::string& /*reason*/) {}
};

}  // namespace qsf

#endif  // QSF_RANKS_LINK_H_
