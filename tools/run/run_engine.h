// SPDX-License-Identifier: MIT
//
// The engine and the session of a run, as completions and chats both use them.

#ifndef QSF_TOOLS_RUN_RUN_ENGINE_H_
#define QSF_TOOLS_RUN_RUN_ENGINE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "qsf/qsf.h"
#include "tools/common/handles.h"
#include "tools/run/run_options.h"

namespace qsf_tools {

// Opens a model, showing how far it is. Requires  options outlives the engine
qsf_code open_engine(const RunOptions& options, const std::string& model, EnginePtr& engine,
                     qsf_error& error);

// Prints an error of the library and returns the exit code it stands for.
int report(const qsf_error& error);

// Makes the grammar that was asked for, if any.
qsf_code make_grammar(const RunOptions& options, QSFEngine* engine, GrammarPtr& grammar,
                      qsf_error& error);

// Returns the sampling that was asked for. Valid as long as `options` and `grammar` are.
qsf_sampling make_sampling(const RunOptions& options, QSFGrammar* grammar, std::uint64_t seed);

// Refuses a bias on a token that the model does not have.
qsf_code check_logit_bias(const RunOptions& options, QSFEngine* engine, qsf_error& error);

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

#endif  // QSF_TOOLS_RUN_RUN_ENGINE_H_
