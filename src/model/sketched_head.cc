// SPDX-License-Identifier: MIT

#include "model/sketched_head.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {
namespace {

constexpr std::uint32_t kProductRows = 128;  // of the buffer of products: 512 KiB
constexpr std::uint32_t kMaxBlocks = 32;     // of logits in one product of a part
constexpr BlockFormat kBasis{QuantType::kF32, 4};

std::uint32_t units_of(std::uint32_t n_rows) {
  return static_cast<std::uint32_t>(ceil_div(n_rows, SketchedHead::kUnitRows));
}

WeightTile tile_of(ByteSpan matrix, BlockFormat format, std::uint32_t n_cols) {
  return {.bytes = matrix.data(),
          .format = format,
          .group_bytes = static_cast<std::size_t>(group_bytes(format, n_cols)),
          .n_cols = n_cols};
}

// Adds values to the first sums. In runs of a fixed length, which compilers make vectors of.
void add_values(std::span<const float> values, std::span<float> sums) noexcept {
  constexpr std::size_t kRun = 16;
  std::size_t done = 0;
  for (; done + kRun <= values.size(); done += kRun) {
    for (std::size_t i = done; i < done + kRun; ++i) sums[i] += values[i];
  }
  for (; done < values.size(); ++done) sums[done] += values[done];
}

// Takes memory for a buffer from the front of a region.
Buffer make_buffer(Backend& backend, std::uint32_t n_rows, std::uint32_t n_cols,
                   MutableByteSpan& memory) {
  const std::size_t n_bytes = align_up(backend.buffer_bytes(n_rows, n_cols), kLineBytes);
  const Buffer buffer = backend.create_buffer(n_rows, n_cols, memory.first(n_bytes));
  memory = memory.subspan(n_bytes);
  return buffer;
}

}  // namespace

std::uint64_t SketchedHead::region_bytes(const Backend& backend, const ModelSpec& spec,
                                         const SectionInfo& section) {
  const auto of = [&](std::uint32_t n_rows, std::uint32_t n_cols) {
    return align_up(backend.buffer_bytes(n_rows, n_cols), kLineBytes);
  };
  // Parts have columns of their own, each padded.
  return align_up(section.bytes, kLineBytes) + of(kMaxRows, spec.hidden) +
         of(2 * kMaxRows, spec.hidden) + kMaxSketchParts * of(2 * kMaxRows, 2 * kColumnAlign) +
         of(kProductRows, kLogitBlock) +
         std::uint64_t{kMaxRows} * units_of(spec.n_vocab) * sizeof(float);
}

std::uint64_t SketchedHead::heap_bytes(const ModelSpec& spec) {
  constexpr std::uint64_t kVectors = kMaxRows + 8;  // of one float for each column, at most
  return std::uint64_t{units_of(spec.n_vocab)} * 2 * sizeof(float) +
         kVectors * spec.hidden * sizeof(float) + kMaxBest * sizeof(TokenLogit);
}

SketchedHead::SketchedHead(HeadSketch sketch, Backend& backend, HeadMode mode,
                           std::uint32_t n_units)
    : sketch_(std::move(sketch)),
      backend_(&backend),
      mode_(mode),
      values_(sketch_.errors.n_cols),
      turned_values_(sketch_.errors.n_cols),
      multiplied_(sketch_.errors.n_cols),
      search_(n_units, kMaxBest),
      n_units_(n_units) {}

const char* SketchedHead::why_unbounded(const QsfReader& reader) {
  const ModelSpec& spec = reader.spec();
  if (spec.logit_soft_cap != 0.0F) return "logits of this model are capped";
  if (!(spec.logit_scale > 0.0F)) return "logits of this model have no scale above 0";
  const bool has_bias = reader.final_section().find(TensorKind::kHeadBias).has_value();
  return has_bias ? "the head of this model has biases" : nullptr;
}

