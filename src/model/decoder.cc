// SPDX-License-Identifier: MIT
//
// The forward pass, top to bottom: tokens to hidden rows, through the layers, to logits.

#include "model/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/portable_math.h"
#include "model/architecture.h"
#include "model/position_tables.h"

namespace qsf {
namespace {

constexpr std::uint32_t kTilesAtOnce = 64;  // tiles multiplied in one fork-join when they are ready
constexpr std::uint32_t kMaxProducts = 4;   // q, k, v and a gate
constexpr std::uint32_t kHeadBlocks = 32;   // blocks of logits in one fork-join: 32,768 tokens
static_assert(kTilesAtOnce + kHeadBlocks <= kMaxMatmulTiles);

ActivationKind activation_kind(Activation activation) {
  switch (activation) {
    case Activation::kGeluTanh: return ActivationKind::kGeluTanh;
    case Activation::kGeluErf: return ActivationKind::kGeluErf;
    case Activation::kSilu: return ActivationKind::kSilu;
    case Activation::kReluSquared: return ActivationKind::kReluSquared;
    case Activation::kSwishClamped: return ActivationKind::kSwishClamped;
    case Activation::kRelu: break;
  }
  return ActivationKind::kRelu;
}

NormKind norm_kind(NormType type) {
  return type == NormType::kRmsNorm ? NormKind::kRmsNorm : NormKind::kLayerNorm;
}

bool is_cancelled(const Pass& pass) {
  return pass.cancel != nullptr && pass.cancel->load(std::memory_order_relaxed);
}

// Columns of the buffer of gates: of attention, of delta rules.
std::uint32_t gate_columns(const ModelSpec& spec) {
  const std::uint32_t of_attention = has_attention_gate(spec) ? spec.q_dim() : 0;
  return std::max(of_attention, spec.has_delta_rule() ? spec.mixer_out() : 0);
}

std::uint32_t logit_rows(std::uint32_t max_rows) {
  return std::max(max_rows, kHeadBlocks);
}

}  // namespace

namespace {

// A buffer and its place among those of a decoder.
struct NamedShape {
  Buffer DecoderBuffers::*member;
  BufferShape shape;
};

std::vector<NamedShape> named_shapes(const ModelSpec& spec, std::uint32_t max_rows,
                                     const DecoderOptions& options) {
  const std::uint32_t ffn = spec.widest_ffn();
  const std::uint32_t v_dim = spec.has_latent() ? spec.n_heads * spec.value_dim() : spec.kv_dim();
  std::vector<NamedShape> shapes;
  const auto add = [&](Buffer DecoderBuffers::*member, std::string_view name, std::uint32_t n_rows,
                       std::uint32_t n_cols) {
    shapes.push_back({member, {name, n_rows, n_cols}});
  };
  add(&DecoderBuffers::hidden, "hidden", max_rows, spec.hidden);
  add(&DecoderBuffers::normed, "normed", max_rows, spec.hidden);
  add(&DecoderBuffers::q, "q", max_rows, spec.q_dim());
  add(&DecoderBuffers::k, "k", max_rows, spec.kv_dim());
  add(&DecoderBuffers::v, "v", max_rows, v_dim);
  add(&DecoderBuffers::attended, "attended", max_rows, spec.q_dim());
  add(&DecoderBuffers::gate, "gate", max_rows, ffn);
  add(&DecoderBuffers::up, "up", max_rows, ffn);
  add(&DecoderBuffers::projected, "projected", max_rows, spec.hidden);
  add(&DecoderBuffers::logits, "logits", logit_rows(max_rows), kLogitBlock);
  if (has_parallel_ffn_norm(spec)) {
    add(&DecoderBuffers::ffn_normed, "ffn_normed", max_rows, spec.hidden);
  }
  if (spec.n_experts != 0) {
    add(&DecoderBuffers::scores, "scores", max_rows, spec.n_experts);
    add(&DecoderBuffers::expert_in, "expert_in", max_rows, spec.hidden);
    add(&DecoderBuffers::expert_out, "expert_out", max_rows, spec.hidden);
  }
  if (spec.experts_beside_ffn) add(&DecoderBuffers::dense, "dense", max_rows, spec.hidden);
  if (spec.layer_input_dim != 0) {
    add(&DecoderBuffers::embedded, "embedded", max_rows, spec.hidden);
    add(&DecoderBuffers::layer_tables, "layer_tables", max_rows,
        spec.n_layers * spec.layer_input_dim);
    add(&DecoderBuffers::layer_input, "layer_input", max_rows, spec.layer_input_dim);
    add(&DecoderBuffers::layer_gate, "layer_gate", max_rows, spec.layer_input_dim);
  }
  if (spec.has_streams()) {
    add(&DecoderBuffers::streams, "streams", max_rows, spec.n_streams * spec.hidden);
    add(&DecoderBuffers::laurel, "laurel", max_rows, spec.laurel_dim);
  }
  if (spec.has_state()) {
    add(&DecoderBuffers::mixer_in, "mixer_in", max_rows, spec.mixer_in());
    add(&DecoderBuffers::mixed, "mixed", max_rows, spec.mixer_out());
    if (spec.mixer_heads != 0) {
      add(&DecoderBuffers::convolved, "convolved", max_rows, spec.conv_channels());
    }
  }
  if (spec.has_latent()) {
    const std::uint32_t n = spec.n_heads;
    // Without a row of their own queries have an unused buffer.
    add(&DecoderBuffers::latent_query, "latent_query", max_rows,
        std::max(spec.latent_query_dim, 1U));
    add(&DecoderBuffers::head_queries, "head_queries", max_rows, n * spec.query_dim());
    add(&DecoderBuffers::key_parts, "key_parts", max_rows, n * part_stride(spec.latent_key_dim));
    add(&DecoderBuffers::latent_parts, "latent_parts", max_rows, n * part_stride(spec.latent_dim));
  }
  const std::uint32_t n_gates = gate_columns(spec);
  if (n_gates != 0) add(&DecoderBuffers::gates, "gates", max_rows, n_gates);
  if (spec.has_delta_rule()) {
    add(&DecoderBuffers::rates, "rates", max_rows, spec.mixer_heads);
    add(&DecoderBuffers::time_steps, "time_steps", max_rows, spec.mixer_heads);
  }
  if (spec.mtp_block) add(&DecoderBuffers::mtp_rows, "mtp_rows", max_rows, 2 * spec.hidden);
  if (options.rope_reindex) add(&DecoderBuffers::q_sinks, "q_sinks", max_rows, spec.q_dim());
  if (options.max_adapter_rank != 0) {
    add(&DecoderBuffers::low_rank, "low_rank", max_rows, kMaxProducts * options.max_adapter_rank);
  }
  return shapes;
}

}  // namespace

std::vector<BufferShape> Decoder::buffer_shapes(const ModelSpec& spec, std::uint32_t max_rows,
                                                const DecoderOptions& options) {
  std::vector<BufferShape> shapes;
  for (const NamedShape& named : named_shapes(spec, max_rows, options)) {
    shapes.push_back(named.shape);
  }
  return shapes;
}

DecoderBuffers Decoder::name_buffers(const ModelSpec& spec, std::span<const Buffer> made,
                                     const DecoderOptions& options) {
  DecoderBuffers named;
  const std::vector<NamedShape> shapes = named_shapes(spec, 1, options);
  QSF_CHECK(made.size() == shapes.size());
  for (std::size_t i = 0; i < made.size(); ++i) named.*shapes[i].member = made[i];
  return named;
}

std::uint32_t Decoder::max_product_cols(const ModelSpec& spec) {
  const std::uint32_t mixer_out = spec.has_state() ? spec.mixer_out() : 0;
  const std::uint32_t widest =
      std::max({spec.hidden, spec.q_dim(), spec.widest_ffn(), mixer_out, spec.layer_input_dim,
                spec.laurel_dim, spec.mtp_block ? 2 * spec.hidden : 0});
  if (!spec.has_latent()) return widest;
  return std::max({widest, spec.latent_query_dim, spec.n_heads * spec.value_dim(),
                   part_columns(spec.n_heads, spec.latent_key_dim),
                   part_columns(spec.n_heads, spec.latent_dim)});
}

Result<Decoder> Decoder::create(const QsfReader& reader, WeightPager& pager, Backend& backend,
                                const DecoderBuffers& buffers, std::uint32_t max_rows,
                                std::uint32_t max_distance) {
  QSF_RETURN_IF_ERROR(check_tensors(reader));
  return Decoder(reader.spec(), pager, backend, buffers, ModelWeights::bind(reader, pager),
                 max_rows, max_distance);
}

Decoder::Decoder(const ModelSpec& spec, WeightPager& pager, Backend& backend,
                 const DecoderBuffers& buffers, ModelWeights weights, std::uint32_t max_rows,
                 std::uint32_t max_distance)
    : spec_(spec),
      pager_(pager),
      backend_(backend),
      buffers_(buffers),
      weights_(std::move(weights)),
      inverse_frequencies_(rope_inverse_frequencies(spec, max_distance)),
      local_inverse_frequencies_(local_rope_inverse_frequencies(spec)),
      alibi_slopes_(alibi_slopes(spec)),
      embedding_row_(spec.hidden),
      position_row_(spec.hidden),
      layer_row_(std::size_t{spec.n_layers} * spec.layer_input_dim),
      last_place_(max_distance - 1),
      logit_rows_(logit_rows(max_rows)),
      norms_rows_(has_row_norms(spec)),
      gates_attention_(has_attention_gate(spec)),
      expert_rows_(spec, max_rows),
      in_memory_(spec.n_experts) {
  output_rows_.reserve(max_rows);
  std::uint32_t n_attention = 0;
  std::uint32_t n_states = 0;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    kv_places_.push_back(spec.owns_kv(layer) ? n_attention : spec.attention_of(layer).kv_layer);
    state_places_.push_back(n_states);
    n_attention += spec.attends(layer) ? 1 : 0;
    n_states += spec.keeps_state(layer) ? 1 : 0;
  }
  if (!inverse_frequencies_.empty()) {
    rotations_.push_back({.inverse_frequencies = inverse_frequencies_,
                          .factor = rope_attention_factor(spec, max_distance),
                          .rounded_positions = spec.max_positions,
                          .head_dim = rotated_head_dim(spec, LayerRope::kMain)});
  }
  if (!local_inverse_frequencies_.empty()) {
    rotations_.push_back({.inverse_frequencies = local_inverse_frequencies_,
                          .factor = 1.0F,
                          .rounded_positions = spec.max_positions,
                          .head_dim = rotated_head_dim(spec, LayerRope::kLocal)});
  }
  if (spec.query_position_scale != 0.0F) query_scales_.reserve(max_rows);
  if (spec.shared_ffn != 0) shared_scales_.reserve(max_rows);
  if (spec.value_norms || spec.unit_head_norms) ones_.assign(spec.head_dim, 1.0F);
  layer_scales_.reserve(max_rows);
}

