// SPDX-License-Identifier: MIT
//
// What qsf-inspect says of an adapter file, and the check of its values.

#ifndef QSF_TOOLS_INSPECT_QSF_INSPECT_ADAPTER_H_
#define QSF_TOOLS_INSPECT_QSF_INSPECT_ADAPTER_H_

#include <string>

#include "base/status.h"
#include "format/adapter_reader.h"

namespace qsf_tools {

// Return the report, ending in a newline. `pairs` lists every pair of matrices.
std::string adapter_text_report(const qsf::AdapterReader& reader, bool pairs);
std::string adapter_json_report(const qsf::AdapterReader& reader, bool pairs);

// Reads every pair: checksums, values that are finite, padding that is zero.
// Fails  with the first damage, naming the pair
qsf::Status verify_adapter(const qsf::AdapterReader& reader);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_INSPECT_QSF_INSPECT_ADAPTER_H_
