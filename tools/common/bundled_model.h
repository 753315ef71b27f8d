// SPDX-License-Identifier: MIT
//
// Where this program and the bundled model are: found from the program's own path, so that an
// installation can be moved.

#ifndef QSF_TOOLS_COMMON_BUNDLED_MODEL_H_
#define QSF_TOOLS_COMMON_BUNDLED_MODEL_H_

#include <optional>
#include <string>

namespace qsf_tools {

// Returns the path of this program, links followed; empty where it is not known.
std::string program_path();

// Finds the bundled model: in the data folder of the installation that this program belongs to, or
// in models/ of the tree that it was built in.
// Fails: returns nothing, with the places that were searched in `error`.
std::optional<std::string> find_bundled_model(std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_BUNDLED_MODEL_H_
