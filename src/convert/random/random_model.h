// SPDX-License-Identifier: MIT
//
// A .qsf file with random weights of a known shape, to measure speed, memory and file size without
// the model itself. The text of such a model is nonsense.

#ifndef QSF_CONVERT_RANDOM_RANDOM_MODEL_H_
#define QSF_CONVERT_RANDOM_RANDOM_MODEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/encode/transcode_types.h"
#include "format/model_spec.h"
#include "format/qsf_writer.h"
#include "quant/block_format.h"

namespace qsf {

// The shape of a known model; its speed, memory and file size follow from the shape alone.
// shape_spec() adds what the family implies (norms, positions, activation, ties).
struct RandomShape {
  std::string_view name;
  std::string_view architecture;  // "llama", "gpt2", "phi2" or, with `complete`, another
  std::uint32_t n_layers;
  std::uint32_t hidden;
  std::uint32_t ffn;
  std::uint32_t n_heads;
  std::uint32_t n_kv_heads;
  std::uint32_t n_vocab;
  std::uint32_t max_positions;
  bool int8_rows = false;  // ModelSpec::int8_rows
  // Changes what a llama of these numbers has into what the family has.
  void (*complete)(ModelSpec& spec) = nullptr;
  std::optional<QuantType> expert_type = std::nullopt;  // of experts, whatever the preset
};

// Returns every shape, in the order of messages.
std::span<const RandomShape> random_shapes() noexcept;

// Returns their names, "1b, 3b, ...", for help texts and messages.
std::string random_shape_names();

// Returns the shape of that name. Fails  kInvalidArgument, listing the names
Result<RandomShape> find_random_shape(std::string_view name);

// Returns the spec of a model of this shape, without tokens and provenance.
ModelSpec shape_spec(const RandomShape& shape);

struct RandomModelOptions {
  QuantPreset preset = QuantType::kQ4;
  std::optional<QuantType> head_type;  // of token embedding and output head; default: by preset
  std::uint32_t block = 64;
  Layout layout = Layout::kInterleaved;
  Compression compression = Compression::kNone;
  std::uint64_t tile_bytes = kDefaultTileBytes;
  std::uint64_t seed = 1;
  std::string program;  // provenance: name and version
  // Called once per tile with the weights done and the total.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked once per tile
};

struct RandomModelReport {
  std::uint64_t n_weights = 0;
  std::uint64_t raw_bytes = 0;     // of all tiles
  std::uint64_t stored_bytes = 0;  // of all tiles, compressed
};

// Writes the file: random matrices, gains of 1, biases of 0, and a tokenizer with one token per
// byte and made-up tokens for the rest of the vocabulary. Memory holds one tile. Guarantees  the
// same options give the same bytes; on failure `path` is left as it was Fails kInvalidArgument on a
// type or block size that cannot be stored, kCancelled, kIo
Result<RandomModelReport> write_random_model(const RandomShape& shape, const std::string& path,
                                             const RandomModelOptions& options,
                                             FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_CONVERT_RANDOM_RANDOM_MODEL_H_
