// SPDX-License-Identifier: MIT
//
// A chat at a terminal or over pipes: `qsf chat`, and `qsf run --interactive`.

#ifndef QSF_TOOLS_RUN_QSF_RUN_CHAT_H_
#define QSF_TOOLS_RUN_QSF_RUN_CHAT_H_

#include <string>

#include "qsf/qsf.h"
#include "tools/run/run_options.h"

namespace qsf_tools {

// Chats until the input ends or /quit. Standard output carries the answers, everything else goes to
// standard error. Returns the exit code: over a pipe a message that
// could not be answered makes it a failure.
int run_chat(const RunOptions& options, QSFEngine* engine, QSFGrammar* grammar,
             const std::string& model);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_QSF_RUN_CHAT_H_