Result<SketchedHead> SketchedHead::create(const QsfReader& reader, const MatrixRef& head,
                                          Backend& backend, MutableByteSpan region, HeadMode mode) {
  const ModelSpec& spec = reader.spec();
  const std::string& path = reader.file().path();
  if (const char* const reason = why_unbounded(reader); reason != nullptr) {
    return unsupported("%s: head_sketch: %s", path.c_str(), reason);
  }
  const SectionInfo* const section = reader.find_section(kHeadSketchSection);
  QSF_CHECK(section != nullptr);
  const MutableByteSpan bytes = region.first(section->bytes);
  QSF_RETURN_IF_ERROR(reader.read_section(*section, bytes));
  Result<HeadSketch> read = read_head_sketch(bytes);
  if (!read.has_value()) return std::move(read).error().with_context(path);
  const SectionDirectory& directory = reader.directories()[head.section];
  const HeadErrors& errors = read->errors;
  if (errors.n_rows != head.rows || errors.n_cols != head.cols ||
      read->head_crc != head_tiles_crc(directory, head.tensor)) {
    return corrupt("%s: head_sketch: of another head of %u x %u; convert the model again",
                   path.c_str(), errors.n_rows, errors.n_cols);
  }
  Result<HeadBounds> bounds = HeadBounds::create(errors, read->codes);
  if (!bounds.has_value()) return std::move(bounds).error().with_context(path);

  SketchedHead made(*std::move(read), backend, mode, units_of(head.rows));
  made.bounds_.assign(kMaxRows, *bounds);
  made.head_format_ = directory.tensors[head.tensor].format;
  made.logit_scale_ = spec.logit_scale;
  for (const TileInfo& tile : directory.tiles) {
    if (tile.tensor == head.tensor) made.tile_rows_.push_back(tile.first_row);
  }
  ranges::sort(made.tile_rows_);
  made.head_bytes_ = rows_bytes(made.head_format_, Layout::kInterleaved, head.rows, head.cols);
  made.sketch_bytes_ = section->bytes;
  made.make_buffers(region.subspan(align_up(section->bytes, kLineBytes)));
  return made;
}

void SketchedHead::make_buffers(MutableByteSpan memory) {
  input_ = make_buffer(*backend_, kMaxRows, sketch_.errors.n_cols, memory);
  for (const SketchPart& part : sketch_.parts) {
    turned_.push_back(make_buffer(*backend_, 2 * kMaxRows, part.n_cols, memory));
    n_products_ += part.type.has_value() ? 1 : 0;
  }
  products_ = make_buffer(*backend_, kProductRows, kLogitBlock, memory);
  unit_bounds_ = {reinterpret_cast<float*>(memory.data()), std::size_t{kMaxRows} * n_units_};
  QSF_CHECK(unit_bounds_.size_bytes() <= memory.size());
}

bool SketchedHead::takes(std::span<const HeadNeed> needs) noexcept {
  const bool served = ranges::all_of(needs, [this](const HeadNeed& need) {
    if (mode_ == HeadMode::kApproximate && need.most_suffice) return true;
    return mode_ == HeadMode::kCertified && need.n_best != 0 && need.n_best <= kMaxBest;
  });
  const bool is_on = mode_ == HeadMode::kApproximate || switch_.is_on();
  const bool searches = served && needs.size() <= kMaxRows && is_on;
  if (!searches) counts_.n_full += needs.size();
  return searches;
}

std::uint32_t SketchedHead::n_blocks_at_once(std::uint32_t n_rows) const noexcept {
  return std::clamp(kProductRows / (2 * n_rows * std::max(n_products_, 1U)), 1U, kMaxBlocks);
}

