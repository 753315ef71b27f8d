// SPDX-License-Identifier: MIT
//
// A .qsf file with random weights of a known shape: for measuring speed, memory and file sizes of
// models that nobody has at hand. What such a model writes is nonsense by construction.

#ifndef QSF_CONVERT_RANDOM_RANDOM_MODEL_H_
#define QSF_CONVERT_RANDOM_RANDOM_MODEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "convert/encode/transcode_types.h"
#include "convert/random/random_shapes.h"
#include "format/qsf_writer.h"
#include "quant/types.h"

namespace qsf {

struct RandomModelOptions {
  QuantPreset preset = QuantPreset::k4Bit;
  std::optional<QuantType> head_type;  // of token embedding and output head; none: the preset's
  std::uint32_t block = 64;
  Layout layout = Layout::kInterleaved;
  Compression compression = Compression::kNone;
  std::uint64_t tile_bytes = kDefaultTileBytes;
  std::uint64_t seed = 1;
  std::string program;  // provenance: name and version
  // Called once a tile with the weights done and in all.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked once a tile
};

struct RandomModelReport {
  std::uint64_t n_weights = 0;
  std::uint64_t raw_bytes = 0;     // of all tiles
  std::uint64_t stored_bytes = 0;  // of all tiles, compressed
};

// Writes the file: random matrices, gains of 1, biases of 0, and a tokenizer that has a token for
// every byte and names for the rest of the vocabulary. Memory holds one tile.
// Guarantees  the same options give the same bytes; on failure nothing exists at `path` that was
//             not there before
// Fails       kInvalidArgument on a type or block size that cannot be stored, kCancelled, kIo
Result<RandomModelReport> write_random_model(const RandomShape& shape, const std::string& path,
                                             const RandomModelOptions& options,
                                             FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_CONVERT_RANDOM_RANDOM_MODEL_H_
