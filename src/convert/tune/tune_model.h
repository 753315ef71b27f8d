// SPDX-License-Identifier: MIT
//
// Tunes a converted model after rounding: with its codes fixed, changes scales, mins and norms so
// that its next-token distributions come closer to the original's. Gradients of the KL divergence
// are found by a backward pass through the whole model over windows of the calibration set, and
// followed by Adam. The last tenth of the windows is held out: the factors with the least
// divergence there are written, so that the file is never worse than before by that measure.
//
// Work    5 multiplications for a row and weight of the layers, one of them the original's; 6 for
//         one of the head
// Memory  one layer as f32, its rows and gradients, and the rows of a batch between the layers
// Based on: Chen et al., "EfficientQAT", 2024; docs/decisions/066-tuning.md

#ifndef QSF_CONVERT_TUNE_TUNE_MODEL_H_
#define QSF_CONVERT_TUNE_TUNE_MODEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/tune/tuned_model.h"
#include "format/qsf_reader.h"
#include "import/model_source.h"
#include "io/file_ops.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

struct TuneProgress {
  std::uint64_t done_windows = 0;
  std::uint64_t total_windows = 0;
  double divergence = 0.0;  // the last that was measured on the windows held out
};

struct TuneOptions {
  std::uint32_t context = 512;  // tokens of a window
  std::uint32_t n_epochs = 1;
  float learning_rate = 3e-3F;    // of the first step, from which it falls to 0
  unsigned n_threads = 1;         // at least 1
  std::uint64_t cache_bytes = 0;  // memory for what the original makes of windows
  // Saves progress in a folder and resumes from it. The caller ensures that the folder belongs to
  // this conversion. Empty: saves nothing.
  std::string folder;
  Compression compression = Compression::kNone;  // of the result
  std::uint64_t tile_bytes = kDefaultTileBytes;  // of the converted model
  // Read files are dropped from the page cache after every window.
  bool drops_cached = false;
  std::function<void(const TuneProgress&)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked at every layer
};

struct TuneReport {
  double before = 0.0;  // mean divergence on the windows held out, in nats
  double after = 0.0;
  std::uint64_t n_windows = 0;  // trained on
  std::uint64_t n_held_out = 0;
  std::uint64_t n_factors = 0;
  TunedBytes bytes;
};

// Refuses a model that cannot be tuned. Fails  kUnsupported, naming its architecture
Status check_tunable(const ModelSpec& spec);

// Returns the name of the file in TuneOptions::folder.
std::vector<std::string> tune_folder_names();

// Returns the bytes that tuning takes beside cache_bytes.
std::uint64_t tune_memory_bytes(const ModelSource& original, const QsfReader& converted,
                                std::uint32_t context, unsigned n_threads);

// Tunes `converted`, a conversion of `original`, and writes the result to `path`.
// Requires  tokens are windows of options.context
// Fails     kUnsupported as check_tunable(); kInvalidArgument for fewer than two windows;
//           kCancelled; as ModelSource, QsfReader, QsfWriter and TuneState. `path` is then
//           unchanged
Result<TuneReport> tune_model(const ModelSource& original, const QsfReader& converted,
                              std::span<const TokenId> tokens, const std::string& path,
                              const TuneOptions& options, FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNE_MODEL_H_
