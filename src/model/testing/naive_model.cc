// SPDX-License-Identifier: MIT

#include "model/testing/naive_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>
#include <tuple>

#include "base/bytes.h"
#include "base/f16.h"
#include "base/rng.h"
#include "model/architecture.h"
#include "model/testing/naive_activations.h"

namespace qsf::testing_support {
namespace {

double capped(double x, double cap) {
  return cap == 0.0 ? x : cap * std::tanh(x / cap);
}

void add(std::vector<double>& to, const std::vector<double>& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

// Clamps values to [-most, most]; 0: to none.
void clip(std::vector<double>& values, double most) {
  if (most == 0.0) return;
  for (double& value : values) value = std::clamp(value, -most, most);
}

}  // namespace

NaiveModel::NaiveModel(ModelSpec spec, std::uint64_t seed) : spec_(std::move(spec)) {
  Rng rng(seed);
  for (std::uint32_t section = 0; section < spec_.n_layers + 2; ++section) {
    std::vector<TensorInfo> tensors;
    for (const TensorRule& rule : section == 0 ? embedding_rules(spec_)
                                  : section == spec_.n_layers + 1
                                      ? final_rules(spec_)
                                      : layer_rules(spec_, section - 1)) {
      tensors.push_back({.kind = rule.kind,
                         .rows = rule.rows,
                         .cols = rule.cols,
                         .layout = Layout::kRowMajor,
                         .expert = rule.expert});
      const std::string_view name = tensor_kind_name(rule.kind);
      Weights values(std::size_t{rule.rows} * rule.cols);
      for (float& value : values) {
        const float normal = rng.next_normal();
        if (rule.rows > 1 || rule.kind == TensorKind::kSharedWeight) {
          // Scores and gates of some size, so that softmax and activations bend.
          value = normal * 2.0F / std::sqrt(static_cast<float>(rule.cols));
        } else {
          value = name.ends_with("bias") ? 0.3F * normal : 1.0F + 0.3F * normal;
          if (rule.kind == TensorKind::kRouterCorrection) value /= 4.0F;  // every expert is chosen
          if (rule.kind == TensorKind::kScanDecay) value = -std::fabs(value);
          if (rule.kind == TensorKind::kStreamRouter) value = 3.0F * normal;  // tanh bends
          if (rule.kind == TensorKind::kStreamPredict || rule.kind == TensorKind::kStreamCorrect) {
            value = 0.3F * normal;
          }
        }
      }
      weights_[{section, rule.kind, rule.expert}] = std::move(values);
    }
    sections_.push_back(std::move(tensors));
  }
}

const NaiveModel::Weights& NaiveModel::weights(std::uint32_t section, TensorKind kind,
                                               std::uint32_t expert) const {
  static const Weights none;
  const auto found = weights_.find({section, kind, expert});
  return found == weights_.end() ? none : found->second;
}

Status NaiveModel::write_section(QsfWriter& writer, SectionKind kind, std::uint32_t section) const {
  const std::vector<TensorInfo>& tensors = sections_[section];
  QSF_RETURN_IF_ERROR(
      writer.begin_section(kind, kind == SectionKind::kLayer ? section - 1 : 0, tensors));
  for (const TilePlan& tile : writer.tiles()) {
    std::vector<std::byte> bytes(tile.raw_bytes);
    if (tile.tensor != kOneRowTensors) {
      const TensorInfo& tensor = tensors[tile.tensor];
      const float* rows = weights(section, tensor.kind, tensor.expert).data() +
                          std::size_t{tile.first_row} * tensor.cols;
      std::memcpy(bytes.data(), rows, bytes.size());
    }
    for (std::size_t i = 0; tile.tensor == kOneRowTensors && i < tensors.size(); ++i) {
      if (tensors[i].rows != 1) continue;
      const Weights& row = weights(section, tensors[i].kind, tensors[i].expert);
      std::memcpy(bytes.data() + one_row_offset(tensors, i), row.data(), row.size() * 4);
    }
    QSF_RETURN_IF_ERROR(writer.write_tile(bytes));
  }
  return writer.end_section();
}

void NaiveModel::leave_out(TensorKind kind) {
  for (std::uint32_t layer = 1; layer <= spec_.n_layers; ++layer) {
    std::erase_if(sections_[layer], [kind](const TensorInfo& t) { return t.kind == kind; });
  }
}

Status NaiveModel::write(const std::string& path, std::uint64_t tile_bytes) const {
  QSF_ASSIGN_OR_RETURN(QsfWriter writer,
                       QsfWriter::create(path, spec_, {.tile_bytes = tile_bytes}));
  QSF_RETURN_IF_ERROR(write_section(writer, SectionKind::kEmbedding, 0));
  for (std::uint32_t layer = 0; layer < spec_.n_layers; ++layer) {
    QSF_RETURN_IF_ERROR(write_section(writer, SectionKind::kLayer, layer + 1));
  }
  QSF_RETURN_IF_ERROR(write_section(writer, SectionKind::kFinal, spec_.n_layers + 1));
  return writer.finish();
}

NaiveModel::Row NaiveModel::product(std::uint32_t section, TensorKind matrix, TensorKind bias,
                                    const Row& x, std::uint32_t expert) const {
  const bool in_layer = section > 0 && section <= spec_.n_layers;
  if (on_product_ != nullptr) on_product_(matrix, in_layer ? section - 1 : 0, expert, x);
  return multiplied(section, matrix, bias, x, expert);
}

NaiveModel::Row NaiveModel::multiplied(std::uint32_t section, TensorKind matrix, TensorKind bias,
                                       const Row& x, std::uint32_t expert) const {
  const Weights& w = weights(section, matrix, expert);
  const Weights& b = weights(section, bias, expert);
  Row y(w.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) y[r] += w[r * x.size() + c] * x[c];
    if (!b.empty()) y[r] += b[r];
  }
  return y;
}

NaiveModel::Row NaiveModel::norm(const Row& x, const Weights& gain, const Weights& bias,
                                 double epsilon) const {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  if (spec_.norm == NormType::kLayerNorm) {
    for (const double value : x) mean += value / n;
  }
  double variance = 0;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(variance + epsilon) * gain[i];
    if (!bias.empty()) y[i] += bias[i];
  }
  return y;
}

