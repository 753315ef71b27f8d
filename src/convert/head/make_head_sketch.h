// SPDX-License-Identifier: MIT
//
// Makes the sketch of a finished file's output head, as stored there, and adds it to the file.

#ifndef QSF_CONVERT_HEAD_MAKE_HEAD_SKETCH_H_
#define QSF_CONVERT_HEAD_MAKE_HEAD_SKETCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/qsf_writer.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

struct HeadSketchOptions {
  double share = 0.4;           // of the head's bytes, at most
  std::uint32_t context = 512;  // tokens of a window of the calibration
  unsigned n_threads = 1;
  std::uint64_t ram_budget_bytes = 0;  // of the engine that runs the calibration; 0: what is free
  std::uint64_t tile_bytes = kDefaultTileBytes;  // of the file
  const std::atomic<bool>* cancel = nullptr;     // checked between windows and steps
};

// Fails  kUnsupported, naming the reason, where a sketch would not pay: a head of less than 8 bits
// a
//        weight, or one whose logits have no bounds
Status check_head_sketch(const std::string& path);

// Returns the section for a file's head.
// Shapes  tokens [any number of windows]
// Memory  the head as f32, beside the engine
// Fails   as check_head_sketch and Engine::open; kOutOfBudget for a head of more than 2^28 weights
Result<std::vector<std::byte>> make_head_sketch(const std::string& path,
                                                std::span<const TokenId> tokens,
                                                const HeadSketchOptions& options);

// Writes a file anew, with a section of make_head_sketch(). On failure the file is unchanged.
// Requires  a file of QsfWriter with tiles of options.tile_bytes
Status write_with_head_sketch(const std::string& path, ByteSpan section,
                              const HeadSketchOptions& options);

// Both. Requires  as write_with_head_sketch
Status add_head_sketch(const std::string& path, std::span<const TokenId> tokens,
                       const HeadSketchOptions& options);

}  // namespace qsf

#endif  // QSF_CONVERT_HEAD_MAKE_HEAD_SKETCH_H_