void Decoder::set_adapters(const AdapterSet* adapters) {
  adapters_ = adapters;
  const std::size_t n_adapters = adapters == nullptr ? 0 : adapters->size();
  pass_adapters_.reserve(n_adapters);
  adapter_pairs_.resize(n_adapters * kMaxProducts);
}

Status Decoder::run(const Pass& pass) {
  begin(pass, 0, spec_.n_layers);
  Status status = ok_status();
  if (cut_ == nullptr) {
    status = embed(pass);
    if (status.ok()) status = run_layers(pass, 0, spec_.n_layers);
  } else {
    status = run_windows(pass);
  }
  if (status.ok()) status = head(pass);
  if (status.ok() && pass.normed.take != nullptr) norm_rows();
  QSF_RETURN_IF_ERROR(end(std::move(status)));
  if (pass.normed.take != nullptr) hand_out(pass.normed);
  return ok_status();
}

Status Decoder::run_part(const Pass& pass, std::uint32_t first, std::uint32_t last,
                         std::span<float> hidden) {
  QSF_DCHECK(first < last && last <= spec_.n_layers);
  QSF_DCHECK(hidden.size() == pass.rows.size() * spec_.hidden);
  QSF_DCHECK(pass.sink == nullptr || last == spec_.n_layers);
  begin(pass, first, last);
  Status status = ok_status();
  if (first == 0 || spec_.layer_input_dim != 0) status = embed(pass);
  if (first != 0) upload_rows(hidden);
  if (status.ok()) status = run_layers(pass, first, last);
  if (status.ok() && pass.sink != nullptr) status = head(pass);
  QSF_RETURN_IF_ERROR(end(std::move(status)));
  download_rows(hidden);
  return ok_status();
}