void NaiveModel::norm_heads(Row& x, std::uint32_t head_dim, const Weights& gain) const {
  if (gain.empty()) return;
  const std::size_t width = has_row_norms(spec_) ? x.size() : head_dim;
  for (std::size_t at = 0; at < x.size(); at += width) {
    const auto head = x.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t own = gain.size() == x.size() ? at : 0;  // a gain of each head
    const Weights part(gain.begin() + static_cast<std::ptrdiff_t>(own),
                       gain.begin() + static_cast<std::ptrdiff_t>(own + width));
    const Row normed = norm(Row(head, head + static_cast<std::ptrdiff_t>(width)), part, {});
    std::copy(normed.begin(), normed.end(), head);
  }
}

double NaiveModel::turn(std::uint32_t layer, std::uint32_t pair, std::uint32_t position,
                        std::uint32_t context) const {
  const RopeSpec& rope = spec_.rope;
  const std::uint32_t n_pairs = spec_.rope_dims_of(layer) / 2;
  const bool local = spec_.rope_of(layer) == LayerRope::kLocal;
  const double theta = local ? spec_.local_rope_theta : rope.theta;
  const double turn = position * std::pow(theta, -1.0 * pair / n_pairs);
  if (local) return turn;
  switch (rope.scaling) {
    case RopeScaling::kLinear: return turn / rope.factor;
    case RopeScaling::kLongrope:
      return turn /
             (context > rope.original_context ? rope.long_factors[pair] : rope.short_factors[pair]);
    case RopeScaling::kYarn: {
      // The pair, as a fraction, that turns `n` times over the original context.
      const auto pair_of = [&](double n) {
        return n_pairs * std::log(rope.original_context / (2 * std::numbers::pi * n)) /
               std::log(theta);
      };
      const double fast = std::max(pair_of(rope.beta_fast), 0.0);
      const double slow = std::min(pair_of(rope.beta_slow), 2.0 * n_pairs - 1);
      const double share = std::min(std::max((pair - fast) / (slow - fast), 0.0), 1.0);
      return turn * (1 - share + share / rope.factor);
    }
    default: return turn;
  }
}

