// SPDX-License-Identifier: MIT
//
// The output head by its sketch: the sketch's products with hidden rows, bounds of all logits, and
// which units of the head are read for a row (model/head_bounds.h, model/head_search.h).
//
// A unit is the 16 rows that kernels multiply at once, so its logits have the bits of the full
// head. A certified search reads until no other unit can hold one of the best tokens; an
// approximate one reads the kApproximateUnits units with the largest products of the sketch.
//
// Based on: docs/decisions/057-head-clusters.md.

#ifndef QSF_MODEL_SKETCHED_HEAD_H_
#define QSF_MODEL_SKETCHED_HEAD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "format/qsf_reader.h"
#include "model/head_bounds.h"
#include "model/head_mode.h"
#include "model/head_search.h"
#include "model/head_sketch.h"
#include "model/logits_sink.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace qsf {

class SketchedHead {
 public:
  static constexpr std::uint32_t kUnitRows = kRowGroup;
  static constexpr std::uint32_t kMaxRows = 8;    // of a pass, with logits
  static constexpr std::uint32_t kMaxBest = 256;  // tokens of a certified search
  static constexpr std::uint32_t kApproximateUnits = 64;

  // The bytes of create()'s region and of the heap.
  static std::uint64_t region_bytes(const Backend& backend, const ModelSpec& spec,
                                    const SectionInfo& section);
  static std::uint64_t heap_bytes(const ModelSpec& spec);

  // Returns why logits of a model have no bounds; null: they have.
  static const char* why_unbounded(const QsfReader& reader);

  // Reads the section of a file whose head is resident.
  // Requires  reader, backend and region outlive it; region_bytes() bytes
  // Fails     kCorrupt for a damaged section or one of another head, kIo; kUnsupported for a model
  //           whose logits have no bounds
  static Result<SketchedHead> create(const QsfReader& reader, const MatrixRef& head,
                                     Backend& backend, MutableByteSpan region, HeadMode mode);

  // Sets the share of the head that a certified search reads at most before it is switched off.
  void set_largest_share(float share) noexcept { switch_ = HeadSwitch(share); }

  // Whether the rows of a pass are searched, for a sink with these needs. Counts rows that are not.
  bool takes(std::span<const HeadNeed> needs) noexcept;

  // Computes bounds of all logits of the first n_rows rows of `normed`, which all generate.
  // Returns false where there are none: then the head is to be read in full.
  // Requires  takes(), of n_rows rows
  // Fails     as Backend::wait
  Result<bool> score(Buffer normed, std::uint32_t n_rows);

  // Starts to read for a row. Requires  score()
  void start(std::uint32_t row, const HeadNeed& need) noexcept;
  // Writes the units that are read next, ascending, and returns how many; 0: the row is complete.
  std::size_t take(std::span<std::uint32_t> units) noexcept;
  void add(std::uint32_t first_token, std::span<const float> logits) noexcept;

  // First rows of the head's tiles, ascending.
  std::span<const std::uint32_t> tile_rows() const noexcept { return tile_rows_; }
  const HeadCounts& counts() const noexcept { return counts_; }

 private:
  SketchedHead(HeadSketch sketch, Backend& backend, HeadMode mode, std::uint32_t n_units);
  void make_buffers(MutableByteSpan memory);
  Status turn(std::uint32_t n_rows, Buffer normed, bool& known);
  bool split_part(std::size_t i, std::uint32_t row, std::uint32_t n_rows);
  Status multiply(std::uint32_t first_block, std::uint32_t n_blocks, std::uint32_t n_rows);
  void bound_block(std::uint32_t block, std::uint32_t place, std::uint32_t n_blocks,
                   std::uint32_t n_rows) noexcept;
  std::uint32_t n_blocks_at_once(std::uint32_t n_rows) const noexcept;

  HeadSketch sketch_;
  Backend* backend_;
  HeadMode mode_;
  HeadCounts counts_;
  BlockFormat head_format_{QuantType::kF32, 4};
  float logit_scale_ = 1.0F;
  std::vector<std::uint32_t> tile_rows_;
  std::uint64_t head_bytes_ = 0;
  std::uint64_t sketch_bytes_ = 0;
  std::uint32_t n_products_ = 0;  // parts with a type
  Buffer input_;                  // [kMaxRows, columns]
  std::vector<Buffer> turned_;    // of each part [2 * kMaxRows, its columns]
  Buffer products_;               // [kProductRows, kLogitBlock]
  std::span<float> unit_bounds_;  // [kMaxRows, units]
  std::vector<float> values_, turned_values_, multiplied_;  // [columns]
  std::vector<HeadBounds> bounds_;                          // [kMaxRows]
  HeadSearch search_;
  HeadSwitch switch_;
  std::uint32_t n_units_;
  std::uint32_t n_rows_ = 0;    // of score()
  std::uint32_t n_tokens_ = 0;  // of the row in work, and so below
  bool is_approximate_ = false;
  std::uint32_t n_read_ = 0;
};

}  // namespace qsf

#endif  // QSF_MODEL_SKETCHED_HEAD_H_
