// SPDX-License-Identifier: MIT

#include "io/overlapped_ring.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

// The interval at which a closing ring asks a port again that fails.
constexpr std::chrono::milliseconds kFailedPortPoll{1};

}  // namespace

OverlappedRing::OverlappedRing(std::unique_ptr<ReadPort> port, unsigned depth)
    : port_(std::move(port)), slots_(depth) {
  ended_.reserve(depth);
}

// Closing a port does not end its reads: they would go on to write to memory that may be in other
// use by then.
OverlappedRing::~OverlappedRing() {
  if (n_in_flight_ > 0) port_->cancel();
  RingDone ignored;
  while (n_in_flight_ > 0) {
    if (take(ignored) < 0) std::this_thread::sleep_for(kFailedPortPoll);
  }
}

int OverlappedRing::register_memory(MutableByteSpan) {
  return 0;
}

int OverlappedRing::submit(int handle, MutableByteSpan to, std::uint64_t offset,
                           std::uint64_t tag) {
  const auto free =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.in_flight; });
  if (n_in_flight_ + ended_.size() >= slots_.size() || free == slots_.end()) return -EBUSY;
  const auto slot = static_cast<std::size_t>(free - slots_.begin());
  const int started = port_->start(slot, handle, to, offset);
  if (started == -ENODATA) {
    ended_.push_back({.tag = tag, .result = 0});
    return 0;
  }
  if (started < 0) return started;
  *free = {.in_flight = true, .tag = tag};
  ++n_in_flight_;
  return 0;
}

int OverlappedRing::wait(RingDone& done) {
  if (!ended_.empty()) {
    done = ended_.back();
    ended_.pop_back();
    return 0;
  }
  return take(done);
}

int OverlappedRing::take(RingDone& done) {
  PortPacket packet;
  const int result = port_->next(packet);
  if (result < 0) return result;
  QSF_CHECK(packet.slot < slots_.size() && slots_[packet.slot].in_flight);
  slots_[packet.slot].in_flight = false;
  --n_in_flight_;
  done = {.tag = slots_[packet.slot].tag, .result = packet.result};
  return 0;
}

}  // namespace qsf
