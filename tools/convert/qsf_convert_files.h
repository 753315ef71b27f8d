// SPDX-License-Identifier: MIT
//
// What qsf-convert asks of the names it is to write under, before it works for hours.

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_FILES_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_FILES_H_

#include <string>

#include "base/status.h"

namespace qsf_tools {

// Whether two names are those of one file, which need not exist.
bool is_same_file(const std::string& a, const std::string& b);

// Whether a file can appear under a name: all but the last step of it is done, and taken back.
qsf::Status check_writable(const std::string& path);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_FILES_H_
