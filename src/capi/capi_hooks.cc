// SPDX-License-Identifier: MIT
//
// The C API's hooks for research; the contract is include/qsf/hooks.h.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "capi/capi_handles.h"
#include "engine/layer_view.h"

struct QSFLayer {
  const qsf::LayerView& view;
};

namespace qsf::capi {
namespace {

static_assert(static_cast<int>(KvPart::kKeys) == QSF_KEYS);
static_assert(static_cast<int>(KvPart::kValues) == QSF_VALUES);

void see_layer(const LayerView& view, void* user) {
  const auto& config = *static_cast<const QSFConfig*>(user);
  const QSFLayer layer = {view};
  if (config.on_layer(&layer, config.layer_user) != 0) view.cancel();
}

void rank_candidates(const H2oCandidates& candidates, std::span<float> ranks, void* user) {
  const auto& config = *static_cast<const QSFConfig*>(user);
  const qsf_kv_candidates out = {.struct_size = sizeof out,
                                 .layer = static_cast<int>(candidates.layer),
                                 .kv_head = static_cast<int>(candidates.kv_head),
                                 .n = candidates.positions.size(),
                                 .n_kept = candidates.n_kept,
                                 .n_positions = static_cast<int>(candidates.end),
                                 .positions = candidates.positions.data(),
                                 .attention = candidates.sums.data()};
  config.rank(&out, ranks.data(), config.rank_user);
}

qsf_kv_type to_c(KvType type) noexcept {
  switch (type) {
    case KvType::kF32: return QSF_KV_F32;
    case KvType::kF16: return QSF_KV_F16;
    case KvType::k8Bit: return QSF_KV_8BIT;
    case KvType::k4Bit: return QSF_KV_4BIT;
    case KvType::k2Bit: break;
  }
  return QSF_KV_2BIT;
}

qsf_layer_info info_of(const LayerView& view) {
  qsf_layer_info info = {};
  info.layer = static_cast<int>(view.layer());
  info.n_layers = static_cast<int>(view.spec().n_layers);
  info.n_rows = static_cast<int>(view.rows().size());
  info.hidden_size = static_cast<int>(view.spec().hidden);
  if (const std::optional<KvShape> kv = view.kv_shape()) {
    info.n_kv_heads = static_cast<int>(kv->n_kv_heads);
    info.head_dim = static_cast<int>(kv->head_dim);
    info.k_type = to_c(kv->k_type);
    info.v_type = to_c(kv->v_type);
    info.kv_bytes = view.kv_bytes();
  }
  return info;
}

Status check_row(const LayerView& view, int row) {
  if (row >= 0 && static_cast<std::size_t>(row) < view.rows().size()) return ok_status();
  return invalid_argument("row: %d, expected 0 to %zu", row, view.rows().size() - 1);
}

Status check_head(const LayerView& view, int row, int kv_head) {
  QSF_RETURN_IF_ERROR(check_row(view, row));
  const std::optional<KvShape> kv = view.kv_shape();
  if (!kv.has_value()) {
    return invalid_argument("layer %u: has no keys and values of its own", view.layer());
  }
  if (kv_head >= 0 && static_cast<std::uint32_t>(kv_head) < kv->n_kv_heads) return ok_status();
  return invalid_argument("kv_head: %d, expected 0 to %u", kv_head, kv->n_kv_heads - 1);
}

Status get_row(const LayerView& view, int row, qsf_layer_row* out) {
  QSF_RETURN_IF_ERROR(check_row(view, row));
  const Row& of = view.rows()[static_cast<std::size_t>(row)];
  qsf_layer_row info = {};
  info.token = static_cast<int>(of.token);
  info.position = of.position;
  info.sequence = static_cast<int>(of.sequence);
  info.is_generated = of.role == RowRole::kGenerated ? 1 : 0;
  info.hidden = view.hidden(static_cast<std::uint32_t>(row)).data();
  return write_struct(info, "info", out);
}

}  // namespace

void set_hooks(QSFConfig& config, EngineOptions& options) noexcept {
  if (config.on_layer != nullptr) options.layer_hook = {see_layer, &config};
  if (config.rank != nullptr) options.h2o_ranker = {rank_candidates, &config};
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void qsf_config_set_layer_callback(QSFConfig* config, QSFLayerCallback callback, void* user_data) {
  if (config == nullptr) return;
  config->on_layer = callback;
  config->layer_user = user_data;
}
void qsf_config_set_rank_callback(QSFConfig* config, QSFRankCallback callback, void* user_data) {
  if (config == nullptr) return;
  config->rank = callback;
  config->rank_user = user_data;
}

qsf_code qsf_layer_get_info(const QSFLayer* layer, qsf_layer_info* info, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (layer == nullptr) return null_argument("layer");
    return write_struct(info_of(layer->view), "info", info);
  });
}
qsf_code qsf_layer_get_row(const QSFLayer* layer, int row, qsf_layer_row* info, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (layer == nullptr) return null_argument("layer");
    return get_row(layer->view, row, info);
  });
}
qsf_code qsf_layer_get_kv_block(const QSFLayer* layer, int row, int kv_head, qsf_kv_part part,
                                int first_position, const void** block, size_t* block_bytes,
                                qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (layer == nullptr) return null_argument("layer");
    if (block == nullptr) return null_argument("block");
    QSF_RETURN_IF_ERROR(check_head(layer->view, row, kv_head));
    if (part != QSF_KEYS && part != QSF_VALUES) {
      return qsf::invalid_argument("part: %d, expected 0 (keys) or 1 (values)",
                                   static_cast<int>(part));
    }
    if (first_position < 0 || first_position % static_cast<int>(qsf::kKvPageSlots) != 0) {
      return qsf::invalid_argument("first_position: %d, expected a multiple of %u", first_position,
                                   qsf::kKvPageSlots);
    }
    const qsf::ByteSpan bytes = layer->view.kv_block(
        static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(kv_head),
        static_cast<qsf::KvPart>(part), static_cast<std::uint32_t>(first_position));
    *block = bytes.data();
    if (block_bytes != nullptr) *block_bytes = bytes.size();
    return qsf::ok_status();
  });
}
qsf_code qsf_layer_get_attention(const QSFLayer* layer, int row, int kv_head, float* mass,
                                 size_t n_positions, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (layer == nullptr) return null_argument("layer");
    if (mass == nullptr) return null_argument("mass");
    QSF_RETURN_IF_ERROR(check_head(layer->view, row, kv_head));
    return layer->view.attention(static_cast<std::uint32_t>(row),
                                 static_cast<std::uint32_t>(kv_head), {mass, n_positions});
  });
}