void NaiveModel::rotate(Row& x, std::uint32_t layer, std::uint32_t position,
                        std::uint32_t context) const {
  const LayerRope rope = spec_.rope_of(layer);
  if (rope == LayerRope::kNone) return;
  const bool is_short = context <= spec_.rope.original_context;
  const float at_short = spec_.rope.short_attention_factor;
  double factor = is_short && at_short != 0.0F ? at_short : spec_.rope.attention_factor;
  if (rope == LayerRope::kLocal) factor = 1.0;
  const std::uint32_t n_pairs = spec_.rope_dims_of(layer) / 2;
  const bool some = rope == LayerRope::kMain && spec_.rope.n_turning != 0;
  const std::size_t width = spec_.attention_of(layer).query_dim;
  for (std::size_t head = spec_.latent_key_dim; head < x.size(); head += width) {
    for (std::uint32_t i = 0; i < (some ? spec_.rope.n_turning : n_pairs); ++i) {
      const double angle = turn(layer, i, position, context);
      const double low = x[head + i];
      const double high = x[head + i + n_pairs];
      x[head + i] = factor * (low * std::cos(angle) - high * std::sin(angle));
      x[head + i + n_pairs] = factor * (high * std::cos(angle) + low * std::sin(angle));
    }
  }
}

NaiveModel::Row NaiveModel::attend(const Row& q, std::size_t own, const std::vector<Row>& keys,
                                   const std::vector<Row>& values, std::uint32_t layer,
                                   const std::vector<double>& slopes, const Sees& sees) const {
  const std::uint32_t window = spec_.window_at(layer, static_cast<std::uint32_t>(own));
  const std::size_t first = window != 0 && own + 1 > window ? own + 1 - window : 0;
  std::size_t n = sees_later_ || spec_.bidirectional ? keys.size() : own + 1;
  if (spec_.bidirectional && window != 0) n = std::min<std::size_t>(n, own + window);
  const AttentionShape shape = spec_.attention_of(layer);
  const double scale =
      spec_.attention_scale != 0.0F ? spec_.attention_scale : 1.0 / std::sqrt(shape.head_dim);
  const std::uint32_t width = shape.query_dim;
  const std::size_t v_width =
      spec_.has_latent() ? values[own].size() / spec_.n_heads : shape.value_dim;
  Row out(std::size_t{spec_.n_heads} * v_width);
  for (std::uint32_t head = 0; head < spec_.n_heads; ++head) {
    const std::size_t at = std::size_t{head} * width;
    const std::uint32_t kv_head = head / (spec_.n_heads / shape.n_kv_heads);
    const std::size_t own_rows = spec_.has_latent() ? head : kv_head;
    Row exps(n);
    const Weights& sinks = weights(layer + 1, TensorKind::kAttnSinks);
    double total = sinks.empty() ? 0.0 : std::exp(sinks[head]);
    for (std::size_t j = first; j < n; ++j) {
      if (sees != nullptr && j != own && !sees(layer, kv_head, own, j)) continue;
      double score = 0;
      for (std::uint32_t d = 0; d < width; ++d) score += q[at + d] * keys[j][own_rows * width + d];
      score = capped(score * scale, spec_.attention_soft_cap);
      if (!slopes.empty()) {
        const auto bias = [&](std::size_t position) {
          if (!spec_.bf16_biases) return slopes[head] * static_cast<double>(position);
          const float rounded = to_f32(to_bf16(static_cast<float>(position)));
          const float product = static_cast<float>(slopes[head]) * rounded;
          return static_cast<double>(to_f32(to_bf16(product)));
        };
        score += (spec_.bf16_biases ? scale : 1.0) * (bias(j) - bias(own));
      }
      exps[j] = std::exp(score);
      total += exps[j];
    }
    for (std::size_t j = first; j < n; ++j) {
      for (std::size_t d = 0; d < v_width; ++d) {
        out[head * v_width + d] += exps[j] / total * values[j][own_rows * v_width + d];
      }
    }
  }
  return out;
}

