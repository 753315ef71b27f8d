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

// The text of a calibration, as windows of tokens.

// Returns the most bytes of a text that are looked at for a number of tokens.
constexpr std::uint64_t calibration_text_bytes(std::uint64_t max_tokens) noexcept {
  constexpr std::uint64_t kBytesPerToken = 64;
  return max_tokens > UINT64_MAX / kBytesPerToken ? UINT64_MAX : kBytesPerToken * max_tokens;
}

// Returns the windows of a text, one behind the other: as many whole ones of `context` tokens as
// there are, at most those that `max_tokens` fill and at least one; or all tokens, where they are
// no whole window. A rest is dropped. Where the model begins texts with a token, every window
// begins with that in place of its own first.
// Requires  context >= 2
// Fails     kInvalidArgument for a text of fewer than two tokens, or with a zero byte, which no
//           text has; as Tokenizer::encode
Result<std::vector<TokenId>> calibration_tokens(const Tokenizer& tokenizer, std::string_view text,
                                                std::uint32_t context, std::uint64_t max_tokens);

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATE_MODEL_H_
