// SPDX-License-Identifier: MIT
//
// The session of a run: read from a file before it and written to one after it.

#ifndef QSF_TOOLS_RUN_RUN_SESSION_H_
#define QSF_TOOLS_RUN_RUN_SESSION_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "qsf/qsf.h"
#include "tools/run/run_options.h"

namespace qsf_tools {

struct SessionFree {
  void operator()(QSFSession* session) const { qsf_session_free(session); }
};
using SessionPtr = std::unique_ptr<QSFSession, SessionFree>;

// Returns why a session cannot be saved under --session-save, as far as that can be told before
// anything is computed for it; empty for nothing.
std::string check_session_path(const RunOptions& options);

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Creates the session of a run, with what --session-load names.
qsf_code open_session(const RunOptions& options, QSFEngine* engine, SessionPtr& session,
                      qsf_error& error);

// Does what --session-save asks for.
qsf_code save_session(const RunOptions& options, QSFSession* session, qsf_error& error);

// Tell, unless --quiet, that a session was loaded, or saved.
void tell_loaded(const RunOptions& options, std::size_t n_tokens, double seconds);
void tell_saved(const RunOptions& options, std::size_t n_tokens, double seconds);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_SESSION_H_
