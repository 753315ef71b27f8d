// SPDX-License-Identifier: MIT
//
// ModelSpec: the description of a model in a .qsf file, as plain data.
//
// Importers fill it in; the writer encodes it as header and metadata, and the reader decodes them.
// The layout of those bytes is in format/qsf_layout.h.

#ifndef QSF_FORMAT_MODEL_SPEC_H_
#define QSF_FORMAT_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/metadata.h"
#include "quant/block_format.h"
#include "quant/kv_heads.h"

namespace qsf {

enum class Activation : std::uint8_t {
  kGeluTanh,
  kGeluErf,
  kSilu,
  kRelu,
  kReluSquared,
  kSwishClamped,  // gated alone: with gate <= 7 and -7 <= up <= 7, (up + 1) gate sigmoid(1.702
                  // gate)
};
enum class NormType : std::uint8_t { kLayerNorm = 0, kRmsNorm = 1 };
enum class PositionEncoding : std::uint8_t { kLearned = 0, kRope = 1, kAlibi = 2 };
enum class RopeScaling : std::uint8_t { kNone, kLinear, kLlama3, kLongrope, kYarn };
// What rotates queries and keys of a layer.
enum class LayerRope : std::uint8_t {
  kNone = 0,   // nothing
  kMain = 1,   // ModelSpec::rope
  kLocal = 2,  // the same columns with ModelSpec::local_rope_theta, unscaled, every pair
};
// What mixes the positions of a layer. Convolutions, scans and delta rules carry a state from row
// to row.
enum class LayerMixer : std::uint8_t {
  kAttention = 0,
  kShortConv = 1,           // a gated convolution over the last positions, LFM2's
  kMamba2 = 2,              // a selective scan behind a convolution
  kDeltaNet = 3,            // a gated delta rule behind a convolution
  kNone = 4,                // nothing: the layer is an FFN alone
  kMamba2AndAttention = 5,  // the sum of both, of the same rows
};

// What makes scores of a router's products, and how experts are chosen by them.
enum class ExpertScoring : std::uint8_t {
  // The largest; where experts come in groups, out of the groups with the largest.
  kSoftmax,
  // The largest with a correction added, which does not enter the weights; where experts come in
  // groups, out of the groups whose two largest have the largest sums.
  kSigmoid,
  // The largest, whose weight is its part of a softmax over those that are not smaller by more than
  // a share; then the same without it. Two experts.
  kSparsemixer,
};

// How the rows of a text, behind the final norm, become its embedding.
enum class Pooling : std::uint8_t { kMean, kLast, kFirst };

// Rotary position embedding; always rotates halves: element i with element i + dims / 2.
struct RopeSpec {
  float theta = 10000.0F;
  std::uint32_t dims = 0;  // leading elements of each head that rotate; even; 0 = head_dim
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0F;                 // linear, llama3 and yarn: >= 1
  float low_freq_factor = 1.0F;        // llama3 alone
  float high_freq_factor = 4.0F;       // llama3 alone: >= low_freq_factor
  std::uint32_t original_context = 0;  // llama3, longrope and yarn: > 0
  float attention_factor = 1.0F;       // multiplies cos and sin, whatever the scaling
  float short_attention_factor =
      0.0F;  // longrope alone: the same where short_factors serve; 0: no other
  // longrope alone: dims / 2 divisors of the frequencies each; the short ones serve a context of up
  // to original_context positions, the long ones every larger one.
  std::vector<float> short_factors;
  std::vector<float> long_factors;
  // yarn alone: pairs that turn more often than beta_fast times in the original context keep their
  // frequency, pairs below beta_slow turns are interpolated; > 0, beta_fast > beta_slow.
  float beta_fast = 32.0F;
  float beta_slow = 1.0F;
  bool truncate = true;  // the bounds between them are whole pairs
  // The first pairs that turn, of kNone and kLinear alone; the others keep their values; 0: all
  std::uint32_t n_turning = 0;
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

// The attention of one layer.
struct AttentionShape {
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;    // of what the cache holds
  std::uint32_t query_dim = 0;   // of a query as it is stored; head_dim without latent attention
  std::uint32_t value_dim = 0;   // of what a head gives to the output product; the same
  bool values_are_keys = false;  // the product of the keys is that of the values as well
  std::uint32_t kv_layer = 0;  // whose keys and values are attended to: its own, or an earlier one
  // Columns of Q and rows of K.
  constexpr std::uint32_t q_dim() const noexcept { return n_heads * head_dim; }
  constexpr std::uint32_t kv_dim() const noexcept { return n_kv_heads * head_dim; }
};

struct ModelSpec {
  std::string architecture;  // "gpt2", "llama", "phi3", "gemma2" ...; 1 to 64 bytes
  std::uint32_t n_layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;     // divides n_heads
  std::uint32_t head_dim = 0;       // n_heads * head_dim need not be hidden
  std::uint32_t n_vocab = 0;        // rows of the embedding
  std::uint32_t max_positions = 0;  // trained context length
  std::uint32_t ffn = 0;            // rows of the up projection

