// SPDX-License-Identifier: MIT
//
// The decoder: runs the rows of a pass through embedding, layers and output head.
//
// The three steps are separate, so that a pass can be cut between layers. Weights arrive tile by
// tile from the pager and are multiplied as they arrive; the decoder owns no weights and no
// threads. It waits for the backend only where a result is read: logits, or the rows behind a part.

#ifndef QSF_MODEL_DECODER_H_
#define QSF_MODEL_DECODER_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "model/adapter_set.h"
#include "model/expert_router.h"
#include "model/layer_cut.h"
#include "model/logits_sink.h"
#include "model/sketched_head.h"
#include "model/weights.h"
#include "ops/backend.h"
#include "stream/weight_pager.h"

namespace qsf {

// An activation buffer of a decoder.
struct BufferShape {
  std::string_view name;
  std::uint32_t n_rows;
  std::uint32_t n_cols;
};

// What a decoder's buffers depend on beside the model.
struct DecoderOptions {
  bool rope_reindex = false;           // PassLimits::rope_reindex
  std::uint32_t max_adapter_rank = 0;  // 0: without adapters
};

struct DecoderBuffers {
  Buffer hidden;      // [rows, hidden]    the residual stream
  Buffer normed;      // [rows, hidden]    input of the next products
  Buffer q;           // [rows, q_dim]
  Buffer k;           // [rows, kv_dim]
  Buffer v;           // [rows, kv_dim], or what heads of latent attention give
  Buffer attended;    // [rows, q_dim]
  Buffer gate;        // [rows, ffn]
  Buffer up;          // [rows, ffn]
  Buffer projected;   // [rows, hidden]    what attention or FFN adds to the residual stream
  Buffer logits;      // [at least rows, kLogitBlock]
  Buffer ffn_normed;  // [rows, hidden]    input of a parallel block's FFN with a norm of its own
  Buffer scores;      // [rows, experts]   the next three with experts
  Buffer expert_in;   // [rows, hidden]    rows of one expert
  Buffer expert_out;  // [rows, hidden]
  Buffer dense;       // [rows, hidden]    of the FFN that experts stand beside
  // The next four with inputs of each layer: the embedded rows, and rows of the second embedding.
  Buffer embedded;      // [rows, hidden]
  Buffer layer_tables;  // [rows, layers * layer_input_dim]
  Buffer layer_input;   // [rows, layer_input_dim]
  Buffer layer_gate;    // [rows, layer_input_dim]
  Buffer streams;       // [rows, streams * hidden]  the next two with several residual streams
  Buffer laurel;        // [rows, laurel_dim]
  Buffer mixer_in;      // [rows, mixer_in]  the next two with layers that have a state
  Buffer mixed;         // [rows, mixer_out]
  Buffer convolved;     // [rows, conv_channels] of scans and delta rules
  // The next four with latent attention: the row that queries are products of, queries as they are
  // stored, and what the products of heads read.
  Buffer latent_query;  // [rows, latent_query_dim]
  Buffer head_queries;  // [rows, heads * query_dim]
  Buffer key_parts;     // [rows, heads * part_stride(latent_key_dim)]
  Buffer latent_parts;  // [rows, heads * part_stride(latent_dim)]
  Buffer gates;         // [rows, q_dim or mixer_out]  with gates of attention or delta rules
  Buffer rates;         // [rows, mixer_heads]  the next two of delta rules
  Buffer time_steps;    // [rows, mixer_heads]
  Buffer q_sinks;       // [rows, q_dim]     under PassLimits::rope_reindex
  Buffer low_rank;      // [rows, kMaxProducts * max_adapter_rank]  with adapters
  Buffer mtp_rows;      // [rows, 2 * hidden]  of a block for multi-token prediction
};

// Receives rows of a pass: the residual stream behind all layers and the final norm.
struct NormedRows {
  void (*take)(std::uint32_t row, std::span<const float> values, void* user) = nullptr;
  void* user = nullptr;
};

// One pass: rows in the order prompt, then generated and drafted.
struct Pass {
  std::span<const Row> rows;
  const KvCache* kv = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // checked at every tile; may be null
  LogitsSink* sink = nullptr;  // receives the logits of rows with wants_output; may be null
  void (*on_layer)(std::uint32_t n_layers_done, void* user) = nullptr;  // after every layer
  void* on_layer_user = nullptr;
  NormedRows normed = {};  // of run(): receives every row; take may be null
  // [rows, hidden], of a block for multi-token prediction: the other model's rows behind its final
  // norm
  std::span<const float> hidden = {};
  bool keys_alone = false;  // of the last layer the keys and values alone are of use
};

class Decoder {
 public:
  // Returns the buffers that a decoder of this spec needs for passes of `max_rows` rows, all of
  // which may want logits.
  static std::vector<BufferShape> buffer_shapes(const ModelSpec& spec, std::uint32_t max_rows,
                                                const DecoderOptions& options);
  // Names the buffers made from these shapes, in their order.
  static DecoderBuffers name_buffers(const ModelSpec& spec, std::span<const Buffer> made,
                                     const DecoderOptions& options);
  // Returns the columns of the widest row that a product reads.
  static std::uint32_t max_product_cols(const ModelSpec& spec);

