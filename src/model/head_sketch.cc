// SPDX-License-Identifier: MIT

#include "model/head_sketch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"
#include "quant/block_format.h"
#include "quant/codec.h"

namespace qsf {
namespace {

constexpr std::string_view kMagic = "HSK1";
constexpr std::uint32_t kNoType = 0xFFFFFFFFU;
constexpr std::size_t kHeadBytes = 128;
constexpr BlockFormat kBasisFormat{QuantType::kF32, 4};

std::vector<float> read_floats(ByteReader& from, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = from.read<float>();
  return values;
}

void write_floats(ByteWriter& to, std::span<const float> values) {
  for (const float value : values) to.write(value);
}

ByteSpan read_aligned(ByteReader& from, std::uint64_t n_bytes) {
  from.skip(align_up(from.position(), kLineBytes) - from.position());
  return from.read_bytes(n_bytes);
}

bool is_sketch_type(std::uint32_t code) {
  return ranges::any_of(kSketchTypes,
                        [&](QuantType type) { return static_cast<std::uint32_t>(type) == code; });
}

// Reads the table of parts. Returns false where they are not the columns in order.
bool read_parts(ByteReader& from, std::uint32_t n_parts, std::uint32_t n_cols,
                std::vector<SketchPart>& parts) {
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < kMaxSketchParts; ++i) {
    const auto type = from.read<std::uint32_t>();
    const auto n_blocks = from.read<std::uint32_t>();
    if (i >= n_parts) continue;
    if ((type != kNoType && !is_sketch_type(type)) || n_blocks == 0 || first >= n_cols ||
        n_blocks > sketch_blocks(n_cols - first)) {
      return false;
    }
    SketchPart& part = parts.emplace_back();
    part.first_col = first;
    part.n_cols = std::min(n_blocks * kSketchColumns, n_cols - first);
    if (type != kNoType) part.type = static_cast<QuantType>(type);
    first += part.n_cols;
  }
  return first == n_cols;
}

Status damaged(const char* what) {
  return corrupt("head_sketch: %s; convert the model again", what);
}

}  // namespace

Result<HeadSketch> read_head_sketch(ByteSpan section) {
  ByteReader from(section);
  if (from.read_text(kMagic.size()) != kMagic) return damaged("of no known version");
  HeadSketch sketch;
  HeadErrors& errors = sketch.errors;
  sketch.head_crc = from.read<std::uint32_t>();
  errors.n_rows = from.read<std::uint32_t>();
  errors.n_cols = from.read<std::uint32_t>();
  const auto n_parts = from.read<std::uint32_t>();
  const auto has_shared = from.read<std::uint32_t>();
  errors.error_norm = from.read<float>();
  errors.defect = from.read<float>();
  errors.head_magnitude = from.read<float>();
  errors.sketch_magnitude = from.read<float>();
  const bool sizes_fit =
      errors.n_rows > 0 && errors.n_cols > 0 && n_parts > 0 && n_parts <= kMaxSketchParts &&
      std::uint64_t{errors.n_rows} * sketch_blocks(errors.n_cols) < section.size() &&
      std::uint64_t{errors.n_cols} * errors.n_cols < section.size();
  if (!from.ok() || !sizes_fit || !read_parts(from, n_parts, errors.n_cols, sketch.parts)) {
    return damaged("its shapes do not fit its bytes");
  }
  const std::uint32_t n_blocks = sketch_blocks(errors.n_cols);
  from.skip(kHeadBytes - from.position());
  errors.steps = read_floats(from, n_blocks);
  errors.sketch_norms = read_floats(from, n_blocks);
  if (has_shared != 0) errors.shared = read_floats(from, errors.n_cols);
  const std::uint64_t n_codes = std::uint64_t{n_blocks} * errors.n_rows;
  const ByteSpan codes = read_aligned(from, n_codes);
  sketch.codes = {reinterpret_cast<const std::uint8_t*>(codes.data()), codes.size()};
  for (SketchPart& part : sketch.parts) {
    part.basis = read_aligned(
        from, rows_bytes(kBasisFormat, Layout::kInterleaved, part.n_cols, errors.n_cols));
  }
  for (SketchPart& part : sketch.parts) {
    if (!part.type.has_value()) continue;
    part.rows = read_aligned(
        from, rows_bytes(part.format(), Layout::kInterleaved, errors.n_rows, part.n_cols));
  }
  if (!from.ok() || from.remaining() != 0) return damaged("its length does not fit its shapes");
  for (const SketchPart& part : sketch.parts) {
    QSF_RETURN_IF_ERROR(
        check_blocks(kBasisFormat, Layout::kInterleaved, part.n_cols, errors.n_cols, part.basis)
            .with_context("head_sketch: basis"));
    if (!part.type.has_value()) continue;
    QSF_RETURN_IF_ERROR(
        check_blocks(part.format(), Layout::kInterleaved, errors.n_rows, part.n_cols, part.rows)
            .with_context("head_sketch: rows"));
  }
  return sketch;
}

std::vector<std::byte> write_head_sketch(const HeadSketch& sketch) {
  const HeadErrors& errors = sketch.errors;
  ByteWriter to;
  to.write_text(kMagic);
  to.write(sketch.head_crc);
  to.write(errors.n_rows);
  to.write(errors.n_cols);
  to.write(static_cast<std::uint32_t>(sketch.parts.size()));
  to.write(errors.shared.empty() ? 0U : 1U);
  for (const float value :
       {errors.error_norm, errors.defect, errors.head_magnitude, errors.sketch_magnitude}) {
    to.write(value);
  }
  for (const SketchPart& part : sketch.parts) {
    to.write(part.type.has_value() ? static_cast<std::uint32_t>(*part.type) : kNoType);
    to.write(sketch_blocks(part.n_cols));
  }
  QSF_CHECK(to.size() <= kHeadBytes);
  to.bytes().resize(kHeadBytes);
  write_floats(to, errors.steps);
  write_floats(to, errors.sketch_norms);
  write_floats(to, errors.shared);
  to.pad_to(kLineBytes);
  to.write_bytes(std::as_bytes(sketch.codes));
  for (const SketchPart& part : sketch.parts) {
    to.pad_to(kLineBytes);
    to.write_bytes(part.basis);
  }
  for (const SketchPart& part : sketch.parts) {
    if (!part.type.has_value()) continue;
    to.pad_to(kLineBytes);
    to.write_bytes(part.rows);
  }
  return std::move(to.bytes());
}

std::uint32_t head_tiles_crc(const SectionDirectory& directory, std::uint32_t tensor) {
  ByteWriter crcs;
  for (const TileInfo& tile : directory.tiles) {
    if (tile.tensor == tensor) crcs.write(tile.crc);
  }
  return crc32(crcs.view());
}

}  // namespace qsf
