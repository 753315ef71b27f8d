// SPDX-License-Identifier: MIT
//
// The section "head_sketch" of a file: a sketch of the output head and what bounds need of it. The
// names are explained in model/head_bounds.h; docs/head-sketch.md has the bytes.
//
// Coordinates are in order of falling bits, so that those of one weight type are neighbours: a
// part. A section is tied to its head by the checksums of the head's tiles.

#ifndef QSF_MODEL_HEAD_SKETCH_H_
#define QSF_MODEL_HEAD_SKETCH_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "format/qsf_layout.h"
#include "model/head_bounds.h"
#include "quant/weight_types.h"

namespace qsf {

inline constexpr std::string_view kHeadSketchSection = "head_sketch";
// The types of a part, besides none; all in blocks of kSketchColumns. By falling bits.
inline constexpr QuantType kSketchTypes[] = {QuantType::kQ8, QuantType::kQ4, QuantType::kQ3,
                                             QuantType::kQ2S};
inline constexpr std::uint32_t kMaxSketchParts = 5;

// Neighbouring coordinates. Spans are 64-byte aligned and in layout 1.
struct SketchPart {
  std::uint32_t first_col = 0;  // a multiple of kSketchColumns
  std::uint32_t n_cols = 0;     // the same, but for the last part
  std::optional<QuantType> type;
  ByteSpan basis;  // [n_cols, columns of the head] f32
  ByteSpan rows;   // [rows of the head, n_cols]; empty without a type

  BlockFormat format() const noexcept { return {*type, kSketchColumns}; }
};

struct HeadSketch {
  std::uint32_t head_crc = 0;           // head_tiles_crc()
  HeadErrors errors;                    // without codes
  std::span<const std::uint8_t> codes;  // [blocks, n_rows]
  std::vector<SketchPart> parts;        // 1 to kMaxSketchParts, which hold all columns
};

// Reads a section. Spans of the result are parts of it.
// Requires  64-byte aligned bytes
// Fails     kCorrupt, naming what is wrong
Result<HeadSketch> read_head_sketch(ByteSpan section);

// Requires  read_head_sketch() accepts it
std::vector<std::byte> write_head_sketch(const HeadSketch& sketch);

// Returns a checksum of a matrix's tiles, by their own.
std::uint32_t head_tiles_crc(const SectionDirectory& directory, std::uint32_t tensor);

}  // namespace qsf

#endif  // QSF_MODEL_HEAD_SKETCH_H_