  // Requires  reader, pager and backend outlive the decoder; buffers made from buffer_shapes() with
  //           the same max_rows; every key is less than `max_distance` positions away
  //           from its query
  // Fails     as check_tensors
  static Result<Decoder> create(const QsfReader& reader, WeightPager& pager, Backend& backend,
                                const DecoderBuffers& buffers, std::uint32_t max_rows,
                                std::uint32_t max_distance);

  // Has rows that generate take experts in memory whose scores are less by at most `margin`, as
  // ExpertRows::prefer() does; 0: never.
  // Requires  check_expert_preference() is ok
  void prefer_experts(float margin) { expert_preference_ = margin; }

  // Has rows add what their adapters give, from the next pass on; null: no row has an adapter.
  // Requires  the set outlives its use; buffers for its largest rank
  void set_adapters(const AdapterSet* adapters);

  // Has rows that generate read of the head what their sinks need, from the next pass on.
  // Requires  the head outlives its use
  void set_sketched_head(SketchedHead* head) noexcept { sketched_head_ = head; }
  // The matrix that gives logits.
  const MatrixRef& head_matrix() const noexcept { return weights_.head; }

  // Has run() exchange rows with other processes, from the next pass on.
  // Requires  the cut and `rows` outlive their use; the layers of the cut are those of the spec
  // Shapes    rows [max_rows * hidden size]
  void set_cut(const LayerCut* cut, std::span<float> rows) noexcept {
    cut_ = cut;
    relayed_rows_ = rows;
  }

  // Shows every row's experts to a hook from the next pass on; null: to none.
  void set_routing_hook(RoutingHook* hook) noexcept { routing_hook_ = hook; }

  // Of a pass in its call of Pass::on_layer: a row of the residual stream behind that layer, valid
  // during the call. Requires  no residual streams beside it
  std::span<const float> read_hidden(std::uint32_t row);
  // The number of a layer among those with keys and values.
  std::uint32_t kv_place(std::uint32_t layer) const noexcept { return kv_places_[layer]; }

  // Runs a pass from tokens to logits. Allocates nothing. When it returns, with or without an
  // error, all that it submitted is complete.
  // Requires  pass.hidden where the model is a block for multi-token prediction
  // Fails  kCancelled; kCorrupt or kIo from the pager; as Backend::status()
  Status run(const Pass& pass);

  // Runs a pass from tokens to the final norm, without the head, and hands out every row of it.
  // Requires  no sink
  // Fails     as run
  Status run_to_norm(const Pass& pass, const NormedRows& to);

  // Multiplies what was pooled of a text's rows by the dense matrices, where the model has them. In
  // f64, as it is one row.
  // Shapes    pooled [hidden size]
  // Requires  no pass is running
  // Fails     kCorrupt or kIo from the pager
  Status apply_dense(std::span<double> pooled);

  // Runs layers [first, last) alone, and reads no other layer's tiles: from tokens where `first` is
  // 0, else from `hidden`, rows of the residual stream in front of layer `first`. The rows behind
  // layer last - 1 go to `hidden`. With a sink the head follows.
  // Shapes    hidden [rows of the pass, hidden size]
  // Requires  first < last <= layers; with a sink, last == layers
  // Fails     as run
  Status run_part(const Pass& pass, std::uint32_t first, std::uint32_t last,
                  std::span<float> hidden);

