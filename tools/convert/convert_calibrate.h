// SPDX-License-Identifier: MIT
//
// The calibration of a conversion (--calibration: a text, or a file that --calibration-out saved),
// and the choice of types for --target-size.

#ifndef QSF_TOOLS_CONVERT_CONVERT_CALIBRATE_H_
#define QSF_TOOLS_CONVERT_CONVERT_CALIBRATE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/calibrate/calibration.h"
#include "convert/choose/target_size.h"
#include "convert/encode/encode_rows.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer.h"
#include "tools/convert/convert_options.h"
#include "tools/convert/convert_report.h"

namespace qsf_tools {

struct ConvertCalibration {
  qsf::ColumnImportance columns;
  std::vector<float> layers;                             // by layer, for the index
  std::vector<float> expert_hits;                        // format/expert_hits.h
  std::unique_ptr<qsf::ErrorCompensation> compensation;  // with --gptq
  qsf::Calibration measured;  // with sensitivities where --target-size is given
};

// Refuses files of --calibration and --calibration-out that are the same as others, cannot be
// written, or do not go with the other options.
// Fails  kNotFound, kIo, kInvalidArgument
qsf::Status check_calibration_files(const ConvertOptions& options);

// Refuses a --target-size below the smallest file of the model, before anything is measured.
// Fails  kInvalidArgument, naming the smallest size; as ModelSource::read_rows
qsf::Status check_target_size(const ConvertOptions& options, const qsf::ModelSource& source,
                              const qsf::TranscodeOptions& transcode);

// Calibrates, saves the result where --calibration-out asks for it, and prints a summary.
// `transcode`: how the temporary copy that runs is written.
// Fails  as qsf::calibrate_model and qsf::read_calibration_file
qsf::Result<ConvertCalibration> calibrate(const ConvertOptions& options,
                                          const qsf::ModelSource& source,
                                          const qsf::TranscodeOptions& transcode,
                                          ConvertProgress& progress);

// Chooses the types of --target-size and prints them: by the sensitivities in `measured` with
// --calibration, else by the errors of the weights.
// Fails  as qsf::plan_target_size
qsf::Result<qsf::TargetPlan> plan_target(const ConvertOptions& options,
                                         const qsf::ModelSource& source,
                                         const qsf::TranscodeOptions& transcode,
                                         const qsf::Calibration& measured,
                                         ConvertProgress& progress);

// Returns windows of a text, as qsf::calibration_tokens gives them.
// Requires  the model has a tokenizer; its section
// Fails     as qsf::calibration_tokens
qsf::Result<std::vector<qsf::TokenId>> read_windows(const ConvertOptions& options,
                                                    const std::string& path, std::uint32_t context,
                                                    std::uint64_t max_tokens,
                                                    qsf::ByteSpan tokenizer);

// Returns the windows of the --head-sketch text. Fails  as qsf::calibration_tokens
qsf::Result<std::vector<qsf::TokenId>> read_sketch_tokens(const ConvertOptions& options,
                                                          qsf::ByteSpan tokenizer);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_CALIBRATE_H_