  Activation activation = Activation::kGeluTanh;
  bool gated_ffn = false;  // down(activation(gate(x)) * up(x))
  NormType norm = NormType::kLayerNorm;
  float norm_epsilon = 1e-5F;
  PositionEncoding positions = PositionEncoding::kLearned;
  RopeSpec rope;                            // meaningful with kRope alone; default otherwise
  std::vector<std::uint32_t> layer_rope;    // empty: kMain everywhere; else a LayerRope a layer
  float local_rope_theta = 10000.0F;        // of layers with LayerRope::kLocal; default otherwise
  std::vector<std::uint32_t> layer_mixers;  // empty: attention everywhere; else a LayerMixer a
                                            // layer, at least one of them attends
  std::vector<std::uint32_t> ffn_layers;    // empty: all have an FFN or experts; else 0 or 1 a
                                            // layer, at least one of them 1
  std::uint32_t conv_taps = 0;              // positions of a convolution, its own included
  std::uint32_t mixer_heads = 0;            // of a scan or delta rule; 0: none
  std::uint32_t mixer_head_dim = 0;
  std::uint32_t mixer_state = 0;   // values that a column of a head remembers
  std::uint32_t mixer_groups = 0;  // of heads that share what goes in and comes out: keys, queries
  bool mixer_heads_in_turn = false;  // head h is of group h mod groups, else groups are neighbours
  std::vector<std::uint32_t> sliding_window;  // empty: none; one element: every layer; else one a
                                              // layer. 0 = that layer sees everything.
  // A window is the row's chunk, which begins at a multiple of its length.
  bool chunked_windows = false;
  bool tied_head = false;         // the head is the token embedding
  bool natively_ternary = false;  // trained with ternary weights, which are stored without loss
  bool calibrated = false;        // quantised with calibration data

