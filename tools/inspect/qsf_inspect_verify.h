// SPDX-License-Identifier: MIT
//
// The check of every byte of a .qsf file behind `qsf-inspect --verify`.

#ifndef QSF_TOOLS_INSPECT_QSF_INSPECT_VERIFY_H_
#define QSF_TOOLS_INSPECT_QSF_INSPECT_VERIFY_H_

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "format/qsf_reader.h"

namespace qsf_tools {

// Reads every tile and section: checksums of tiles and of whole sections, weights that are finite
// and codes that exist, padding that is zero, a tokenizer that opens. `progress` is told the bytes
// read so far.
// Fails  with the first damage, naming its section and offset
qsf::Status verify_file(const qsf::QsfReader& reader,
                        const std::function<void(std::uint64_t)>& progress);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_INSPECT_QSF_INSPECT_VERIFY_H_
