// SPDX-License-Identifier: MIT
//
// LayerView: what a hook may read of a layer that a pass has computed (EngineOptions::layer_hook).
//
// Threads  that of the call; valid during it

#ifndef QSF_ENGINE_LAYER_VIEW_H_
#define QSF_ENGINE_LAYER_VIEW_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "engine/engine.h"
#include "kv/kv_cache.h"
#include "kv/row.h"

namespace qsf {

class LayerView {
 public:
  // Requires  the pass has computed the layer, and no operator since
  LayerView(Engine::Impl& engine, std::span<const Row> rows, std::uint32_t layer) noexcept
      : engine_(engine), rows_(rows), layer_(layer) {}

  std::uint32_t layer() const noexcept { return layer_; }
  const ModelSpec& spec() const noexcept;
  std::span<const Row> rows() const noexcept { return rows_; }
  // The residual stream behind the layer.
  // Shapes    [hidden size]
  // Requires  row < rows().size(), here and below
  std::span<const float> hidden(std::uint32_t row) const noexcept;

  // Stops the pass, as Engine::cancel() does.
  void cancel() const noexcept;

  // The shape of what the layer keeps of keys and values, as of one layer alone; none for a layer
  // without its own.
  std::optional<KvShape> kv_shape() const noexcept;
  // Bytes of them, of the sequences that the rows belong to: whole pages, and the heavy hitters of
  // H2O eviction.
  std::uint64_t kv_bytes() const noexcept;
  // A block of a page (quant/kv_type.h) of the row's sequence, with the keys (values) of the slots
  // first_slot to first_slot + 63. Empty where they are not in memory.
  // Requires  kv_shape(), kv_head < n_kv_heads; first_slot is a multiple of kKvPageSlots
  ByteSpan kv_block(std::uint32_t row, std::uint32_t kv_head, KvPart part,
                    std::uint32_t first_slot) const noexcept;

  // The attention that positions of the row's sequence have received so far, summed over the
  // queries of a KV head; NaN for evicted ones.
  // Shapes    mass [at most the positions of the sequence]
  // Requires  kv_head < n_kv_heads of kv_shape()
  // Fails     kUnsupported without KvPolicy::kH2o
  Status attention(std::uint32_t row, std::uint32_t kv_head, std::span<float> mass) const;

 private:
  // The number of the layer among those with keys and values of their own.
  std::optional<std::uint32_t> kv_layer() const noexcept;

  Engine::Impl& engine_;
  std::span<const Row> rows_;
  std::uint32_t layer_;
};

}  // namespace qsf

#endif  // QSF_ENGINE_LAYER_VIEW_H_
