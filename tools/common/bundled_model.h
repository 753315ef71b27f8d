// SPDX-License-Identifier: MIT
//
// Where the bundled model and the other tools lie: found from the program's own place, so that an
// installation works wherever it was put.

#ifndef QSF_TOOLS_COMMON_BUNDLED_MODEL_H_
#define QSF_TOOLS_COMMON_BUNDLED_MODEL_H_

#include <optional>
#include <string>

namespace qsf_tools {

// Returns the folder of this program with a slash at its end, links followed; empty when that
// cannot be told.
std::string program_folder();

// Finds the bundled model: in the data folder of the installation that this program belongs to, or
// in the models/ of the tree it was built in. Links to the program are followed.
// Fails: returns nothing, with the places that were looked at in `error`.
std::optional<std::string> find_bundled_model(std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_BUNDLED_MODEL_H_