Status Decoder::run_to_norm(const Pass& pass, const NormedRows& to) {
  QSF_DCHECK(pass.sink == nullptr);
  begin(pass, 0, spec_.n_layers);
  Status status = embed(pass);
  if (status.ok()) status = run_layers(pass, 0, spec_.n_layers);
  if (status.ok()) norm_rows();
  QSF_RETURN_IF_ERROR(end(std::move(status)));
  hand_out(to);
  return ok_status();
}

std::span<const float> Decoder::read_hidden(std::uint32_t row) {
  static_cast<void>(backend_.wait());  // its error ends the pass
  return backend_.read_row(buffers_.hidden, row);
}

Status Decoder::apply_dense(std::span<double> pooled) {
  if (spec_.embedding_dense == 0) return ok_status();
  std::vector<double> between(spec_.embedding_dense);
  QSF_RETURN_IF_ERROR(multiply_pooled(weights_.dense_up, pooled, between));
  return multiply_pooled(weights_.dense_down, between, pooled);
}

Status Decoder::multiply_pooled(const MatrixRef& matrix, std::span<const double> in,
                                std::span<double> out) {
  std::vector<float> row(in.size());
  for (std::size_t r = 0; r < out.size(); ++r) {
    QSF_RETURN_IF_ERROR(
        pager_.decode_row(matrix.section, matrix.tensor, static_cast<std::uint32_t>(r), row));
    out[r] = 0.0;
    for (std::size_t i = 0; i < in.size(); ++i) out[r] += in[i] * static_cast<double>(row[i]);
  }
  return ok_status();
}

// Ends a pass. After an error too, nothing of it may be under way: its rows, its tiles and its
// pages belong to others from now on.
Status Decoder::end(Status status) {
  if (status.ok()) {
    status = backend_.end_pass();
  } else {
    static_cast<void>(backend_.wait());
  }
  pager_.release_completed();
  return status;
}

