// SPDX-License-Identifier: MIT
//
// How a conversion keeps to --ram-budget: threads, and what it may leave in the page cache.

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_MEMORY_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_MEMORY_H_

#include <cstdint>

#include "base/status.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"

namespace qsf_tools {

// Returns what a conversion takes beside the program itself and what it is given: tiles, rows,
// threads and the least of the page cache.
std::uint64_t conversion_bytes(const qsf::ModelSource& source, const qsf::TranscodeOptions& options,
                               bool feeds_back);

// Sets `n_threads` of a conversion, to at most what they are, and `max_cached_bytes`, so that all
// that the process takes stays below the budget.
// `feeds_back`: some matrix has its errors fed back, by what takes all of the budget that
// conversion_bytes() leave.
// Fails  kOutOfBudget, naming the budget that is needed, where not even one thread fits
qsf::Status fit_budget(const qsf::ModelSource& source, std::uint64_t budget_bytes, bool feeds_back,
                       qsf::TranscodeOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_MEMORY_H_