// Turns the rows that the head's kernel multiplies into the coordinates of the sketch.
Status SketchedHead::turn(std::uint32_t n_rows, Buffer normed, bool& known) {
  known = true;
  for (std::uint32_t row = 0; row < n_rows && known; ++row) {
    known = backend_->read_operand(normed, row, head_format_, values_);
    backend_->upload_row(input_, row, values_);
  }
  if (!known) return ok_status();
  std::array<WeightTile, kMaxSketchParts> tiles;
  std::array<MatmulTarget, kMaxSketchParts> targets;
  const std::size_t n_parts = sketch_.parts.size();
  for (std::size_t i = 0; i < n_parts; ++i) {
    const SketchPart& part = sketch_.parts[i];
    tiles[i] = tile_of(part.basis, kBasis, sketch_.errors.n_cols);
    tiles[i].n_rows = part.n_cols;
    tiles[i].target = static_cast<std::uint32_t>(i);
    targets[i].out = turned_[i];
  }
  backend_->matmul({.kind = OperatorKind::kHead,
                    .in = input_,
                    .rows = {.n_prompt = 0, .n_rows = n_rows},
                    .row_list = {},
                    .tiles = {tiles.data(), n_parts},
                    .targets = {targets.data(), n_parts},
                    .adapters = {},
                    .epilogue = {}});
  QSF_RETURN_IF_ERROR(backend_->wait());
  for (std::uint32_t row = 0; row < n_rows && known; ++row) {
    for (std::size_t i = 0; i < n_parts && known; ++i) known = split_part(i, row, n_rows);
    const std::size_t n_cols = sketch_.errors.n_cols;
    const std::span<const float> input = backend_->read_row(input_, row);
    known = known && bounds_[row].prepare({.input = input.first(n_cols),
                                           .turned = turned_values_,
                                           .multiplied = multiplied_});
  }
  return ok_status();
}

// Int8 codes keep a row to a part in 127 of its blocks, which would widen bounds by more than the
// sketch does. So what they leave out is a second row, and both products are added: 2^-14 is left.
bool SketchedHead::split_part(std::size_t i, std::uint32_t row, std::uint32_t n_rows) {
  const SketchPart& part = sketch_.parts[i];
  const std::span<float> whole = std::span(turned_values_).subspan(part.first_col, part.n_cols);
  const std::span<float> taken = std::span(multiplied_).subspan(part.first_col, part.n_cols);
  const std::span<float> rest(values_.data(), part.n_cols);
  const std::span<const float> turned = backend_->read_row(turned_[i], row);
  std::copy_n(turned.begin(), part.n_cols, whole.begin());
  if (!part.type.has_value()) {
    ranges::copy(whole, taken.begin());
    return true;
  }
  if (!backend_->read_operand(turned_[i], row, part.format(), taken)) return false;
  ranges::transform(whole, taken, rest.begin(), std::minus<>());
  backend_->upload_row(turned_[i], n_rows + row, rest);
  if (!backend_->read_operand(turned_[i], n_rows + row, part.format(), rest)) return false;
  ranges::transform(taken, rest, taken.begin(), std::plus<>());
  return true;
}

Result<bool> SketchedHead::score(Buffer normed, std::uint32_t n_rows) {
  QSF_DCHECK(n_rows <= kMaxRows);
  bool known = false;
  QSF_RETURN_IF_ERROR(turn(n_rows, normed, known));
  if (!known) {
    counts_.n_full += n_rows;
    return false;
  }
  n_rows_ = n_rows;
  const auto n_all = static_cast<std::uint32_t>(ceil_div(sketch_.errors.n_rows, kLogitBlock));
  const std::uint32_t at_once = n_blocks_at_once(n_rows);
  for (std::uint32_t first = 0; first < n_all; first += at_once) {
    const std::uint32_t n_blocks = std::min(at_once, n_all - first);
    QSF_RETURN_IF_ERROR(multiply(first, n_blocks, n_rows));
    for (std::uint32_t i = 0; i < n_blocks; ++i) bound_block(first + i, i, n_blocks, n_rows);
  }
  return true;
}

