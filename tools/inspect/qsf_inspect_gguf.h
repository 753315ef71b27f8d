// SPDX-License-Identifier: MIT
//
// What qsf-inspect says of a GGUF file: its keys and tensors, and what a conversion would keep.

#ifndef QSF_TOOLS_INSPECT_QSF_INSPECT_GGUF_H_
#define QSF_TOOLS_INSPECT_QSF_INSPECT_GGUF_H_

#include <string>

#include "base/result.h"

namespace qsf_tools {

// Returns whether a file is a GGUF file by its first bytes or, where it has none, by its name.
bool is_gguf_file(const std::string& path);

// Returns the report, ending in a newline. A model that cannot be converted is reported all the
// same, with the reason. `tensors` lists every tensor of the text, JSON always does.
// Fails  as GgufFile::open
qsf::Result<std::string> gguf_text_report(const std::string& path, bool tensors);
qsf::Result<std::string> gguf_json_report(const std::string& path);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_INSPECT_QSF_INSPECT_GGUF_H_