void Decoder::begin(const Pass& pass, std::uint32_t first, std::uint32_t last) {
  output_rows_.clear();
  counts_ = {.n_prompt = 0, .n_rows = static_cast<std::uint32_t>(pass.rows.size())};
  output_counts_ = {};
  last_layer_ = last;
  pass_adapters_.clear();
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    const bool prompt = pass.rows[i].role == RowRole::kPrompt;
    if (prompt) ++counts_.n_prompt;
    if (const std::uint16_t adapter = pass.rows[i].adapter; adapter != 0) {
      QSF_DCHECK(adapters_ != nullptr && adapter <= adapters_->size());
      if (std::find(pass_adapters_.begin(), pass_adapters_.end(), adapter) ==
          pass_adapters_.end()) {
        pass_adapters_.push_back(adapter);
      }
    }
    if (!pass.rows[i].wants_output || pass.sink == nullptr) continue;
    output_rows_.push_back(i);
    if (prompt) ++output_counts_.n_prompt;
  }
  output_counts_.n_rows = static_cast<std::uint32_t>(output_rows_.size());
  pager_.start_pass(pager_.plan_of(first, last, !output_rows_.empty()));
  backend_.begin_pass(pass.rows, *pass.kv, rotations_, pass.cancel);
  if (spec_.query_position_scale == 0.0F) return;
  query_scales_.clear();
  for (const Row& row : pass.rows) {
    const std::uint32_t place = std::min(static_cast<std::uint32_t>(row.position), last_place_);
    const std::uint32_t step = spec_.query_position_step;
    const std::uint32_t turns =
        step != 0 ? (place + 1) / step : place / spec_.rope.original_context;
    const auto growth = static_cast<float>(portable::log(1.0 + turns));
    query_scales_.push_back(1.0F + spec_.query_position_scale * growth);
  }
}

// hidden = embedding_scale * the token's row + the position's row, normalised where the model does
// that
Status Decoder::embed(const Pass& pass) {
  const bool learned = spec_.positions == PositionEncoding::kLearned;
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    const Row& row = pass.rows[i];
    const MatrixRef& tokens = weights_.token_embedding;
    QSF_RETURN_IF_ERROR(
        pager_.decode_row(tokens.section, tokens.tensor, row.token, embedding_row_));
    if (spec_.embedding_scale != 1.0F) {
      for (float& value : embedding_row_) value *= spec_.embedding_scale;
    }
    if (learned) {
      const MatrixRef& positions = weights_.position_embedding;
      QSF_RETURN_IF_ERROR(pager_.decode_row(positions.section, positions.tensor,
                                            static_cast<std::uint32_t>(row.position),
                                            position_row_));
      for (std::size_t c = 0; c < embedding_row_.size(); ++c) embedding_row_[c] += position_row_[c];
    }
    backend_.upload_row(buffers_.hidden, i, embedding_row_);
    if (spec_.layer_input_dim != 0) backend_.upload_row(buffers_.embedded, i, embedding_row_);
  }
  if (spec_.layer_input_dim != 0) QSF_RETURN_IF_ERROR(look_up_layer_inputs(pass));
  if (!weights_.embedding_norm.empty()) {
    norm(buffers_.hidden, buffers_.hidden, weights_.embedding_norm, weights_.embedding_norm_bias);
  }
  return spec_.mtp_block ? join_rows(pass) : ok_status();
}

Status Decoder::run_layers(const Pass& pass, std::uint32_t first, std::uint32_t last) {
  if (spec_.has_streams() && first == 0) QSF_RETURN_IF_ERROR(expand_streams(pass));
  backend_.reach_layer(first, buffers_.hidden);
  for (std::uint32_t layer = first; layer < last; ++layer) {
    QSF_RETURN_IF_ERROR(spec_.has_streams() ? run_stream_layer(pass, layer)
                                            : run_layer(pass, layer));
    if (spec_.layer_input_dim != 0) {
      QSF_RETURN_IF_ERROR(add_layer_input(pass, weights_.layers[layer], layer));
    }
    if (const auto scale = weights_.layers[layer].layer_scale; !scale.empty()) {
      layer_scales_.assign(counts_.n_rows, scale[0]);
      backend_.scale_rows(buffers_.hidden, layer_scales_);
    }
    backend_.reach_layer(layer + 1, buffers_.hidden);
    QSF_RETURN_IF_ERROR(backend_.status());
    if (pass.on_layer != nullptr) pass.on_layer(layer + 1, pass.on_layer_user);
  }
  if (spec_.has_streams() && last == spec_.n_layers) return merge_streams(pass);
  return ok_status();
}

