// SPDX-License-Identifier: MIT
//
// GGUF models that qsf-run has converted, so that each is converted once.
//
// They lie in $XDG_CACHE_HOME/qsf/converted, or ~/.cache/qsf/converted, under the name of the model
// and two numbers, for the file (its inode, size and time of change, those of all parts of a model
// in parts) and for the qsf-convert that was used and how. A file that was moved or renamed is
// still the same; one that was changed, or another version of the program, is converted anew.
// Removing the folder is always safe.

#ifndef QSF_TOOLS_COMMON_MODEL_CACHE_H_
#define QSF_TOOLS_COMMON_MODEL_CACHE_H_

#include <optional>
#include <string>

namespace qsf_tools {

// Returns whether a path names a GGUF file, by its first bytes or its name: one that is converted
// before it runs.
bool is_gguf_path(const std::string& path);

// Returns the .qsf file of a GGUF model. Makes it first, where it is not there yet, by the
// qsf-convert beside this program, which is given `i2s_layout` and whose messages go to standard
// error; `quiet` asks for errors and warnings alone. Of several processes that ask at once one
// converts and the others wait. On failure returns nothing and says in `error` what is wrong and
// what to do.
std::optional<std::string> converted_model(const std::string& path, const std::string& i2s_layout,
                                           bool quiet, std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_MODEL_CACHE_H_
