// SPDX-License-Identifier: MIT
//
// Calibration of a model that is being converted: its weights as they are go into a temporary .qsf
// file, which the engine runs within the budget.

#ifndef QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_
#define QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/calibrate/calibration.h"
#include "convert/calibrate/collect_statistics.h"
#include "convert/encode/error_compensation.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"

namespace qsf {

struct CalibrateOptions {
  GatherOptions gather;  // with at most the context that the model was trained for
  std::uint64_t max_tokens = 65536;
  std::string text_name;  // for messages
  // The result is to feed errors back, for which Hessians are gathered during the conversion: part
  // of the budget is left for them.
  bool feedback = false;
  // What rounding each matrix costs is measured too, for allocations of bytes: a run and a copy of
  // the model for each probe, of which on_probe tells.
  bool sensitivities = false;
  std::function<void(std::size_t done, std::size_t total)> on_probe;
  // A folder where what was seen is kept, and taken from when it was before: calibration, probes,
  // and rows between layers. That it is of this model, these tokens and these options is the
  // caller's to know. Empty: nothing is kept.
  std::string folder;
  // Of the temporary file, which always keeps all weights and is never compressed.
  TranscodeOptions transcode;
};

struct CalibratedText {
  Calibration calibration;
  std::uint64_t n_tokens = 0;                   // of all windows
  bool whole_window = true;                     // the text was at least as long as a window
  std::unique_ptr<ErrorCompensation> feedback;  // where it was asked for
};

// The names of the files that are kept in CalibrateOptions::folder.
std::vector<std::string> calibration_folder_names();

// Calibrates; of the text only tokens are left when the model runs. The temporary file has a name
// beside `output` while it is written, and none once the engine has opened it: nothing is left
// however the process ends, or when this fails.
// Fails  as calibration_tokens(), transcode() and Gatherer; kUnsupported without a tokenizer
Result<CalibratedText> calibrate_model(const ModelSource& source, std::string text,
                                       const std::string& output, const CalibrateOptions& options);

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_