// One layer. Attention, or what it has in its place, and FFN each add to the residual stream:
//   hidden += attention(norm(hidden)); hidden += ffn(norm'(hidden))
// and in a parallel block, with one norm for both or two,
//   n = norm(hidden); m = norm'(hidden); hidden += attention(n); hidden += ffn(m)
// Some models have norms behind the sublayers alone: then these read the stream itself. In others
// the norm's output replaces the stream, and in others still a layer has one of the two sublayers.
Status Decoder::run_layer(const Pass& pass, std::uint32_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const auto normed = [&](Buffer to, std::span<const float> gain, std::span<const float> bias) {
    if (gain.empty()) return buffers_.hidden;
    if (spec_.norms_stream) to = buffers_.hidden;
    norm(buffers_.hidden, to, gain, bias);
    return to;
  };
  if (!spec_.parallel_block) {
    if (spec_.mixer_of(layer) != LayerMixer::kNone) {
      QSF_RETURN_IF_ERROR(
          mix(pass, w, layer, normed(buffers_.normed, w.attn_norm, w.attn_norm_bias)));
    }
    if (!spec_.has_ffn(layer) || ends_with_keys(pass, layer)) return ok_status();
    return ffn(pass, w, normed(buffers_.normed, w.ffn_norm, w.ffn_norm_bias));
  }
  const Buffer in = normed(buffers_.normed, w.attn_norm, w.attn_norm_bias);
  const Buffer ffn_in =
      w.ffn_norm.empty() ? in : normed(buffers_.ffn_normed, w.ffn_norm, w.ffn_norm_bias);
  QSF_RETURN_IF_ERROR(attention(pass, w, layer, in));
  return ffn(pass, w, ffn_in);
}

Status Decoder::mix(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in) {
  switch (spec_.mixer_of(layer)) {
    case LayerMixer::kAttention: return attention(pass, w, layer, in);
    case LayerMixer::kShortConv: return short_conv(pass, w, layer, in);
    case LayerMixer::kMamba2: return scan(pass, w, layer, in);
    case LayerMixer::kDeltaNet: return delta_rule(pass, w, layer, in);
    case LayerMixer::kMamba2AndAttention:
      QSF_RETURN_IF_ERROR(scan(pass, w, layer, in));
      return attention(pass, w, layer, in);
    case LayerMixer::kNone: break;
  }
  return internal_error("layer %u has no mixer", layer);
}

// hidden += Wo norm(attend(rope(norm(Wq n)), rope(norm(Wk n)), Wv n)) with n = in, where the norms
// and the rotation are those that the model has; with a gate, what Wo takes is times
// sigmoid(Wgate n)
Status Decoder::attention(const Pass& pass, const LayerWeights& w, std::uint32_t layer, Buffer in) {
  if (spec_.has_latent()) return latent_attention(pass, w, layer, in);
  const AttentionShape shape = spec_.attention_of(layer);
  const bool owns_kv = spec_.owns_kv(layer);
  const bool gated = gates_attention_;
  // Those that the layer has, then the gate.
  std::array<Product, 4> products = {{{&w.q, w.q_bias, buffers_.q}}};
  std::size_t n_products = 1;
  if (owns_kv) products[n_products++] = {&w.k, w.k_bias, buffers_.k};
  if (owns_kv && !shape.values_are_keys) products[n_products++] = {&w.v, w.v_bias, buffers_.v};
  if (gated) products[n_products++] = {&w.attn_gate, {}, buffers_.gates};
  QSF_RETURN_IF_ERROR(
      multiply(pass, OperatorKind::kQkv, in, std::span(products).first(n_products), {}));
  // Values that are keys are made of them before those are changed.
  const std::span<const float> ones = std::span(ones_).first(ones_.empty() ? 0 : shape.head_dim);
  if (spec_.value_norms && owns_kv) {
    norm_heads(shape.values_are_keys ? buffers_.k : buffers_.v, buffers_.v, shape.n_kv_heads,
               shape.head_dim, ones);
  }
  const LayerRope rope = spec_.rope_of(layer);
  // Rotating a row leaves its length, so that these norms come before it as all others do.
  const bool unit = spec_.unit_head_norms && rope != LayerRope::kNone;
  norm_heads(buffers_.q, buffers_.q, shape.n_heads, shape.head_dim, unit ? ones : w.q_norm);
  if (owns_kv) {
    norm_heads(buffers_.k, buffers_.k, shape.n_kv_heads, shape.head_dim, unit ? ones : w.k_norm);
  }
  if (spec_.qkv_clip != 0.0F) {
    for (const Buffer x : {buffers_.q, buffers_.k, buffers_.v}) backend_.clamp(x, spec_.qkv_clip);
  }
  if (spec_.scales_queries(layer)) backend_.scale_rows(buffers_.q, query_scales_);
  if (rope != LayerRope::kNone) {
    rotate(rope == LayerRope::kLocal ? 1 : 0, owns_kv ? shape.n_kv_heads : 0);
  }
  if (ends_with_keys(pass, layer)) return store_keys(layer);
  attend(w, layer);
  if (!w.attn_sub_norm.empty()) norm(buffers_.attended, buffers_.attended, w.attn_sub_norm, {});
  if (gated) {
    backend_.gate({buffers_.gates, 0}, {buffers_.attended, 0}, shape.q_dim(),
                  ActivationKind::kSigmoid);
  }
  return add_product(pass, OperatorKind::kAttentionOut, gated ? buffers_.gates : buffers_.attended,
                     w.o, w.o_bias, w.attn_post_norm);
}

