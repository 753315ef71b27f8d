// SPDX-License-Identifier: MIT
//
// Requests of the system and of whoever sits at the terminal that the server ends.

#ifndef QSF_TOOLS_SERVE_END_REQUESTS_H_
#define QSF_TOOLS_SERVE_END_REQUESTS_H_

#include <functional>
#include <memory>

namespace qsf_tools {

// Waits for them on a thread of its own: SIGINT and SIGTERM; on Windows Ctrl-C, Ctrl-Break, a
// console that is closed, and the end of the session.
class EndRequests {
 public:
  // Holds signals back from this thread and those that it starts later.
  EndRequests();
  ~EndRequests();
  EndRequests(const EndRequests&) = delete;
  EndRequests& operator=(const EndRequests&) = delete;

  // Has each request call `drain`, and the second interrupt `stop`, after which the process has 5 s
  // to end by itself. Windows ends the process some 5 s after its console was closed: `stop` is
  // called before, in time to remove files.
  void start(std::function<void()> drain, std::function<void()> stop);
  // Ends the thread: nothing is called from now on. Requires  started
  void end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_END_REQUESTS_H_
