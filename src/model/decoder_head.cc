// SPDX-License-Identifier: MIT
//
// The output head by its sketch: of the head only the units that a row's sink needs are multiplied.

#include <algorithm>
#include <array>

#include "base/ranges.h"
#include "model/decoder.h"

namespace qsf {
namespace {

constexpr std::uint32_t kUnitsAtOnce = 64;  // of one product: a row of the logits buffer
static_assert(kUnitsAtOnce * SketchedHead::kUnitRows <= kLogitBlock);
static_assert(kUnitsAtOnce <= kMaxMatmulTiles);
// First few: they tell how large the best logits are.
constexpr std::uint32_t kFirstUnits = 16;

}  // namespace

// Returns whether the rows of the pass have what their sinks need. In a pass with rows that need
// more the full head serves all: it is read once for them.
Result<bool> Decoder::search_head(const Pass& pass) {
  const std::uint32_t n_rows = output_counts_.n_rows;
  if (sketched_head_ == nullptr || output_counts_.n_prompt != 0 || !pass_adapters_.empty() ||
      n_rows > SketchedHead::kMaxRows) {
    return false;
  }
  std::array<HeadNeed, SketchedHead::kMaxRows> needs;
  for (std::uint32_t row = 0; row < n_rows; ++row) needs[row] = pass.sink->head_need(row);
  if (!sketched_head_->takes({needs.data(), n_rows})) return false;
  QSF_RETURN_IF_ERROR(backend_.wait());
  QSF_ASSIGN_OR_RETURN(const bool scored, sketched_head_->score(buffers_.normed, n_rows));
  if (!scored) return false;
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    QSF_RETURN_IF_ERROR(search_row(pass, row, needs[row]));
  }
  return true;
}

Status Decoder::search_row(const Pass& pass, std::uint32_t row, const HeadNeed& need) {
  constexpr std::uint32_t kUnitRows = SketchedHead::kUnitRows;
  std::array<std::uint32_t, kUnitsAtOnce> units;
  pass.sink->expect_some(row);
  sketched_head_->start(row, need);
  std::size_t most = kFirstUnits;
  while (const std::size_t n = sketched_head_->take(std::span(units).first(most))) {
    QSF_RETURN_IF_ERROR(multiply_units(row, {units.data(), n}));
    const std::span<const float> logits = backend_.read_row(buffers_.logits, row);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t first = units[i] * kUnitRows;
      const std::span<const float> its =
          logits.subspan(i * kUnitRows, std::min(kUnitRows, weights_.head.rows - first));
      pass.sink->consume(row, first, its);
      sketched_head_->add(first, its);
    }
    if (pass.cancel != nullptr && pass.cancel->load(std::memory_order_relaxed)) {
      return cancelled("cancelled in the output head");
    }
    most = kUnitsAtOnce;
  }
  return ok_status();
}

// Multiplies an output row with units of the head, which ascend. The logits of unit i go to columns
// 16 i of the row's own row of the buffer; i is at most the unit's number, so that no first row is
// negative.
Status Decoder::multiply_units(std::uint32_t row, std::span<const std::uint32_t> units) {
  constexpr std::uint32_t kUnitRows = SketchedHead::kUnitRows;
  const auto ids = pager_.tiles_of(weights_.head.section, weights_.head.tensor);
  const std::span<const std::uint32_t> first_rows = sketched_head_->tile_rows();
  std::array<WeightTile, kUnitsAtOnce> pieces;
  std::array<MatmulTarget, kUnitsAtOnce> targets;
  std::array<TileId, kUnitsAtOnce> held;
  std::size_t n_held = 0;
  Status status = ok_status();
  WeightTile tile;
  for (std::size_t i = 0; i < units.size() && status.ok(); ++i) {
    const std::uint32_t first = units[i] * kUnitRows;
    const auto behind = ranges::upper_bound(first_rows, first);
    const TileId id = ids[static_cast<std::size_t>(behind - first_rows.begin()) - 1];
    if (n_held == 0 || held[n_held - 1] != id) {
      Result<WeightTile> acquired = pager_.acquire(id);
      if (!acquired.has_value()) {
        status = std::move(acquired).error();
        break;
      }
      tile = *acquired;
      held[n_held++] = id;
    }
    const std::size_t skipped = (first - tile.first_row) / kRowGroup * tile.group_bytes;
    pieces[i] = tile;
    pieces[i].bytes += skipped;
    pieces[i].offset += static_cast<std::uint32_t>(skipped);
    pieces[i].first_row = first;
    pieces[i].n_rows = std::min(kUnitRows, weights_.head.rows - first);
    pieces[i].target = static_cast<std::uint32_t>(i);
    targets[i] = {.out = buffers_.logits,
                  .first_weight_row = (units[i] - static_cast<std::uint32_t>(i)) * kUnitRows,
                  .bias = {}};
  }
  if (status.ok()) {
    backend_.matmul({.kind = OperatorKind::kHead,
                     .in = buffers_.normed,
                     .rows = output_counts_,
                     .row_list = {&row, 1},
                     .tiles = {pieces.data(), units.size()},
                     .targets = {targets.data(), units.size()},
                     .adapters = {},
                     .epilogue = {.activation = {}, .scale = spec_.logit_scale, .add_to = {}},
                     .section = weights_.head.section});
    status = backend_.wait();
  }
  for (std::size_t i = 0; i < n_held; ++i) pager_.release(held[i]);
  return status;
}

}  // namespace qsf
