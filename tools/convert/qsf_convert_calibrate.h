// SPDX-License-Identifier: MIT
//
// qsf-convert --calibration: from a text, or from what an earlier conversion has saved.

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_CALIBRATE_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_CALIBRATE_H_

#include <memory>
#include <vector>

#include "base/result.h"
#include "convert/choose/target_size.h"
#include "convert/encode/encode_rows.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "tools/convert/qsf_convert_options.h"
#include "tools/convert/qsf_convert_progress.h"

namespace qsf_tools {

struct ConvertCalibration {
  qsf::ColumnImportance columns;
  std::vector<float> layers;                             // by layer, for the index
  std::unique_ptr<qsf::ErrorCompensation> compensation;  // with --gptq
  qsf::TargetPlan target;                                // with --target-size
};

// Refuses files of --calibration and --calibration-out that cannot be meant.
// Fails  kNotFound, kIo, kInvalidArgument
qsf::Status check_calibration_files(const ConvertOptions& options);

// Calibrates as `options` say, saves the result where they ask for it, and prints a line about it;
// then chooses the types of --target-size and prints them.
// `transcode` is how the temporary file is written.
// Fails  as qsf::calibrate_model and qsf::read_calibration_file
qsf::Result<ConvertCalibration> calibrate(const ConvertOptions& options,
                                          const qsf::ModelSource& source,
                                          const qsf::TranscodeOptions& transcode,
                                          ConvertProgress& progress);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_CALIBRATE_H_
