// SPDX-License-Identifier: MIT
//
// Lines typed at a terminal: edited, recalled and pasted, by libedit.

#ifndef QSF_TOOLS_RUN_LINE_EDITOR_H_
#define QSF_TOOLS_RUN_LINE_EDITOR_H_

#include <memory>
#include <string>

#include "tools/run/chat_input.h"

namespace qsf_tools {

// Returns the file that lines are kept in: $XDG_STATE_HOME/qsf/chat_history, or in ~/.local/state.
// Makes its folder. Empty when there is no place for it.
std::string history_path();

// Returns the key that ends input of this system: "Ctrl-D".
const char* key_that_leaves() noexcept;

// Edits lines on standard input, which is a terminal. `history` is the file that they are read from
// and appended to; empty: none.
// Requires  the interrupt outlives the editor
// Fails     returns null when the terminal cannot be used
std::unique_ptr<LineSource> make_line_editor(ChatInterrupt& interrupt, const std::string& history);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_LINE_EDITOR_H_
