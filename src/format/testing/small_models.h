// SPDX-License-Identifier: MIT
//
// Small generated models for tests, golden files and fuzzing seeds: every weight type, layout,
// block size and compression in a few kilobytes.
//
// Weights are drawn from generators seeded by section, tensor and row, so any row can be generated
// again for comparison.

#ifndef QSF_FORMAT_TESTING_SMALL_MODELS_H_
#define QSF_FORMAT_TESTING_SMALL_MODELS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "format/qsf_writer.h"
#include "format/tile_plan.h"
#include "io/file_ops.h"

namespace qsf::testing_support {

struct SmallSection {
  std::vector<TensorInfo> tensors;
  Compression compression = Compression::kNone;
  float importance = 0.0F;
};

struct SmallModel {
  std::string name;
  ModelSpec spec;
  std::vector<SmallSection> sections;  // embedding, layers, final
  std::uint64_t tile_bytes = kDefaultTileBytes;
  std::vector<std::byte> tokenizer;  // empty: none
  std::vector<std::byte> notes;      // an optional section "extra.notes"; empty: none
};

// One layer that holds a single norm, a tied head: the smallest file there is.
SmallModel minimal_model();
// Llama-like: the types with scales per block and the floats in both layouts, every block size,
// partial rows and columns.
SmallModel types_model();
// GPT-2-like: biases, learned positions, an untied head, one layer for each compression, tensors
// cut into several tiles.
SmallModel compressed_model();
// Every field and metadata key of a spec away from its default, experts, a tokenizer.
SmallModel full_model();

// Phi-3-like with norms behind the sublayers: longrope over some elements of a head.
SmallModel longrope_model();

// Super-blocks, ternary-row and qk256 in both layouts, over one to three super-blocks a row.
SmallModel super_model();

// ternary-base3 in both layouts, over less than one block, a part of one and whole ones.
SmallModel base3_model();

// The types of GGUF's K-quants likewise.
SmallModel k_quant_model();

// The same with the types whose codes are numbers of levels.
SmallModel codebook_model();

// The same of mxfp4.
SmallModel mxfp4_model();

// The same of trellis types.
SmallModel trellis_model();

// Returns the f32 weights of one row, as they were before encoding.
std::vector<float> small_row(std::uint32_t section, const TensorInfo& tensor, std::uint32_t row);
// Returns the bytes of one tile.
std::vector<std::byte> small_tile(std::uint32_t section, const std::vector<TensorInfo>& tensors,
                                  const TilePlan& tile);

// A spec whose layers have heads of their own, some keys that are values, and pairs that stand.
ModelSpec shaped_spec();
// The same with residual streams and gates that are cut.
ModelSpec stream_spec();
// A spec with every key of embeddings.
ModelSpec embedding_spec();

Status write_small_model(const SmallModel& model, const std::string& path,
                         FileOps& ops = system_file_ops());
// Returns the bytes of the file. Fails only with the temporary directory.
Result<std::vector<std::byte>> small_model_bytes(const SmallModel& model);

}  // namespace qsf::testing_support

#endif  // QSF_FORMAT_TESTING_SMALL_MODELS_H_