// The same of a row that sees a cache alone. Queries and keys are not rotated yet.
NaiveModel::Row NaiveModel::attend_cache(Row q, std::size_t own, const std::vector<Row>& keys,
                                         const std::vector<Row>& values, std::uint32_t layer,
                                         std::uint32_t context, const Cache& cache) const {
  std::vector<Row> cached_keys;
  std::vector<Row> cached_values;
  for (std::size_t j = 0; j <= own; ++j) {
    if (j >= cache.sinks && j + cache.window < own + 1) continue;
    cached_keys.push_back(keys[j]);
    rotate(cached_keys.back(), layer, static_cast<std::uint32_t>(cached_values.size()), context);
    cached_values.push_back(values[j]);
  }
  rotate(q, layer, static_cast<std::uint32_t>(cached_keys.size() - 1), context);
  return attend(q, cached_keys.size() - 1, cached_keys, cached_values, layer, {}, nullptr);
}

NaiveModel::HeadRows NaiveModel::head_rows(std::uint32_t section, const Row& x) const {
  using enum TensorKind;
  if (spec_.has_latent()) return latent_rows(section, x);
  HeadRows rows = {
      product(section, kAttnQ, kAttnQBias, x), product(section, kAttnK, kAttnKBias, x), {}, {}};
  rows.v = values_of(section, x, rows.k);
  const std::uint32_t width = spec_.attention_of(section - 1).head_dim;
  const bool unit = spec_.unit_head_norms && spec_.rope_of(section - 1) != LayerRope::kNone;
  const Weights ones(width, 1.0F);
  norm_heads(rows.q, width, unit ? ones : weights(section, kQNorm));
  norm_heads(rows.k, width, unit ? ones : weights(section, kKNorm));
  for (Row* const row : {&rows.q, &rows.k, &rows.v}) clip(*row, spec_.qkv_clip);
  return rows;
}

// Of each head: its key, then the columns that rotate, which all heads share.
NaiveModel::HeadRows NaiveModel::latent_rows(std::uint32_t section, const Row& x) const {
  using enum TensorKind;
  const double epsilon = spec_.latent_epsilon;
  const Row shared = product(section, kAttnK, kNone, x);
  const auto first = shared.begin() + static_cast<std::ptrdiff_t>(spec_.rope.dims);
  const Row latent = norm(Row(first, shared.end()), weights(section, kLatentNorm), {}, epsilon);
  Row query = x;
  if (spec_.latent_query_dim != 0) {
    query = norm(product(section, kLatentQuery, kNone, x), weights(section, kLatentQueryNorm), {},
                 epsilon);
  }
  HeadRows rows;
  rows.q = product(section, kAttnQ, kNone, query);
  tell_latent_keys(section, rows.q);
  rows.v = multiplied(section, kLatentValues, kNone, latent);
  const Weights& by_column = weights(section, kLatentKeys);
  for (std::size_t head = 0; head < spec_.n_heads; ++head) {
    for (std::size_t d = 0; d < spec_.latent_key_dim; ++d) {
      double key = 0;
      for (std::size_t c = 0; c < latent.size(); ++c) {
        key += by_column[(head * latent.size() + c) * spec_.latent_key_dim + d] * latent[c];
      }
      rows.k.push_back(key);
    }
    rows.k.insert(rows.k.end(), shared.begin(), first);
    rows.latent.insert(rows.latent.end(), latent.begin(), latent.end());
  }
  return rows;
}

