// SPDX-License-Identifier: MIT
//
// Calibrates a model for its conversion: writes its weights unchanged to a temporary .qsf file and
// runs the calibration set through the engine within the memory budget.

#ifndef QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_
#define QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/calibrate/calibration.h"
#include "convert/calibrate/collect_statistics.h"
#include "convert/encode/encode_rows.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

struct CalibrateOptions {
  CollectOptions collect;  // the context is limited to the trained context length
  std::uint64_t max_tokens = 65536;
  std::string text_name;  // for messages
  // Prepares error compensation, which collects Hessians during the conversion; part of the budget
  // is reserved for them.
  bool compensation = false;
  // Also measures sensitivities, for target sizes: one run with one copy of the model for each;
  // on_probe reports progress.
  bool sensitivities = false;
  std::function<void(std::size_t done, std::size_t total)> on_probe;
  // Saves calibration, sensitivities and hidden rows in a folder and resumes from it. The caller
  // ensures that the folder belongs to this model, tokens and options. Empty: saves nothing.
  std::string folder;
  // For the temporary file, which has all weights unchanged and uncompressed.
  TranscodeOptions transcode;
};

struct CalibratedText {
  Calibration calibration;
  std::uint64_t n_tokens = 0;                       // of all windows
  bool whole_window = true;                         // the text fills at least one window
  std::unique_ptr<ErrorCompensation> compensation;  // when requested
};

// Returns the names of the files in CalibrateOptions::folder.
std::vector<std::string> calibration_folder_names();

// Calibrates a model. The text is released before the model runs. The temporary file has a name
// beside `output` while it is written and is unlinked once the engine has opened it, so nothing is
// left behind.
// Fails  as calibration_tokens(), transcode() and StatisticsCollector; kUnsupported without a
// tokenizer
Result<CalibratedText> calibrate_model(const ModelSource& source, std::string text,
                                       const std::string& output, const CalibrateOptions& options);

// Returns the most bytes of a text that are read for a number of tokens.
constexpr std::uint64_t calibration_text_bytes(std::uint64_t max_tokens) noexcept {
  constexpr std::uint64_t kBytesPerToken = 64;
  return max_tokens > UINT64_MAX / kBytesPerToken ? UINT64_MAX : kBytesPerToken * max_tokens;
}

// Returns the consecutive windows of a calibration set: whole windows of `context` tokens, at least
// one and at most as many as `max_tokens` fill; a shorter text gives one short window. The rest is
// dropped. When the model has a BOS token, it replaces the first token of every window.
// Requires  context >= 2
// Fails     kInvalidArgument for a text of fewer than two tokens or with a zero byte; as
//           Tokenizer::encode
Result<std::vector<TokenId>> calibration_tokens(const Tokenizer& tokenizer, std::string_view text,
                                                std::uint32_t context, std::uint64_t max_tokens);

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_
