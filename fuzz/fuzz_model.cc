// SPDX-License-Identifier: MIT
//
// Any bytes as a .qsf file, checksums not enforced, loaded as an engine loads a model: refused, or
// every tile and tensor usable. Needs qsf_model. Seeds: testdata/format/v1.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "format/qsf_reader.h"
#include "io/read_device.h"
#include "io/testing/faulty_file.h"
#include "model/weights.h"
#include "stream/weight_pager.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxBytes = 64U << 20;  // keeps one input fast and small

class AlignedBytes {
 public:
  explicit AlignedBytes(std::uint64_t n_bytes)
      : n_bytes_(n_bytes), data_(::operator new (n_bytes, std::align_val_t{kTileAlign})) {
    std::memset(data_, 0, n_bytes);
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { ::operator delete (data_, std::align_val_t{kTileAlign}); }
  MutableByteSpan bytes() const { return {static_cast<std::byte*>(data_), n_bytes_}; }

 private:
  std::uint64_t n_bytes_;
  void* data_;
};

// Written to, so that the compiler cannot leave out what reads the weights.
volatile unsigned g_seen_bytes = 0;
volatile float g_seen_value = 0.0F;

void use_tiles(WeightPager& pager) {
  for (TileId id = 0; id < pager.n_tiles(); ++id) {
    const auto tile = pager.acquire(id);
    if (!tile) return;
    const std::size_t n_groups = (tile->n_rows + 15) / 16;
    QSF_CHECK(n_groups > 0);
    g_seen_bytes = std::to_integer<unsigned>(tile->bytes[n_groups * tile->group_bytes - 1]);
    pager.release(id);
  }
}

void use_matrix(WeightPager& pager, const MatrixRef& matrix) {
  if (matrix.rows == 0) return;
  std::vector<float> row(matrix.cols);
  for (const std::uint32_t i : {std::uint32_t{0}, matrix.rows - 1}) {
    if (pager.decode_row(matrix.section, matrix.tensor, i, row).ok()) g_seen_value = row.back();
  }
}

void use_vectors(std::initializer_list<std::span<const float>> vectors) {
  for (const std::span<const float> vector : vectors) {
    if (!vector.empty()) g_seen_value = vector.front() + vector.back();
  }
}

void use_layer(WeightPager& pager, const LayerWeights& layer) {
  for (const MatrixRef& m : {layer.q,
                             layer.k,
                             layer.v,
                             layer.o,
                             layer.attn_gate,
                             layer.mixer_in,
                             layer.mixer_out,
                             layer.mixer_gate,
                             layer.delta_rate,
                             layer.delta_step,
                             layer.latent_query,
                             layer.latent_keys,
                             layer.latent_values,
                             layer.gate,
                             layer.up,
                             layer.down,
                             layer.router,
                             layer.shared_gate,
                             layer.shared_up,
                             layer.shared_down,
                             layer.layer_input,
                             layer.layer_input_gate,
                             layer.layer_input_out,
                             layer.laurel_left,
                             layer.laurel_right}) {
    use_matrix(pager, m);
  }
  for (const MatrixRef& m : layer.stream_in) use_matrix(pager, m);
  for (const MatrixRef& m : layer.stream_out) use_matrix(pager, m);
  for (const ExpertWeights& expert : layer.experts) {
    for (const MatrixRef& m : {expert.gate, expert.up, expert.down}) use_matrix(pager, m);
    use_vectors({expert.gate_bias, expert.up_bias, expert.down_bias});
  }
  use_vectors({layer.attn_norm, layer.attn_norm_bias, layer.ffn_norm, layer.ffn_norm_bias,
               layer.q_norm, layer.k_norm, layer.attn_sub_norm, layer.ffn_sub_norm,
               layer.attn_post_norm, layer.ffn_post_norm, layer.q_bias, layer.k_bias, layer.v_bias,
               layer.o_bias, layer.gate_bias, layer.up_bias, layer.down_bias});
  use_vectors({layer.latent_query_norm, layer.latent_norm, layer.mixer_in_bias,
               layer.mixer_out_bias, layer.conv_taps, layer.conv_bias, layer.scan_decay,
               layer.scan_bias, layer.scan_skip, layer.scan_norm, layer.delta_norm});
  use_vectors({layer.router_correction, layer.router_bias, layer.shared_weight, layer.attn_sinks,
               layer.layer_scale, layer.router_norm, layer.expert_norm, layer.dense_post_norm,
               layer.expert_post_norm, layer.expert_scales});
  use_vectors({layer.layer_input_norm, layer.layer_input_post_norm, layer.stream_router,
               layer.stream_predict, layer.stream_correct, layer.stream_scale, layer.laurel_norm});
}

void use_weights(WeightPager& pager, const ModelWeights& weights) {
  for (const MatrixRef& m : {weights.token_embedding, weights.layer_embedding, weights.dense_up,
                             weights.dense_down, weights.position_embedding, weights.head}) {
    use_matrix(pager, m);
  }
  for (const LayerWeights& layer : weights.layers) {
    use_layer(pager, layer);
  }
  use_vectors({weights.embedding_norm, weights.embedding_norm_bias, weights.final_norm,
               weights.final_norm_bias, weights.head_bias});
}

void load(const QsfReader& reader) {
  const auto residency = WeightPager::plan(reader, {});
  if (!residency || residency->region_bytes > kMaxBytes || residency->table_bytes > kMaxBytes) {
    return;
  }
  // Exactly as many bytes as planned: the sanitizer sees the first one beyond.
  const AlignedBytes region(residency->region_bytes);
  const auto device = ReadDevice::open(reader.file(), {.path = ReadPath::kPread});
  QSF_CHECK(device.has_value());
  const auto pager = WeightPager::open(reader, *device, *residency, region.bytes());
  if (!pager || !(*pager)->load().ok()) return;
  use_tiles(**pager);
  if (check_tensors(reader).ok()) use_weights(**pager, ModelWeights::bind(reader, **pager));
}

}  // namespace
}  // namespace qsf

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  MemoryFileOps ops(std::as_bytes(std::span(data, size)));
  auto file = File::open("fuzz.qsf", ops);
  if (!file) return 0;
  const auto reader = QsfReader::open(std::move(file).value(), {.verify_crc = false});
  if (reader) load(*reader);
  return 0;
}