  // For architectures that need them; the values below mean "absent".
  // One a layer, where layers differ; n_kv_heads and head_dim are the largest of any then.
  std::vector<KvHeads> layer_heads;
  std::vector<std::uint32_t> key_value_layers;  // 0 or 1 a layer: AttentionShape::values_are_keys
  std::vector<std::uint32_t> kv_layers;         // one a layer: AttentionShape::kv_layer; empty: own
  std::vector<std::uint32_t> layer_ffn;         // one a layer, where layers differ; ffn is the most
  // Per-layer embeddings: columns that a second table has for every layer, of what is added behind
  // its FFN; 0: there is no such table.
  std::uint32_t layer_input_dim = 0;
  std::uint32_t layer_input_rows = 0;  // of that table, whose first row serves later tokens; 0: all
  std::uint32_t n_streams = 1;         // residual streams beside each other
  std::uint32_t laurel_dim = 0;        // columns of a product beside attention; 0: none
  // Gaussian top-k: gates of an FFN become what they have above their mean and so many standard
  // deviations.
  float ffn_cutoff = 0.0F;
  std::vector<std::uint32_t> ffn_cutoff_layers;  // 0 or 1 a layer: whether that is so; empty: 0
  bool value_norms = false;     // the values of each head are normalised, without a gain
  bool parallel_block = false;  // attention and FFN read the same normalised input
  // What the norms of attention's and FFN's inputs give is the residual stream from there on: the
  // norm of a sum is stored as that of the sublayer behind it, the last one as the final norm.
  bool norms_stream = false;
  // Matrix products of the layers quantise activations to int8 with one scale a row, as in training
  // (BitNet); the head's product does not.
  bool int8_rows = false;
  float attention_scale = 0.0F;  // 0: 1 / sqrt(head_dim)
  // Queries are multiplied by 1 + query_position_scale * ln(1 + floor(position / original context
  // of rope)); 0: not
  float query_position_scale = 0.0F;
  // Where it is not 0, layers without rotation alone do that, with floor((position + 1) / step).
  std::uint32_t query_position_step = 0;
  // Heads of queries and keys that rotate are normed without a gain.
  bool unit_head_norms = false;
  // Biases of ALiBi are differences of products in bf16, which are scaled as scores are.
  bool bf16_biases = false;
  // Queries, keys and values are clamped to [-qkv_clip, qkv_clip], behind their norms; 0: not
  float qkv_clip = 0.0F;
  float attention_soft_cap = 0.0F;  // 0: none; otherwise cap * tanh(score / cap)
  float logit_soft_cap = 0.0F;      // 0: none
  float logit_scale = 1.0F;         // multiplies logits, before the cap
  float embedding_scale = 1.0F;     // multiplies the token embedding
  float residual_scale = 1.0F;      // multiplies what attention and FFN add to the residual stream
  std::uint32_t n_experts = 0;      // 0: dense
  std::uint32_t n_experts_used = 0;
  std::uint32_t expert_ffn = 0;
  // The weights of a row's experts have the sum 1; else they are parts of a softmax over all.
  bool expert_renormalised = false;
  ExpertScoring expert_scoring = ExpertScoring::kSoftmax;
  float expert_epsilon = 0.0F;               // added to the sum of sigmoids that becomes 1
  float expert_margin = 0.0F;                // of sparsemixer: half of that share
  float expert_scale = 1.0F;                 // multiplies the weights
  bool weighs_expert_inputs = false;         // weights multiply what experts take, not give
  std::uint32_t expert_groups = 1;           // equal ones, of neighbouring experts
  std::uint32_t expert_groups_used = 1;      // that a row's experts come from
  std::vector<std::uint32_t> expert_layers;  // empty: all with an FFN; else 0 or 1 a layer
  bool experts_beside_ffn = false;           // layers with experts have an FFN as well
  std::vector<float> expert_hits;            // format/expert_hits.h; empty: not measured
  std::uint32_t shared_ffn = 0;  // of the expert beside the others that takes every row; 0: none

  std::optional<Pooling> pooling;  // of embeddings; empty: the model has no choice of its own
  // What is pooled is multiplied by two matrices, with so many columns between them; 0: none
  std::uint32_t embedding_dense = 0;
  // Rows attend to later ones as well, over windows that are as wide to each side, the row's own
  // position included. Such a model embeds texts alone.
  bool bidirectional = false;
  // The model was not trained to say a next token. Its head is formally tied.
  bool embeds_only = false;
  // A block for multi-token prediction: rows are made of a token and of the row that another model
  // has, behind its final norm, for the token before; logits are those of the token behind. Where
  // the next row has no such row of the other model, it takes this one's behind its own final norm.
  bool mtp_block = false;

  // Latent attention: keys and values of all heads are products of one row of latent_dim columns.
  // That row behind rope.dims rotated columns, which are part of every head's key, is the one KV
  // head's key, of head_dim columns, and its value. 0: none; the others are 0 then.
  std::uint32_t latent_dim = 0;
  std::uint32_t latent_query_dim =
      0;                             // of the row that queries are products of; 0: the layer's own
  std::uint32_t latent_key_dim = 0;  // of a head's key, without the columns that rotate
  std::uint32_t latent_value_dim = 0;  // of a head's value
  float latent_epsilon = 1e-6F;        // of the norms of these rows

  std::optional<std::uint32_t> bos_id;
  std::vector<std::uint32_t> eos_ids;  // every id that ends a text; the first is the header's
  std::optional<std::uint32_t> pad_id;
  std::string chat_template;  // empty: none
  std::string quantiser;      // provenance: program, version, method; empty: unknown
  std::string source;         // the converted model, in words for the user

  std::optional<QuantType> default_type;  // empty: mixed
  std::uint32_t block = 64;               // default block size of coded types: 32, 64, 128 or 256

