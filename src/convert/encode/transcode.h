// SPDX-License-Identifier: MIT
//
// The conversion: encodes the weights of a ModelSource into a .qsf file.
//
// Works layer by layer and tile by tile. Memory holds one tile and, for each thread, 64 rows of one
// tensor as f32 and encoded; with error compensation, the factor of one matrix and, for each
// thread, 48 to 192 rows and the buffers of convert/gptq/gptq.h. The same input and options give
// the same bytes at any number of threads.

#ifndef QSF_CONVERT_ENCODE_TRANSCODE_H_
#define QSF_CONVERT_ENCODE_TRANSCODE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/encode/encode_rows.h"
#include "convert/encode/transcode_types.h"
#include "format/qsf_writer.h"
#include "import/model_source.h"
#include "quant/quant_options.h"

namespace qsf {

class SavedSections;

struct TranscodeProgress {
  const char* stage = "";           // "measuring" or "converting"
  std::string section;              // "embedding", "layer 3", "final"
  std::uint64_t done_weights = 0;   // of this stage
  std::uint64_t total_weights = 0;  // of this stage
};

struct TranscodeOptions {
  QuantPreset preset = QuantType::kQ4;
  std::uint32_t block = 64;  // 32, 64, 128 or 256
  // Type of natively ternary matrices with ternary, mixed and keep: kTernaryBase3 (1.6 bits, for
  // weights that are streamed from disk) or kTernaryRow (2 bits, for resident weights).
  QuantType native_ternary = QuantType::kTernaryBase3;
  // Formats of single matrices; they precede all other options. Null: none.
  const TensorFormats* formats = nullptr;
  // Type of token embedding and head; nothing: the preset's.
  std::optional<QuantType> vocabulary_type;
  // The model was trained with activations rounded to int8 by row, although the source does not say
  // so.
  bool int8_rows = false;
  Rounding rounding = Rounding::kSearch;
  const ColumnImportance* importance = nullptr;  // for scale search; null: unknown
  // Layer importance for the index, finite and >= 0; empty: unknown.
  std::span<const float> layer_importance;
  std::span<const float> expert_hits;         // format/expert_hits.h; empty: those of the source
  ErrorCompensation* compensation = nullptr;  // of coded matrices of layers; null: none
  Layout layout = Layout::kInterleaved;
  Compression compression = Compression::kNone;
  std::uint64_t tile_bytes = kDefaultTileBytes;
  // Read and written files are dropped from the page cache after about this many bytes; 0: never.
  std::uint64_t max_cached_bytes = 0;
  unsigned n_threads = 1;  // at least 1
  std::string program;     // provenance: name and version; the preset is added
  ByteSpan tokenizer;      // tokenizer section; empty: none
  // Saves finished sections and reuses saved ones; null: off. The caller ensures that they belong
  // to this conversion.
  const SavedSections* saved = nullptr;
  // Called with transcoded_bytes() before anything is written; a failure ends the conversion.
  std::function<Status(std::uint64_t file_bytes)> on_size;
  // Called from the calling thread at least once a tile.
  std::function<void(const TranscodeProgress&)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked once a tile
};

// The result of one tensor.
struct TensorReport {
  std::string section;
  TensorKind kind = TensorKind::kAttnQ;
  std::string source_name;
  std::string source_type;  // as SourceTensor::type
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  BlockFormat format{QuantType::kF32, 4};
  bool kept = false;             // the input's blocks, copied exactly
  double bits_per_weight = 0.0;  // of the bytes in the file before compression
  double relative_error = 0.0;   // root of (squared error / squared weights); 0 for no weights
  double cosine = 1.0;           // of weights and decoded weights; 1 when both are zero
};

struct TranscodeReport {
  std::vector<TensorReport> tensors;  // in the order of the file
  std::vector<std::string> warnings;
  std::vector<std::string> widened;  // one line for each matrix that `mixed` gave more bits
  std::uint64_t n_weights = 0;
  std::uint64_t raw_bytes = 0;     // of all tiles
  std::uint64_t stored_bytes = 0;  // of all tiles, compressed
};

// A tensor below this cosine is reported in a warning; `mixed` widens it.
inline constexpr double kLowCosine = 0.99;

// Returns the peak of a conversion's allocations, with or without error compensation, and what the
// source keeps. Memory of calibration and error compensation is not included.
std::uint64_t transcode_memory_bytes(const ModelSource& source, const TranscodeOptions& options,
                                     bool compensates);

// Converts a model. On failure `path` is unchanged.
// Requires  layer_importance is empty or has a value for each layer
// Fails  kInvalidArgument on options out of range or weights beyond 65,504 in a type that cannot
//        hold them, kCancelled, and as source, writer and on_size
Result<TranscodeReport> transcode(const ModelSource& source, const std::string& path,
                                  const TranscodeOptions& options,
                                  FileOps& ops = system_file_ops());

// Returns the size of the file without compression.
// Fails  as transcode() does before it writes
Result<std::uint64_t> transcoded_bytes(const ModelSource& source, const TranscodeOptions& options);

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_TRANSCODE_H_