// Product p, block b and row r go to row (p * n_blocks + b) * 2 n_rows + r of the buffer; behind
// the rows are those of split_part().
Status SketchedHead::multiply(std::uint32_t first_block, std::uint32_t n_blocks,
                              std::uint32_t n_rows) {
  std::uint32_t product = 0;
  for (std::size_t p = 0; p < sketch_.parts.size(); ++p) {
    const SketchPart& part = sketch_.parts[p];
    if (!part.type.has_value()) continue;
    std::array<WeightTile, kMaxBlocks> tiles;
    std::array<MatmulTarget, kMaxBlocks> targets;
    const WeightTile whole = tile_of(part.rows, part.format(), part.n_cols);
    for (std::uint32_t i = 0; i < n_blocks; ++i) {
      const std::uint32_t first_row = (first_block + i) * kLogitBlock;
      tiles[i] = whole;
      tiles[i].bytes += first_row / kRowGroup * whole.group_bytes;
      tiles[i].first_row = first_row;
      tiles[i].n_rows = std::min(kLogitBlock, sketch_.errors.n_rows - first_row);
      tiles[i].target = i;
      targets[i] = {.out = products_,
                    .first_row = (product * n_blocks + i) * 2 * n_rows,
                    .first_weight_row = first_row,
                    .bias = {}};
    }
    backend_->matmul({.kind = OperatorKind::kHead,
                      .in = turned_[p],
                      .rows = {.n_prompt = 0, .n_rows = 2 * n_rows},
                      .row_list = {},
                      .tiles = {tiles.data(), n_blocks},
                      .targets = {targets.data(), n_blocks},
                      .adapters = {},
                      .epilogue = {}});
    ++product;
  }
  return backend_->wait();
}

void SketchedHead::bound_block(std::uint32_t block, std::uint32_t place, std::uint32_t n_blocks,
                               std::uint32_t n_rows) noexcept {
  std::array<float, kLogitBlock> sums;
  const std::uint32_t first_row = block * kLogitBlock;
  const std::uint32_t n = std::min(kLogitBlock, sketch_.errors.n_rows - first_row);
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    std::fill_n(sums.begin(), n, 0.0F);
    for (std::uint32_t product = 0; product < n_products_; ++product) {
      const std::uint32_t first = (product * n_blocks + place) * 2 * n_rows + row;
      for (const std::uint32_t part : {first, first + n_rows}) {
        add_values(backend_->read_row(products_, part).first(n), sums);
      }
    }
    const std::span<float> scores(sums.data(), n);
    if (mode_ == HeadMode::kCertified) bounds_[row].bound(first_row, scores);
    if (logit_scale_ != 1.0F) {
      // Rounds as the kernel's, so no bound falls.
      for (float& score : scores) score *= logit_scale_;
    }
    bound_units(scores, kUnitRows,
                unit_bounds_.subspan(std::size_t{row} * n_units_ + first_row / kUnitRows));
  }
}

void SketchedHead::start(std::uint32_t row, const HeadNeed& need) noexcept {
  n_tokens_ = need.n_tokens;
  is_approximate_ = mode_ == HeadMode::kApproximate;
  n_read_ = 0;
  search_.set_n_best(is_approximate_ ? kMaxBest : need.n_best);
  search_.start(unit_bounds_.subspan(std::size_t{row} * n_units_, n_units_));
}

std::size_t SketchedHead::take(std::span<std::uint32_t> units) noexcept {
  if (is_approximate_)
    units = units.first(std::min<std::size_t>(units.size(), kApproximateUnits - n_read_));
  const std::size_t n = search_.take(units);
  std::sort(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(n));
  n_read_ += static_cast<std::uint32_t>(n);
  if (n != 0) return n;
  ++counts_.n_searched;
  const std::uint64_t bytes = sketch_bytes_ / n_rows_ + head_bytes_ / n_units_ * n_read_;
  counts_.bytes_read += bytes;
  counts_.bytes_replaced += head_bytes_;
  switch_.record(static_cast<float>(bytes) / static_cast<float>(head_bytes_));
  return 0;
}

void SketchedHead::add(std::uint32_t first_token, std::span<const float> logits) noexcept {
  if (is_approximate_ || first_token >= n_tokens_) return;
  const std::size_t n = std::min<std::size_t>(logits.size(), n_tokens_ - first_token);
  std::array<std::uint32_t, kUnitRows> tokens;
  for (std::size_t i = 0; i < n; ++i) tokens[i] = first_token + static_cast<std::uint32_t>(i);
  search_.add({tokens.data(), n}, logits.first(n));
}

}  // namespace qsf
