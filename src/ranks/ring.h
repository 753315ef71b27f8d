// SPDX-License-Identifier: MIT
//
// A ring of engines that run the layers of one model together.
//
// The engine of rank 0 makes the passes. It announces each to all other ranks; then the rows go
// from window to window, and from the last one back to rank 0. Rows carry the number of their pass
// and window, and are checked. Rows of an ended pass are dropped; a pass that is announced ends the
// one before it. So a rank that waits is never left behind, whatever became of the pass elsewhere.

#ifndef QSF_RANKS_RING_H_
#define QSF_RANKS_RING_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/pass_message.h"
#include "model/layer_cut.h"
#include "ranks/frame.h"
#include "ranks/link.h"
#include "ranks/ring_plan.h"

namespace qsf {

// Threads  one at a time
class Ring final : public LayerRelay {
 public:
  // Requires  the link outlives the ring
  Ring(Link& link, RingPlan plan, std::uint64_t ring_bytes = 0);
  // Closes the ring on rank 0. Requires  no pass is running
  ~Ring() override;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // The part of this rank, with the ring as its relay.
  const LayerCut& cut() const noexcept { return cut_; }

  // On rank 0: begins a pass on all ranks. Fails  kIo
  Status announce(const PassMessage& pass);
  // On rank 0: the pass has ended there.
  void end_pass() noexcept { link_.end_work(); }
  // On other ranks: computes what is announced, until the ring is closed. Errors of a pass go to
  // rank 0 and do not end the call.
  // Fails  kIo; kCorrupt for a message that cannot be
  Status serve(Engine& engine);
  // On rank 0: has the others' serve() return. Fails  kIo
  Status close();

  Status receive(std::uint32_t window, std::span<float> rows,
                 const std::atomic<bool>* cancel) override;
  Status send(std::uint32_t window, std::span<const float> rows) override;

 private:
  // The number among all windows of one of this rank; the output head is behind them all.
  std::uint32_t number_of(std::uint32_t window) const noexcept;
  // Waits for a message of the ranks, for as long as a moment; nothing when none came.
  Result<std::optional<LinkMessage>> next_message();
  void begin_pass(std::uint64_t pass, std::size_t n_rows);
  Status send_to_all(const FrameHeader& header, ByteSpan payload);
  Status report(const Status& status);
  Status failure(unsigned rank, const Frame& frame) const;
  std::string name_of(unsigned rank) const;

  Link& link_;
  RingPlan plan_;
  LayerCut cut_;
  std::vector<std::uint32_t> numbers_;  // of this rank's windows
  std::uint64_t pass_ = 0;
  std::uint32_t n_rows_ = 0;         // of the pass
  std::deque<LinkMessage> pending_;  // not taken yet: what ended a pass, rows to this rank itself
  // Rows of passes that are not announced here yet: those of other ranks may come before rank 0's
  // message.
  std::deque<LinkMessage> early_;
};

}  // namespace qsf

#endif  // QSF_RANKS_RING_H_
