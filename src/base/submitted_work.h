// SPDX-License-Identifier: MIT
//
// SubmittedWork: work that is submitted in order and may run later, known to its user by tickets.

#ifndef QSF_BASE_SUBMITTED_WORK_H_
#define QSF_BASE_SUBMITTED_WORK_H_

#include <cstdint>

namespace qsf {

// Names what was submitted up to a point. Tickets never descend; work of ticket 0 is complete.
using Ticket = std::uint64_t;

// Threads  one at a time
class SubmittedWork {
 public:
  // Returns the last ticket whose work, and all before it, is complete. Does not wait.
  virtual Ticket completed() const noexcept = 0;
  // Completes the work up to a ticket. Errors stay for the work's own wait.
  // Requires  the ticket was given out
  virtual void wait_for(Ticket ticket) noexcept = 0;

 protected:
  ~SubmittedWork() = default;
};

}  // namespace qsf

#endif  // QSF_BASE_SUBMITTED_WORK_H_