// attended = attention of q over the cache, k and v stored in it where the layer has them
void Decoder::attend(const LayerWeights& w, std::uint32_t layer) {
  if (spec_.owns_kv(layer)) backend_.store_kv(kv_places_[layer], buffers_.k, buffers_.v);
  const float scale =
      spec_.attention_scale != 0.0F
          ? spec_.attention_scale
          : 1.0F / std::sqrt(static_cast<float>(spec_.attention_of(layer).head_dim));
  const bool rotates = spec_.rope_of(layer) != LayerRope::kNone;
  backend_.attend({.layer = kv_places_[layer],
                   .q = buffers_.q,
                   .out = buffers_.attended,
                   .q_sinks = rotates ? buffers_.q_sinks : buffers_.q,
                   .scale = scale,
                   .window = spec_.window_of(layer),
                   .chunked = spec_.chunked_windows,
                   .bidirectional = spec_.bidirectional,
                   .soft_cap = spec_.attention_soft_cap,
                   .slopes = alibi_slopes_,
                   .bf16_biases = spec_.bf16_biases,
                   .sink_scores = w.attn_sinks});
}

// hidden += Wdown (act(Wgate n) * Wup n), or Wdown act(Wup n) without a gate, with n = normed; some
// models norm what Wdown takes
Status Decoder::ffn(const Pass& pass, const LayerWeights& w, Buffer in) {
  if (!w.experts.empty()) return run_experts(pass, w, in);
  const std::array<Product, 2> gate_up = {
      {{&w.gate, w.gate_bias, buffers_.gate}, {&w.up, w.up_bias, buffers_.up}}};
  QSF_RETURN_IF_ERROR(
      multiply(pass, OperatorKind::kGateUp, in, gate_up_products(gate_up), gate_up_epilogue()));
  if (!w.ffn_sub_norm.empty()) norm(activated(), activated(), w.ffn_sub_norm, {});
  return add_product(pass, OperatorKind::kDown, activated(), w.down, w.down_bias, w.ffn_post_norm);
}

MatmulEpilogue Decoder::gate_up_epilogue() const noexcept {
  return {.activation = activation_kind(spec_.activation),
          .fused_gate_up = spec_.gated_ffn,
          .add_to = {}};
}

// hidden += residual_scale * matrix in, or the norm of matrix in where the model has one behind its
// sublayers
Status Decoder::add_product(const Pass& pass, OperatorKind kind, Buffer in, const MatrixRef& matrix,
                            std::span<const float> bias, std::span<const float> post_norm) {
  const Product product = {&matrix, bias, buffers_.projected};
  if (post_norm.empty()) {
    return multiply(pass, kind, in, {&product, 1},
                    {.activation = {}, .scale = spec_.residual_scale, .add_to = buffers_.hidden});
  }
  QSF_RETURN_IF_ERROR(multiply(pass, kind, in, {&product, 1}, {}));
  norm(buffers_.projected, buffers_.projected, post_norm, {});
  backend_.add(buffers_.hidden, buffers_.projected);
  return ok_status();
}

// Rotates queries, a copy of them for the sinks where that is needed, and keys if there are any.
void Decoder::rotate(std::uint32_t rotation, std::uint32_t n_kv_heads) {
  if (buffers_.q_sinks.id != Buffer::kNone) {
    backend_.rope_at_cache_position(buffers_.q, buffers_.q_sinks, spec_.n_heads, rotation);
  }
  backend_.rope(buffers_.q, spec_.n_heads, rotation);
  if (n_kv_heads != 0) backend_.rope(buffers_.k, n_kv_heads, rotation);
}

// Normalises each head, or all together, where the model does that.
void Decoder::norm_heads(Buffer in, Buffer out, std::uint32_t n_heads, std::uint32_t head_dim,
                         std::span<const float> gain) {
  if (gain.empty()) return;
  if (norms_rows_) return norm(in, out, gain, {});
  backend_.norm({.in = in,
                 .out = out,
                 .row_list = {},
                 .n_rows = counts_.n_rows,
                 .n_cols = head_dim,
                 .n_parts = n_heads,
                 .kind = norm_kind(spec_.norm),
                 .epsilon = spec_.norm_epsilon,
                 .gain = gain,
                 .bias = {}});
}

// Normalises as many columns of every row as there are gains.
void Decoder::norm(Buffer in, Buffer out, std::span<const float> gain,
                   std::span<const float> bias) {
  backend_.norm({.in = in,
                 .out = out,
                 .row_list = {},
                 .n_rows = counts_.n_rows,
                 .n_cols = static_cast<std::uint32_t>(gain.size()),
                 .n_parts = 1,
                 .kind = norm_kind(spec_.norm),
                 .epsilon = spec_.norm_epsilon,
                 .gain = gain,
                 .bias = bias});
}

