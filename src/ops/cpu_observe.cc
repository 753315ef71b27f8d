// SPDX-License-Identifier: MIT
//
// What the CPU backend tells an observer; nothing of this runs without one.

#include "ops/cpu_backend.h"

namespace qsf {

CpuBackend::Observation::Observation(CpuBackend& backend, OperatorKind kind, Buffer in, Buffer out,
                                     std::string_view kernel) noexcept
    : backend_(backend) {
  if (backend.observer_ == nullptr) return;
  event_.kind = kind;
  event_.in = in;
  event_.out = out;
  event_.kernel = kernel;
  event_.n_rows = static_cast<std::uint32_t>(backend.rows_.size());
  event_.start_ns = monotonic_ns();
}

CpuBackend::Observation::~Observation() {
  if (backend_.observer_ == nullptr) return;
  event_.ns = monotonic_ns() - event_.start_ns;
  backend_.observer_->operator_ended(backend_, event_);
}

// Tiles of one target that the same kernels take are one part.
void CpuBackend::Observation::set_product(const MatmulArgs& args) {
  if (backend_.observer_ == nullptr) return;
  event_.product = &args;
  event_.n_rows =
      args.row_list.empty() ? args.rows.n_rows : static_cast<std::uint32_t>(args.row_list.size());
  std::vector<ProductPart>& parts = backend_.observed_parts_;
  parts.clear();
  for (std::size_t i = 0; i < args.tiles.size(); ++i) {
    const MatmulTile& tile = args.tiles[i];
    const TileKernels& chosen = backend_.tile_kernels_[i];
    ProductPart part = {.format = tile.format, .target = tile.target, .n_cols = tile.n_cols};
    if (args.rows.n_prompt > 0) part.prompt_kernel = chosen.prompt->name;
    if (args.rows.n_rows > args.rows.n_prompt) part.other_kernel = chosen.other->name;
    const bool joins =
        !parts.empty() && parts.back().target == part.target && parts.back().format == part.format;
    if (!joins) parts.push_back(part);
    parts.back().n_rows += tile.n_rows;
    parts.back().bytes += align_up(tile.n_rows, kRowGroup) / kRowGroup * tile.group_bytes;
  }
  event_.parts = parts;
}

}  // namespace qsf