  Metadata extra;  // all other keys, preserved through reading and writing

  // Columns of Q and rows of K, the most of any layer: products cannot overflow in a valid spec.
  std::uint32_t q_dim() const noexcept { return n_heads * head_dim; }
  std::uint32_t kv_dim() const noexcept;
  bool has_latent() const noexcept { return latent_dim != 0; }
  // Columns of the row that queries are products of.
  std::uint32_t query_in() const noexcept {
    return latent_query_dim != 0 ? latent_query_dim : hidden;
  }
  // Columns of a head's query that are stored, and of what its value and output product share.
  std::uint32_t query_dim() const noexcept {
    return has_latent() ? latent_key_dim + rope_dims() : head_dim;
  }
  std::uint32_t value_dim() const noexcept { return has_latent() ? latent_value_dim : head_dim; }
  std::uint32_t rope_dims() const noexcept { return rope.dims == 0 ? head_dim : rope.dims; }
  // Requires  layer < n_layers
  AttentionShape attention_of(std::uint32_t layer) const noexcept {
    const KvHeads heads = layer_heads.empty() ? KvHeads{n_kv_heads, head_dim} : layer_heads[layer];
    return {.n_heads = n_heads,
            .n_kv_heads = heads.n_kv_heads,
            .head_dim = heads.head_dim,
            .query_dim = has_latent() ? query_dim() : heads.head_dim,
            .value_dim = has_latent() ? value_dim() : heads.head_dim,
            .values_are_keys = !key_value_layers.empty() && key_value_layers[layer] != 0,
            .kv_layer = kv_layers.empty() ? layer : kv_layers[layer]};
  }
  // Columns of a layer's heads that rotate. Requires  layer < n_layers
  std::uint32_t rope_dims_of(std::uint32_t layer) const noexcept {
    return rope.dims == 0 ? attention_of(layer).head_dim : rope.dims;
  }
  // Whether a layer has experts, instead of one FFN or beside it. Requires  layer < n_layers
  bool has_experts(std::uint32_t layer) const noexcept {
    return n_experts != 0 && has_ffn(layer) && (expert_layers.empty() || expert_layers[layer] != 0);
  }
  // Whether a layer has an FFN, or experts in its place. Requires  layer < n_layers
  bool has_ffn(std::uint32_t layer) const noexcept {
    return ffn_layers.empty() || ffn_layers[layer] != 0;
  }
  // Rows of the widest FFN of any layer.
  std::uint32_t widest_ffn() const noexcept;
  // Requires  layer < n_layers
  LayerRope rope_of(std::uint32_t layer) const noexcept {
    if (positions != PositionEncoding::kRope) return LayerRope::kNone;
    return layer_rope.empty() ? LayerRope::kMain : static_cast<LayerRope>(layer_rope[layer]);
  }
  // Whether the layer scales queries by their position. Requires  layer < n_layers
  bool scales_queries(std::uint32_t layer) const noexcept {
    return query_position_scale != 0.0F &&
           (query_position_step == 0 || rope_of(layer) == LayerRope::kNone);
  }
  // Requires  layer < n_layers
  LayerMixer mixer_of(std::uint32_t layer) const noexcept {
    return layer_mixers.empty() ? LayerMixer::kAttention
                                : static_cast<LayerMixer>(layer_mixers[layer]);
  }
  // Whether a layer has keys and values, and whether it has a state: both, one or neither.
  // Requires  layer < n_layers
  bool attends(std::uint32_t layer) const noexcept {
    const LayerMixer mixer = mixer_of(layer);
    return mixer == LayerMixer::kAttention || mixer == LayerMixer::kMamba2AndAttention;
  }
  bool keeps_state(std::uint32_t layer) const noexcept {
    return mixer_of(layer) != LayerMixer::kAttention && mixer_of(layer) != LayerMixer::kNone;
  }
  // Requires  layer < n_layers
  std::uint32_t ffn_of(std::uint32_t layer) const noexcept {
    return layer_ffn.empty() ? ffn : layer_ffn[layer];
  }
  // Whether the gates of a layer's FFN are cut. Requires  layer < n_layers
  bool cuts_gates(std::uint32_t layer) const noexcept {
    return !ffn_cutoff_layers.empty() && ffn_cutoff_layers[layer] != 0;
  }
  bool has_streams() const noexcept { return n_streams > 1; }
  // Rows of the second embedding table.
  std::uint32_t layer_table_rows() const noexcept {
    return layer_input_rows != 0 ? layer_input_rows : n_vocab;
  }
  // Whether the keys and values that a layer attends to are its own. Requires  layer < n_layers
  bool owns_kv(std::uint32_t layer) const noexcept {
    return kv_layers.empty() || kv_layers[layer] == layer;
  }
  bool shares_kv() const noexcept { return !kv_layers.empty(); }
  // Layers with keys and values in the cache.
  std::uint32_t n_kv_layers() const noexcept;
  bool has_state() const noexcept { return n_state_layers() != 0; }
  std::uint32_t n_attention_layers() const noexcept;
  std::uint32_t n_state_layers() const noexcept;
  bool has_delta_rule() const noexcept;
  // Of layers with a state: rows of the product that the mixer reads, columns of what it gives,
  // channels of its convolution.
  std::uint32_t mixer_in() const noexcept {
    if (mixer_heads == 0) return 3 * hidden;
    return has_delta_rule() ? conv_channels() : mixer_out() + conv_channels() + mixer_heads;
  }
  std::uint32_t mixer_out() const noexcept {
    return mixer_heads == 0 ? hidden : mixer_heads * mixer_head_dim;
  }
  std::uint32_t conv_channels() const noexcept {
    return mixer_heads == 0 ? hidden : mixer_out() + 2 * mixer_groups * mixer_state;
  }
  // Values of a layer's state behind those of its convolution.
  std::uint32_t scan_values() const noexcept { return mixer_out() * mixer_state; }
  // Window of `layer`, 0 for none. Requires  layer < n_layers.
  std::uint32_t window_of(std::uint32_t layer) const noexcept {
    if (sliding_window.empty()) return 0;
    return sliding_window.size() == 1 ? sliding_window[0] : sliding_window[layer];
  }
  // Positions that a row at `position` attends to, itself included; 0: all before it.
  // Requires  layer < n_layers
  std::uint32_t window_at(std::uint32_t layer, std::uint32_t position) const noexcept {
    const std::uint32_t window = window_of(layer);
    return chunked_windows && window != 0 ? position % window + 1 : window;
  }

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Sets the heads of every layer, and the most of any; none by layer where all are alike.
// Requires  one a layer
void set_layer_heads(std::vector<KvHeads> heads, ModelSpec& spec);
// The same of the width of FFNs. Requires  one a layer
void set_layer_ffn(std::vector<std::uint32_t> ffn, ModelSpec& spec);
// Lets the last layers attend to the keys and values of the last layer before them all that has
// their window. Requires  n_sharing < n_layers; no kv_layers
// Fails     kCorrupt where no such layer has that window
Status share_kv(std::uint32_t n_sharing, ModelSpec& spec);

// Checks every range and relation of docs/format-metadata.md.
// Fails  kInvalidArgument, naming the field
Status validate(const ModelSpec& spec);

// Names in metadata and messages.
std::string_view activation_name(Activation activation) noexcept;
std::string_view norm_type_name(NormType type) noexcept;
std::string_view position_encoding_name(PositionEncoding encoding) noexcept;
std::string_view expert_scoring_name(ExpertScoring scoring) noexcept;
std::string_view pooling_name(Pooling pooling) noexcept;
std::string_view rope_scaling_name(RopeScaling scaling) noexcept;

// Stores bytes 12-55, 80-91, 116-119 of a header. The writer adds offsets, sizes and checksums.
// Requires  validate(spec) is OK; header has 128 bytes
void encode_spec_header(const ModelSpec& spec, MutableByteSpan header);
// Returns the metadata of a spec: `extra` and the keys of the fields.
Metadata encode_spec_metadata(const ModelSpec& spec);

// Builds a spec from a header and metadata and validates it.
// Fails  kCorrupt: values out of range, or header and metadata disagree; kUnsupported: unknown
// codes,
//        names or required keys
Result<ModelSpec> decode_spec(ByteSpan header, const Metadata& metadata);

}  // namespace qsf

#endif  // QSF_FORMAT_MODEL_SPEC_H_