// Multiplies the rows of `in` with the matrices A of adapters for products that share this input.
// Returns what the products then add; nothing where no row has an adapter that changes one.
AdapterProducts Decoder::multiply_adapters(Buffer in, const ProductRows& rows,
                                           std::span<const Product> products) {
  bool any = false;
  const std::size_t n = products.size();
  for (const std::uint16_t adapter : pass_adapters_) {
    for (std::size_t i = 0; i < n; ++i) {
      LowRankPair& pair = adapter_pairs_[(adapter - 1U) * n + i];
      pair = adapters_->find(adapter - 1U, *products[i].matrix);
      any = any || pair.a != nullptr;
    }
  }
  if (!any) return {};
  const AdapterProducts added = {.pairs = adapter_pairs_,
                                 .n_matrices = static_cast<std::uint32_t>(n),
                                 .products = buffers_.low_rank,
                                 .max_rank = adapters_->max_rank(),
                                 .pass_rows = rows.pass_rows};
  backend_.multiply_low_rank(in, rows.counts.n_rows, products.front().matrix->cols, added);
  return added;
}

// Multiplies the rows of `in` with matrices of one section that share their input, tile by tile in
// the order of the file, as many tiles at once as the pager has ready. The writer puts such
// matrices side by side; tiles of other matrices between them are left alone.
Status Decoder::multiply_rows(const Pass& pass, OperatorKind kind, Buffer in,
                              const ProductRows& rows, std::span<const Product> products,
                              const MatmulEpilogue& epilogue, const MatmulParts& parts) {
  QSF_DCHECK(products.size() <= kMaxProducts);
  std::array<MatmulTarget, kMaxProducts> targets;
  for (std::size_t i = 0; i < products.size(); ++i) {
    targets[i] = {
        .out = products[i].out, .bias = products[i].bias, .adapted = static_cast<std::uint32_t>(i)};
  }
  const AdapterProducts adapters = multiply_adapters(in, rows, products);
  // The product that a tile is of; none: their number.
  const auto target_of = [&](TileId id) {
    std::uint32_t i = 0;
    while (i < products.size() && products[i].matrix->tensor != pager_.tensor_of(id)) ++i;
    return i;
  };
  std::array<WeightTile, kTilesAtOnce> tiles;
  TileId next = std::numeric_limits<TileId>::max();
  TileId end = 0;
  for (const Product& product : products) {
    const auto ids = pager_.tiles_of(product.matrix->section, product.matrix->tensor);
    next = std::min(next, ids.front());
    end = std::max(end, ids.back() + 1);
  }
  while (next < end) {
    if (is_cancelled(pass)) return cancelled("cancelled between two weight tiles");
    if (target_of(next) == products.size()) {
      ++next;
      continue;
    }
    TileId after = next + 1;
    while (after < end && target_of(after) < products.size()) ++after;
    QSF_ASSIGN_OR_RETURN(const std::uint32_t n_ready, acquire(next, after - next, tiles));
    for (std::uint32_t t = 0; t < n_ready; ++t) tiles[t].target = target_of(next + t);
    const std::span<const WeightTile> wanted(tiles.data(), n_ready);
    const Ticket ticket = backend_.matmul({.kind = kind,
                                           .in = in,
                                           .rows = rows.counts,
                                           .row_list = {},
                                           .tiles = wanted,
                                           .targets = {targets.data(), products.size()},
                                           .adapters = adapters,
                                           .epilogue = epilogue,
                                           .expert = products.front().expert,
                                           .section = products.front().matrix->section,
                                           .int8_rows = spec_.int8_rows,
                                           .parts = parts});
    pager_.release(next, n_ready, ticket);
    for (const WeightTile& tile : wanted) targets[tile.target].n_rows_done += tile.n_rows;
    next += n_ready;
  }
  return ok_status();
}

// Holds the tiles from `first` on that are ready, at most `max_tiles`, waiting for the first.
Result<std::uint32_t> Decoder::acquire(TileId first, std::uint32_t max_tiles,
                                       std::span<WeightTile> tiles) {
  const std::uint32_t n_ready = pager_.acquire_ready(first, max_tiles, tiles);
  if (n_ready > 0) return n_ready;
  QSF_ASSIGN_OR_RETURN(tiles[0], pager_.acquire(first));
  return 1U;
}

Status Decoder::head(const Pass& pass) {
  if (is_cancelled(pass)) return cancelled("cancelled before the output head");
  if (output_rows_.empty()) return ok_status();
  backend_.norm({.in = buffers_.hidden,
                 .out = buffers_.normed,
                 .row_list = output_rows_,
                 .n_rows = 0,
                 .n_cols = spec_.hidden,
                 .n_parts = 1,
                 .kind = norm_kind(spec_.norm),
                 .epsilon = spec_.norm_epsilon,
                 .gain = weights_.final_norm,
                 .bias = weights_.final_norm_bias});
  QSF_ASSIGN_OR_RETURN(const bool searched, search_head(pass));
  if (searched) return ok_status();
  const Product product = {&weights_.head, {}, buffers_.logits};
  const AdapterProducts adapters =
      multiply_adapters(buffers_.normed, {output_counts_, output_rows_}, {&product, 1});
  const auto ids = pager_.tiles_of(weights_.head.section, weights_.head.tensor);
  std::array<WeightTile, kTilesAtOnce> tiles;
  for (TileId next = ids.front(); next <= ids.back();) {
    QSF_ASSIGN_OR_RETURN(const std::uint32_t n_ready, acquire(next, ids.back() + 1 - next, tiles));
    const auto others = std::remove_if(
        tiles.begin(), tiles.begin() + n_ready,
        [this](const WeightTile& tile) { return tile.tensor != weights_.head.tensor; });
    const Status status = multiply_head(
        pass, {tiles.data(), static_cast<std::size_t>(others - tiles.begin())}, adapters);
    pager_.release(next, n_ready);
    QSF_RETURN_IF_ERROR(status);
    next += n_ready;
  }
  return ok_status();
}

