// SPDX-License-Identifier: MIT
//
// The last step of a conversion with --tune: scales and norms fitted to the original's next-token
// distributions.

#ifndef QSF_TOOLS_CONVERT_CONVERT_TUNE_H_
#define QSF_TOOLS_CONVERT_CONVERT_TUNE_H_

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/encode/transcode.h"
#include "convert/tune/tune_model.h"
#include "format/qsf_reader.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer.h"
#include "tools/convert/convert_options.h"
#include "tools/convert/convert_report.h"

namespace qsf_tools {

// The windows that a conversion is tuned with.
struct TuneWindows {
  std::vector<qsf::TokenId> tokens;
  std::uint32_t context = 0;
};

// Reads the windows of the --calibration text, before the hours that other steps may take.
// Fails  kUnsupported on a model that cannot be tuned; kInvalidArgument where its weights are to be
//        kept, and on a text of fewer than two windows; as qsf::calibration_tokens
qsf::Result<TuneWindows> read_tune_windows(const ConvertOptions& options,
                                           const qsf::ModelSource& source,
                                           const qsf::TranscodeOptions& transcode);

// Tunes a converted file, which may have lost its name, and writes options.output.
// Fails  kOutOfBudget, naming the smallest --ram-budget; as qsf::tune_model
qsf::Result<qsf::TuneReport> tune(const ConvertOptions& options, const qsf::ModelSource& source,
                                  const TuneWindows& windows, const qsf::QsfReader& converted,
                                  const qsf::TranscodeOptions& transcode,
                                  ConvertProgress& progress);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_TUNE_H_