void NaiveModel::tell_latent_keys(std::uint32_t section, const Row& q) const {
  if (on_product_ == nullptr) return;
  Row told;
  for (auto head = q.begin(); head != q.end(); head += spec_.query_dim()) {
    told.insert(told.end(), head, head + spec_.latent_key_dim);
  }
  on_product_(TensorKind::kLatentKeys, section - 1, 0, told);
}

NaiveModel::Row NaiveModel::gated_attention(std::uint32_t section, const Row& row, Row seen) const {
  if (weights(section, TensorKind::kAttnGate).empty()) return seen;
  const Row gates = product(section, TensorKind::kAttnGate, kNone, row);
  for (std::size_t i = 0; i < seen.size(); ++i) seen[i] /= 1 + std::exp(-gates[i]);
  return seen;
}

NaiveModel::Row NaiveModel::embedded(std::uint32_t token, std::size_t position) const {
  Row x(spec_.hidden);
  const Weights& positions = weights(0, TensorKind::kPositionEmbedding);
  for (std::uint32_t c = 0; c < spec_.hidden; ++c) {
    x[c] = static_cast<double>(spec_.embedding_scale) *
           weights(0, TensorKind::kTokenEmbedding)[std::size_t{token} * spec_.hidden + c];
    if (!positions.empty()) x[c] += positions[position * spec_.hidden + c];
  }
  const Weights& gain = weights(0, TensorKind::kEmbeddingNorm);
  return gain.empty() ? x : norm(x, gain, weights(0, TensorKind::kEmbeddingNormBias));
}

// The values of a row that was normed, whose keys are `k` before their norm.
NaiveModel::Row NaiveModel::values_of(std::uint32_t section, const Row& x, const Row& k) const {
  const AttentionShape shape = spec_.attention_of(section - 1);
  Row v =
      shape.values_are_keys ? k : product(section, TensorKind::kAttnV, TensorKind::kAttnVBias, x);
  if (spec_.value_norms) norm_heads(v, shape.head_dim, Weights(shape.head_dim, 1.0F));
  return v;
}

// Scales queries of models whose scale follows from the position.
void NaiveModel::scale_query(Row& q, std::uint32_t layer, std::uint32_t position,
                             const Cache* cache) const {
  if (!spec_.scales_queries(layer)) return;
  const std::uint32_t place =
      cache == nullptr ? position : std::min(position, cache->sinks + cache->window - 1);
  const std::uint32_t step = spec_.query_position_step;
  const double turns =
      std::floor(step != 0 ? (place + 1.0) / step : 1.0 * place / spec_.rope.original_context);
  for (double& value : q) value *= 1.0 + spec_.query_position_scale * std::log(1.0 + turns);
}

void NaiveModel::scale_stream(std::uint32_t section, Row& x) const {
  for (const float scale : weights(section, TensorKind::kLayerScale)) {
    for (double& value : x) value *= scale;
  }
}

NaiveModel::Row NaiveModel::layer_input(std::uint32_t section, const Row& stream,
                                        const Row& embedded, std::uint32_t token) const {
  const std::size_t n = spec_.layer_input_dim;
  const std::size_t row = token < spec_.layer_table_rows() ? token : 0;
  const std::size_t first = (row * spec_.n_layers + section - 1) * n;
  const Weights& table = weights(0, TensorKind::kLayerEmbedding);
  Row input = product(section, TensorKind::kLayerInput, kNone, embedded);
  for (double& value : input) value /= std::sqrt(spec_.hidden);
  input = norm(input, weights(section, TensorKind::kLayerInputNorm), {});
  Row gated = product(section, TensorKind::kLayerInputGate, kNone, stream);
  for (std::size_t c = 0; c < n; ++c) {
    const double of_token = std::sqrt(spec_.layer_input_dim) * table[first + c];
    gated[c] = activated(spec_.activation, gated[c]) * (input[c] + of_token) / std::numbers::sqrt2;
  }
  return norm(product(section, TensorKind::kLayerInputOut, kNone, gated),
              weights(section, TensorKind::kLayerInputPostNorm), {});
}

NaiveModel::Row NaiveModel::scaled(Row y) const {
  for (double& value : y) value *= spec_.residual_scale;
  return y;
}

