// SPDX-License-Identifier: MIT
//
// What both ways of qsf-run, completing and chatting, do with an engine.

#ifndef QSF_TOOLS_RUN_RUN_ENGINE_H_
#define QSF_TOOLS_RUN_RUN_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "qsf/qsf.h"
#include "tools/run/run_options.h"

namespace qsf_tools {

struct EngineFree {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
};
using EnginePtr = std::unique_ptr<QSFEngine, EngineFree>;

// Returns what is wrong with a path that can be told without opening it; empty for nothing.
std::string check_model_path(const std::string& path);

// Opens a model, showing how far it is. Requires  options outlives the engine
qsf_code open_engine(const RunOptions& options, const std::string& model, EnginePtr& engine,
                     qsf_error& error);

// Prints an error of the library and returns the exit code it stands for.
int report(const qsf_error& error);

// Returns the sampling that was asked for. Valid as long as `options` is.
qsf_sampling make_sampling(const RunOptions& options, std::uint64_t seed);

// Refuses a bias on a token that the model does not have.
qsf_code check_logit_bias(const RunOptions& options, QSFEngine* engine, qsf_error& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_ENGINE_H_