// Returns how many blocks of logits the buffer takes side by side.
std::uint32_t Decoder::blocks_at_once() const noexcept {
  return std::min(logit_rows_ / output_counts_.n_rows, kHeadBlocks);
}

// Returns the row of the logits buffer where a block's first output row goes.
std::uint32_t Decoder::logit_row(std::uint32_t block) const noexcept {
  return block % blocks_at_once() * output_counts_.n_rows;
}

// Computes the logits of neighbouring tiles' tokens, as many blocks of kLogitBlock at once as the
// buffer takes, and delivers each when its last token is there. Blocks start at multiples of
// kLogitBlock whatever the tiles, so that a sink's sums do not depend on how the file is cut.
Status Decoder::multiply_head(const Pass& pass, std::span<const WeightTile> tiles,
                              const AdapterProducts& adapters) {
  if (tiles.empty()) return ok_status();
  const std::uint32_t end = tiles.back().first_row + tiles.back().n_rows;
  for (std::uint32_t token = tiles.front().first_row; token < end;) {
    const std::uint32_t first_block = token / kLogitBlock;
    const std::uint32_t last = std::min(end, (first_block + blocks_at_once()) * kLogitBlock);
    multiply_head_blocks(tiles, token, last, adapters);
    QSF_RETURN_IF_ERROR(backend_.wait());
    if (is_cancelled(pass)) return cancelled("cancelled in the output head");
    for (std::uint32_t block = first_block; block * kLogitBlock < last; ++block) {
      if (std::min((block + 1) * kLogitBlock, weights_.head.rows) <= last) {
        deliver_block(pass, block);
      }
    }
    token = last;
  }
  return ok_status();
}

// Each block is a target of its own, with the pieces of tiles that lie in it.
void Decoder::multiply_head_blocks(std::span<const WeightTile> tiles, std::uint32_t first_token,
                                   std::uint32_t last_token, const AdapterProducts& adapters) {
  std::array<WeightTile, kMaxMatmulTiles> pieces;
  std::array<MatmulTarget, kHeadBlocks> targets;
  std::uint32_t n_pieces = 0;
  const std::uint32_t first_block = first_token / kLogitBlock;
  std::uint32_t n_targets = 0;
  for (; (first_block + n_targets) * kLogitBlock < last_token; ++n_targets) {
    const std::uint32_t block = first_block + n_targets;
    targets[n_targets] = {.out = buffers_.logits,
                          .first_row = logit_row(block),
                          .first_weight_row = block * kLogitBlock,
                          .bias = weights_.head_bias};
    for (const WeightTile& tile : tiles) {
      const std::uint32_t first = std::max({block * kLogitBlock, first_token, tile.first_row});
      const std::uint32_t last =
          std::min({(block + 1) * kLogitBlock, last_token, tile.first_row + tile.n_rows});
      if (first >= last) continue;
      WeightTile& piece = pieces[n_pieces++];
      piece = tile;
      piece.target = n_targets;
      const std::size_t skipped = (first - tile.first_row) / kRowGroup * tile.group_bytes;
      piece.bytes += skipped;
      piece.offset += static_cast<std::uint32_t>(skipped);
      piece.first_row = first;
      piece.n_rows = last - first;
    }
  }
  backend_.matmul({.kind = OperatorKind::kHead,
                   .in = buffers_.normed,
                   .rows = output_counts_,
                   .row_list = {},
                   .tiles = {pieces.data(), n_pieces},
                   .targets = {targets.data(), n_targets},
                   .adapters = adapters,
                   .epilogue = {.activation = {},
                                .scale = spec_.logit_scale,
                                .soft_cap = spec_.logit_soft_cap,
                                .add_to = {}},
                   .section = weights_.head.section});
}

void Decoder::deliver_block(const Pass& pass, std::uint32_t block) {
  const std::uint32_t first_token = block * kLogitBlock;
  const std::uint32_t n_tokens = std::min(kLogitBlock, weights_.head.rows - first_token);
  for (std::uint32_t row = 0; row < output_counts_.n_rows; ++row) {
    pass.sink->consume(row, first_token,
                       backend_.read_row(buffers_.logits, logit_row(block) + row).first(n_tokens));
  }
}

}  // namespace qsf