// What a down projection takes: products of a gate and of up, or of up alone.
NaiveModel::Row NaiveModel::inner_row(std::uint32_t section, const Matrix& gate, const Matrix& up,
                                      const Row& x, std::uint32_t expert) const {
  Row inner = product(section, up.weight, up.bias, x, expert);
  if (!spec_.gated_ffn) {
    for (double& value : inner) value = activated(spec_.activation, value);
    return inner;
  }
  Row gates = product(section, gate.weight, gate.bias, x, expert);
  if (spec_.cuts_gates(section - 1)) cut(gates);
  for (std::size_t i = 0; i < inner.size(); ++i) {
    inner[i] = gated(spec_.activation, gates[i], inner[i]);
  }
  return inner;
}

NaiveModel::Row NaiveModel::shared_expert(std::uint32_t section, const Row& x) const {
  if (weights(section, TensorKind::kSharedUp).empty()) return Row(x.size());
  Row out = product(
      section, TensorKind::kSharedDown, kNone,
      inner_row(section, {TensorKind::kSharedGate, kNone}, {TensorKind::kSharedUp, kNone}, x));
  if (weights(section, TensorKind::kSharedWeight).empty()) return out;
  const double score = product(section, TensorKind::kSharedWeight, kNone, x)[0];
  for (double& value : out) value /= 1.0 + std::exp(-score);
  return out;
}

// The same of sparsemixer.
NaiveModel::Row NaiveModel::mixed(Row scores) const {
  Row row_weights(scores.size());
  for (int turn = 0; turn < 2; ++turn) {
    const auto best = std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (const double score : scores) {
      const bool near =
          (*best - score) / std::max(std::fabs(score), *best) <= 2 * spec_.expert_margin;
      if (near) total += std::exp(score - *best);
    }
    row_weights[static_cast<std::size_t>(best - scores.begin())] = 1.0 / total;
    *best = -std::numeric_limits<double>::infinity();
  }
  return row_weights;
}

// Returns the weight of every expert by the scores of a row, 0 for those that do not take it.
NaiveModel::Row NaiveModel::routed(std::uint32_t section, const Row& scores) const {
  if (spec_.expert_scoring == ExpertScoring::kSparsemixer) return mixed(scores);
  const bool sigmoid = spec_.expert_scoring == ExpertScoring::kSigmoid;
  const Weights& bias = weights(section, TensorKind::kRouterCorrection);
  Row parts(scores.size());  // what the weights are made of
  Row ranks(scores.size());  // what chooses
  for (std::size_t e = 0; e < scores.size(); ++e) {
    parts[e] = sigmoid ? 1.0 / (1.0 + std::exp(-scores[e])) : std::exp(scores[e]);
    ranks[e] = parts[e] + (bias.empty() ? 0.0 : bias[e]);
  }
  const std::size_t in_group = scores.size() / spec_.expert_groups;
  std::vector<std::pair<double, std::size_t>> groups;
  for (std::size_t group = 0; group < spec_.expert_groups; ++group) {
    const auto first = ranks.begin() + static_cast<std::ptrdiff_t>(group * in_group);
    Row best(first, first + static_cast<std::ptrdiff_t>(in_group));
    std::sort(best.rbegin(), best.rend());
    groups.emplace_back(-(best[0] + (sigmoid ? best[1] : 0.0)), group);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::size_t> order;
  for (std::uint32_t i = 0; i < spec_.expert_groups_used; ++i) {
    for (std::size_t e = 0; e < in_group; ++e) order.push_back(groups[i].second * in_group + e);
  }
  std::sort(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ranks[a] > ranks[b]; });
  order.resize(spec_.n_experts_used);
  double total = spec_.expert_epsilon;
  if (spec_.expert_renormalised) {
    for (const std::size_t e : order) total += parts[e];
  } else {
    total = sigmoid ? 1.0 : std::accumulate(parts.begin(), parts.end(), 0.0);
  }
  Row row_weights(scores.size());
  for (const std::size_t e : order) row_weights[e] = spec_.expert_scale * parts[e] / total;
  return row_weights;
}