 private:
  struct Product {
    const MatrixRef* matrix;
    std::span<const float> bias;
    Buffer out;
    std::uint32_t expert = MatmulArgs::kNoExpert;  // whose matrix it is
  };
  // The rows of a buffer that a product takes, and which rows of the pass they are; empty: the
  // same.
  struct ProductRows {
    RowCounts counts;
    std::span<const std::uint32_t> pass_rows;
  };

  Decoder(const ModelSpec& spec, WeightPager& pager, Backend& backend,
          const DecoderBuffers& buffers, ModelWeights weights, std::uint32_t max_rows,
          std::uint32_t max_distance);

  void begin(const Pass& pass, std::uint32_t first, std::uint32_t last);
  Status embed(const Pass& pass);
  Status run_layers(const Pass& pass, std::uint32_t first, std::uint32_t last);
  Status run_windows(const Pass& pass);
  Status receive_rows(const Pass& pass, std::uint32_t window);
  Status send_rows(std::uint32_t window);
  void upload_rows(std::span<const float> rows);
  void download_rows(std::span<float> rows);
  Status run_layer(const Pass& pass, std::uint32_t layer);
  Status head(const Pass& pass);
  Result<bool> search_head(const Pass& pass);
  Status search_row(const Pass& pass, std::uint32_t row, const HeadNeed& need);
  Status multiply_units(std::uint32_t row, std::span<const std::uint32_t> units);
  Status end(Status status);
  Status mix(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in);
  Status attention(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in);
  Status delta_rule(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in);
  Status scan(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in);
  Status latent_attention(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in);
  Status multiply_parts(const Pass& pass, OperatorKind kind, Buffer in, const MatrixRef& matrix,
                        Buffer out, const MatmulParts& parts);
  void norm_latent(Buffer x, std::uint32_t first_col, std::span<const float> gain);
  void attend(const LayerWeights& w, std::uint32_t layer);
  Status short_conv(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in);
  Status ffn(const Pass& pass, const LayerWeights& w, Buffer in);
  Status route(const Pass& pass, const LayerWeights& w, Buffer in);
  Status score_experts(const Pass& pass, OperatorKind kind, const LayerWeights& w, Buffer in);
  Status guess_experts(const Pass& pass, const LayerWeights& w, const Buffer* added);
  Status run_shared_expert(const Pass& pass, const LayerWeights& w, Buffer in);
  Status run_experts(const Pass& pass, const LayerWeights& w, Buffer in);
  Status multiply_experts(const Pass& pass, const LayerWeights& w, Buffer in);
  Status run_expert(const Pass& pass, const ExpertWeights& w, std::uint32_t expert, Buffer in);
  Status multiply_pooled(const MatrixRef& matrix, std::span<const double> in,
                         std::span<double> out);
  Status look_up_layer_inputs(const Pass& pass);
  Status add_layer_input(const Pass& pass, const LayerWeights& w, std::uint32_t layer);
  Status join_rows(const Pass& pass);
  bool ends_with_keys(const Pass& pass, std::uint32_t layer) const noexcept {
    return pass.keys_alone && layer + 1 == last_layer_;
  }
  Status store_keys(std::uint32_t layer);
  void norm_rows();
  void hand_out(const NormedRows& to);
  Status expand_streams(const Pass& pass);
  Status run_stream_layer(const Pass& pass, std::uint32_t layer);
  Status add_laurel(const Pass& pass, const LayerWeights& w);
  Status run_cut_ffn(const Pass& pass, const LayerWeights& w, std::uint32_t layer);
  Status merge_streams(const Pass& pass);
  void copy_stream(Buffer from, std::uint32_t first, Buffer to, std::uint32_t to_first);
  Status run_experts_beside(const Pass& pass, const LayerWeights& w, Buffer in);
  MatmulEpilogue gate_up_epilogue() const noexcept;
  // Of the products of a gate and of up: both, or the last in models without gates.
  std::span<const Product> gate_up_products(std::span<const Product, 2> both) const noexcept {
    return std::span<const Product>(both).subspan(spec_.gated_ffn ? 0 : 1);
  }
  // What the down projection takes.
  Buffer activated() const noexcept { return spec_.gated_ffn ? buffers_.gate : buffers_.up; }
  void rotate(std::uint32_t rotation, std::uint32_t n_kv_heads);
  Status add_product(const Pass& pass, OperatorKind kind, Buffer in, const MatrixRef& matrix,
                     std::span<const float> bias, std::span<const float> post_norm);
  void norm_heads(Buffer in, Buffer out, std::uint32_t n_heads, std::uint32_t head_dim,
                  std::span<const float> gain);
  void norm(Buffer in, Buffer out, std::span<const float> gain, std::span<const float> bias);
  Status multiply(const Pass& pass, OperatorKind kind, Buffer in, std::span<const Product> products,
                  const MatmulEpilogue& epilogue) {
    return multiply_rows(pass, kind, in, {counts_, {}}, products, epilogue);
  }
  Status multiply_rows(const Pass& pass, OperatorKind kind, Buffer in, const ProductRows& rows,
                       std::span<const Product> products, const MatmulEpilogue& epilogue,
                       const MatmulParts& parts = {});
  AdapterProducts multiply_adapters(Buffer in, const ProductRows& rows,
                                    std::span<const Product> products);
  Result<std::uint32_t> acquire(TileId first, std::uint32_t max_tiles, std::span<WeightTile> tiles);
  Status multiply_head(const Pass& pass, std::span<const WeightTile> tiles,
                       const AdapterProducts& adapters);
  void multiply_head_blocks(std::span<const WeightTile> tiles, std::uint32_t first_token,
                            std::uint32_t last_token, const AdapterProducts& adapters);
  std::uint32_t blocks_at_once() const noexcept;
  std::uint32_t logit_row(std::uint32_t block) const noexcept;
  void deliver_block(const Pass& pass, std::uint32_t block);