NaiveModel::Row NaiveModel::experts(std::uint32_t section, const Row& x, const Row& routing) const {
  Row scores = product(section, TensorKind::kRouter, TensorKind::kRouterBias, routing);
  const Weights& scales = this->weights(section, TensorKind::kExpertScales);
  for (double& score : scores) score /= scales.empty() ? 1.0 : std::sqrt(spec_.hidden);
  Row weights = routed(section, scores);
  for (std::size_t e = 0; e < scales.size(); ++e) weights[e] *= scales[e];
  Row sum = shared_expert(section, x);
  for (std::uint32_t expert = 0; expert < spec_.n_experts; ++expert) {
    if (weights[expert] == 0.0) continue;
    const double weight = weights[expert];
    Row in = x;
    if (spec_.weighs_expert_inputs) {
      for (double& value : in) value *= weight;
    }
    const Row inner = inner_row(section, {TensorKind::kExpertGate, TensorKind::kExpertGateBias},
                                {TensorKind::kExpertUp, TensorKind::kExpertUpBias}, in, expert);
    const Row out =
        product(section, TensorKind::kExpertDown, TensorKind::kExpertDownBias, inner, expert);
    for (std::size_t c = 0; c < sum.size(); ++c) {
      sum[c] += (spec_.weighs_expert_inputs ? 1.0 : weight) * out[c];
    }
  }
  return sum;
}

// What an FFN and the experts beside it give together.
NaiveModel::Row NaiveModel::beside(std::uint32_t section, const Row& x, const Row& stream) const {
  const auto normed = [&](const Row& y, TensorKind gain) {
    return norm(y, weights(section, gain), {});
  };
  Row sum = normed(dense_ffn(section, x), TensorKind::kDensePostNorm);
  const Row out = experts(section, normed(stream, TensorKind::kExpertNorm),
                          normed(stream, TensorKind::kRouterNorm));
  add(sum, normed(out, TensorKind::kExpertPostNorm));
  return sum;
}

NaiveModel::Row NaiveModel::ffn(std::uint32_t section, const Row& x, const Row& stream) const {
  if (spec_.experts_beside_ffn) return beside(section, x, stream);
  if (!weights(section, TensorKind::kRouter).empty()) return experts(section, x, x);
  return dense_ffn(section, x);
}

NaiveModel::Row NaiveModel::dense_ffn(std::uint32_t section, const Row& x) const {
  Row inner = inner_row(section, {TensorKind::kFfnGate, TensorKind::kFfnGateBias},
                        {TensorKind::kFfnUp, TensorKind::kFfnUpBias}, x);
  const Weights& gain = weights(section, TensorKind::kFfnSubNorm);
  if (!gain.empty()) inner = norm(inner, gain, {});
  return product(section, TensorKind::kFfnDown, TensorKind::kFfnDownBias, inner);
}

// What a sublayer takes of a row of the residual stream, which may become that itself.
NaiveModel::Row NaiveModel::normed_input(std::uint32_t section, TensorKind gain, TensorKind bias,
                                         Row& x) const {
  if (weights(section, gain).empty()) return x;
  Row n = norm(x, weights(section, gain), weights(section, bias));
  if (spec_.norms_stream) x = n;
  return n;
}

// The logits of a row behind the last layer.
NaiveModel::Row NaiveModel::output(const Row& x) const {
  using enum TensorKind;
  const std::uint32_t last = spec_.n_layers + 1;
  const Row n = norm(x, weights(last, kFinalNorm), weights(last, kFinalNormBias));
  Row logits =
      spec_.tied_head ? product(0, kTokenEmbedding, kNone, n) : product(last, kHead, kHeadBias, n);
  for (double& logit : logits) logit = capped(spec_.logit_scale * logit, spec_.logit_soft_cap);
  return logits;
}

std::vector<std::vector<double>> NaiveModel::logits(
    const std::vector<std::uint32_t>& tokens, std::uint32_t context,
    const std::vector<double>& slopes, const Sees& sees,
    std::vector<std::vector<std::vector<double>>>* hidden, const Cache* cache) const {
  using enum TensorKind;
  std::vector<Row> rows;
  for (const std::uint32_t token : tokens) rows.push_back(embedded(token, rows.size()));
  const std::vector<Row> first_rows = rows;
  Streams streams = expanded(rows);
  std::map<std::uint32_t, std::pair<std::vector<Row>, std::vector<Row>>> stored;  // keys, values
  for (std::uint32_t layer = 1; layer <= spec_.n_layers; ++layer) {
    const std::vector<Row> kept = rows;
    predict(layer, streams, rows);
    std::vector<Row> normed, inputs, queries, keys, values, latents;
    for (std::uint32_t position = 0; position < rows.size(); ++position) {
      const Row n = normed_input(layer, kAttnNorm, kAttnNormBias, rows[position]);
      if (!spec_.attends(layer - 1)) {
        inputs.push_back(n);
        continue;
      }
      auto [q, k, v, latent] = head_rows(layer, n);
      scale_query(q, layer - 1, position, cache);
      if (cache == nullptr) {
        rotate(q, layer - 1, position, context);
        rotate(k, layer - 1, position, context);
      }
      const bool own_norm = spec_.parallel_block && !weights(layer, kFfnNorm).empty();
      inputs.push_back(own_norm ? normed_input(layer, kFfnNorm, kFfnNormBias, rows[position]) : n);
      normed.push_back(n);
      queries.push_back(q);
      keys.push_back(k);
      values.push_back(std::move(v));
      latents.push_back(std::move(latent));
    }
    const std::uint32_t from = spec_.attention_of(layer - 1).kv_layer;
    if (from != layer - 1) std::tie(keys, values) = stored[from];
    stored[layer - 1] = {keys, values};
    std::vector<Row> mixed = mix(layer, inputs);
    for (std::size_t position = 0; position < rows.size(); ++position) {
      Row& x = rows[position];
      const auto behind = [&](const Row& y, TensorKind gain) {
        return weights(layer, gain).empty() ? y : norm(y, weights(layer, gain), {});
      };
      if (spec_.has_latent() && on_product_ != nullptr) {
        on_product_(kLatentValues, layer - 1, 0,
                    attend(queries[position], position, keys, latents, layer - 1, slopes, sees));
      }
      if (spec_.attends(layer - 1)) {
        const Row& q = queries[position];
        const Row seen = cache == nullptr
                             ? attend(q, position, keys, values, layer - 1, slopes, sees)
                             : attend_cache(q, position, keys, values, layer - 1, context, *cache);
        const Row attended =
            product(layer, kAttnO, kAttnOBias,
                    behind(gated_attention(layer, normed[position], seen), kAttnSubNorm));
        mixed.resize(rows.size(), Row(x.size()));
        add(mixed[position], attended);
      }
      if (!mixed.empty()) add(x, scaled(behind(mixed[position], kAttnPostNorm)));
      if (!streams.empty()) x = laurel(layer, x, normed[position]);
      Row m = x;
      if (spec_.parallel_block) {
        m = inputs[position];
      } else {
        m = normed_input(layer, kFfnNorm, kFfnNormBias, x);
      }
      if (spec_.has_ffn(layer - 1)) add(x, scaled(behind(ffn(layer, m, x), kFfnPostNorm)));
      if (!streams.empty()) {
        correct(layer, streams[position], x, first_rows[position], tokens[position]);
      } else if (spec_.layer_input_dim != 0) {
        add(x, layer_input(layer, x, first_rows[position], tokens[position]));
      }
      scale_stream(layer, x);
    }
    // Later layers may attend to the keys and values of a layer that adds nothing.
    if (skipped_ == layer - 1) rows = kept;
    if (hidden != nullptr) hidden->push_back(rows);
  }
  merge(streams, rows);
  for (Row& x : rows) x = output(x);
  return rows;
}

}  // namespace qsf::testing_support