  const ModelSpec& spec_;
  WeightPager& pager_;
  Backend& backend_;
  DecoderBuffers buffers_;
  ModelWeights weights_;
  std::vector<float> inverse_frequencies_;
  std::vector<float> local_inverse_frequencies_;
  std::vector<Rotation> rotations_;   // of both, or of the first
  std::vector<float> query_scales_;   // of the pass's rows; none: 1
  std::vector<float> shared_scales_;  // of the pass's rows in a layer with a weighed expert
  std::vector<float> ones_;           // [head_dim], gains of heads that are normed without any
  std::vector<float> layer_scales_;   // of the pass's rows behind a layer with a scale
  std::vector<float> alibi_slopes_;   // [n_heads], or none
  std::vector<float> embedding_row_;  // [hidden]
  std::vector<float> position_row_;   // [hidden]
  std::vector<float> layer_row_;      // [layers * layer_input_dim]
  std::uint32_t last_place_;          // of a query among the positions that it may see
  std::vector<std::uint32_t> output_rows_;   // rows of the pass with logits
  RowCounts counts_;                         // of the pass
  std::uint32_t last_layer_ = 0;             // of the pass, exclusive
  RowCounts output_counts_;                  // of output_rows_
  std::uint32_t logit_rows_;                 // of the logits buffer
  bool norms_rows_;                          // has_row_norms()
  bool gates_attention_;                     // has_attention_gate()
  std::vector<std::uint32_t> kv_places_;     // of each layer among those with keys and values
  std::vector<std::uint32_t> state_places_;  // the same, with a state
  ExpertRows expert_rows_;
  std::vector<std::uint8_t> in_memory_;  // [n_experts], of the layer that runs
  float expert_preference_ = 0.0F;
  RoutingHook* routing_hook_ = nullptr;
  SketchedHead* sketched_head_ = nullptr;
  const LayerCut* cut_ = nullptr;
  std::span<float> relayed_rows_;  // [max_rows * hidden], with a cut
  const AdapterSet* adapters_ = nullptr;
  std::vector<std::uint16_t> pass_adapters_;  // of the pass's rows, each once
  std::vector<LowRankPair> adapter_pairs_;    // [adapters][kMaxProducts], of the product in work
};

}  // namespace qsf

#endif  // QSF_MODEL_DECODER_H_
