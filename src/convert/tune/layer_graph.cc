// SPDX-License-Identifier: MIT

#include "convert/tune/layer_graph.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/ranges.h"
#include "base/run_on_threads.h"
#include "convert/tune/tune_products.h"
#include "kernels/kernel_set.h"
#include "kernels/math/math.h"
#include "model/position_tables.h"

namespace qsf {
namespace {

constexpr std::size_t kScoreRows = 128;  // of a window whose scores are in memory at once
constexpr std::size_t kRowsAtOnce = 16;  // that a thread takes at a time

// Calls work(first, n) for all rows, a unit of them at a time, on up to n_threads threads.
template <typename Work>
void for_rows(std::size_t n_rows, std::size_t unit, unsigned n_threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  const std::size_t n_units = (n_rows + unit - 1) / unit;
  const auto loop = [&] {
    for (std::size_t i = next++; i < n_units; i = next++) {
      work(i * unit, std::min(unit, n_rows - i * unit));
    }
  };
  run_on_threads(std::clamp<std::size_t>(n_units, 1, n_threads), loop);
}

struct HeadPlace {
  std::size_t offset;  // of the head's first value, in the first row of the window
  std::size_t stride;  // from row to row
};

MatrixView head_rows(const std::vector<float>& x, HeadPlace place, std::size_t first_row) noexcept {
  return {x.data() + place.offset + first_row * place.stride, place.stride, 1};
}

}  // namespace

std::optional<LayerPart> layer_part(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ: return LayerPart::kQ;
    case TensorKind::kAttnK: return LayerPart::kK;
    case TensorKind::kAttnV: return LayerPart::kV;
    case TensorKind::kAttnO: return LayerPart::kO;
    case TensorKind::kFfnGate: return LayerPart::kGate;
    case TensorKind::kFfnUp: return LayerPart::kUp;
    case TensorKind::kFfnDown: return LayerPart::kDown;
    case TensorKind::kAttnNorm: return LayerPart::kAttnNorm;
    case TensorKind::kFfnNorm: return LayerPart::kFfnNorm;
    case TensorKind::kQNorm: return LayerPart::kQNorm;
    case TensorKind::kKNorm: return LayerPart::kKNorm;
    case TensorKind::kAttnQBias: return LayerPart::kQBias;
    case TensorKind::kAttnKBias: return LayerPart::kKBias;
    case TensorKind::kAttnVBias: return LayerPart::kVBias;
    default: return std::nullopt;
  }
}

// What differs from a plain model in anything but its sizes has no backward pass here, whatever
// fields a spec is given later.
Status LayerGraph::check(const ModelSpec& spec) {
  ModelSpec plain;
  plain.architecture = spec.architecture;
  plain.n_layers = spec.n_layers;
  plain.hidden = spec.hidden;
  plain.n_heads = spec.n_heads;
  plain.n_kv_heads = spec.n_kv_heads;
  plain.head_dim = spec.head_dim;
  plain.n_vocab = spec.n_vocab;
  plain.max_positions = spec.max_positions;
  plain.ffn = spec.ffn;
  plain.activation = Activation::kSilu;
  plain.gated_ffn = true;
  plain.norm = NormType::kRmsNorm;
  plain.norm_epsilon = spec.norm_epsilon;
  plain.positions = PositionEncoding::kRope;
  plain.rope = spec.rope;
  plain.sliding_window = spec.sliding_window;
  plain.tied_head = spec.tied_head;
  plain.calibrated = spec.calibrated;
  plain.bos_id = spec.bos_id;
  plain.eos_ids = spec.eos_ids;
  plain.pad_id = spec.pad_id;
  plain.chat_template = spec.chat_template;
  plain.quantiser = spec.quantiser;
  plain.source = spec.source;
  plain.default_type = spec.default_type;
  plain.block = spec.block;
  plain.extra = spec.extra;
  if (plain == spec) return ok_status();
  return unsupported(
      "models like this one (%s) cannot be tuned; expected dense layers of RMSNorm, rotated "
      "attention and a SiLU-gated FFN, as Llama, Mistral, Qwen 2 and Qwen 3 have",
      spec.architecture.c_str());
}

void rms_norm_backward(std::span<const float> x, std::span<const float> gain, float epsilon,
                       std::span<const float> dy, std::span<float> dx, std::span<float> dgain) {
  const std::size_t n = gain.size();
  for (std::size_t at = 0; at < x.size(); at += n) {
    double squares = 0.0;
    double dot = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      const double v = x[at + i];
      squares += v * v;
      dot += v * static_cast<double>(dy[at + i]) * static_cast<double>(gain[i]);
    }
    const double mean = squares / static_cast<double>(n) + static_cast<double>(epsilon);
    const double inverse = 1.0 / std::sqrt(mean);
    const auto scale = static_cast<float>(inverse);
    const auto pull = static_cast<float>(dot * inverse / (mean * static_cast<double>(n)));
    for (std::size_t i = 0; i < n; ++i) {
      dx[at + i] += dy[at + i] * gain[i] * scale - x[at + i] * pull;
      dgain[i] += dy[at + i] * x[at + i] * scale;
    }
  }
}

struct LayerGraph::Pass {
  std::vector<float> normed;               // what Q, K and V read
  std::vector<float> q_raw, k_raw;         // before the norms of heads
  std::vector<float> q, k, v;              // rotated
  std::vector<float> attended;             // what O reads
  std::vector<float> middle;               // the residual stream between attention and FFN
  std::vector<float> ffn_normed;           // what gate and up read
  std::vector<float> gate, up, activated;  // what down reads
};

LayerGraph::LayerGraph(const ModelSpec& spec, std::uint32_t context, unsigned n_threads)
    : spec_(spec), context_(context), n_threads_(std::max(n_threads, 1U)) {
  score_scale_ = 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  const float factor = rope_attention_factor(spec, context);
  for (std::uint32_t position = 0; position < context; ++position) {
    for (const float frequency : rope_inverse_frequencies(spec, context)) {
      const float angle = static_cast<float>(position) * frequency;
      cos_.push_back(factor * kernels::cos_f32(angle));
      sin_.push_back(factor * kernels::sin_f32(angle));
    }
  }
}

std::uint64_t LayerGraph::memory_bytes(const ModelSpec& spec, std::uint32_t context,
                                       std::size_t n_rows, unsigned n_threads) noexcept {
  // Those of a pass, and what the backward pass makes of them.
  const std::uint64_t columns =
      6 * (std::uint64_t{spec.hidden} + spec.q_dim() + spec.kv_dim()) + 5 * std::uint64_t{spec.ffn};
  const std::uint64_t scores = 3 * kScoreRows * std::uint64_t{context};
  return (n_rows * columns + n_threads * scores) * sizeof(float);
}

// y = x w^T + bias
void LayerGraph::project(const std::vector<float>& w, const std::vector<float>& bias,
                         const std::vector<float>& x, std::size_t n_in,
                         std::vector<float>& y) const {
  const std::size_t n_rows = x.size() / n_in;
  const std::size_t n_out = w.size() / n_in;
  y.resize(n_rows * n_out);
  multiply(by_rows(x.data(), n_in), by_rows(w.data(), n_in).transposed(), {n_rows, n_out, n_in},
           y.data(), n_out, false, n_threads_);
  if (bias.empty()) return;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % n_out];
}

// dx += dy w
void LayerGraph::add_input_gradient(const std::vector<float>& w, const std::vector<float>& dy,
                                    std::size_t n_in, std::span<float> dx) const {
  const std::size_t n_rows = dx.size() / n_in;
  const std::size_t n_out = w.size() / n_in;
  multiply(by_rows(dy.data(), n_out), by_rows(w.data(), n_in), {n_rows, n_in, n_out}, dx.data(),
           n_in, true, n_threads_);
}

void LayerGraph::norm_heads(const std::vector<float>& gain, const std::vector<float>& x,
                            std::vector<float>& y) const {
  y = x;
  if (gain.empty()) return;
  const auto& norm = kernels::host_kernel_set().norm;
  for (std::size_t at = 0; at < y.size(); at += gain.size()) {
    norm.rms_norm(x.data() + at, gain.data(), y.data() + at,
                  static_cast<std::uint32_t>(gain.size()), spec_.norm_epsilon);
  }
}

// The inverse of a rotation turns the other way.
void LayerGraph::rotate(std::vector<float>& x, std::uint32_t n_heads, bool back) const {
  const std::size_t half = spec_.rope_dims() / 2;
  const std::size_t row_size = std::size_t{n_heads} * spec_.head_dim;
  for_rows(x.size() / row_size, kRowsAtOnce, n_threads_, [&](std::size_t first, std::size_t n) {
    for (std::size_t row = first; row < first + n; ++row) {
      const float* const c = cos_.data() + row % context_ * half;
      const float* const s = sin_.data() + row % context_ * half;
      for (std::size_t h = 0; h < n_heads; ++h) {
        float* const head = x.data() + row * row_size + h * spec_.head_dim;
        for (std::size_t i = 0; i < half; ++i) {
          const float a = head[i];
          const float b = head[i + half];
          const float sine = back ? -s[i] : s[i];
          head[i] = a * c[i] - b * sine;
          head[i + half] = b * c[i] + a * sine;
        }
      }
    }
  });
}

void LayerGraph::probabilities(std::uint32_t window, const float* q, const float* k,
                               std::size_t first, std::size_t n, float* to) const {
  const std::size_t n_keys = first + n;
  const std::size_t q_stride = std::size_t{spec_.n_heads} * spec_.head_dim;
  const std::size_t k_stride = std::size_t{spec_.n_kv_heads} * spec_.head_dim;
  multiply(by_rows(q + first * q_stride, q_stride), by_rows(k, k_stride).transposed(),
           {n, n_keys, spec_.head_dim}, to, n_keys, false);
  const auto& softmax = kernels::host_kernel_set().softmax;
  for (std::size_t r = 0; r < n; ++r) {
    float* const row = to + r * n_keys;
    const std::size_t end = first + r + 1;
    const std::size_t begin = window == 0 || end <= window ? 0 : end - window;
    for (std::size_t i = begin; i < end; ++i) row[i] *= score_scale_;
    softmax.softmax_in_place(row + begin, static_cast<std::uint32_t>(end - begin));
    std::fill(row, row + begin, 0.0F);
    std::fill(row + end, row + n_keys, 0.0F);
  }
}

void LayerGraph::attend(std::uint32_t window, Pass& pass) const {
  const std::size_t dim = spec_.head_dim;
  const std::size_t q_stride = spec_.n_heads * dim;
  const std::size_t kv_stride = spec_.n_kv_heads * dim;
  const std::size_t n_windows = pass.q.size() / q_stride / context_;
  const std::size_t group = spec_.n_heads / spec_.n_kv_heads;
  pass.attended.resize(pass.q.size());
  for_rows(n_windows * spec_.n_heads, 1, n_threads_, [&](std::size_t item, std::size_t) {
    const std::size_t head = item % spec_.n_heads;
    const std::size_t row = item / spec_.n_heads * context_;
    const HeadPlace at_q = {row * q_stride + head * dim, q_stride};
    const HeadPlace at_kv = {row * kv_stride + head / group * dim, kv_stride};
    std::vector<float> scores(kScoreRows * context_);
    for (std::size_t first = 0; first < context_; first += kScoreRows) {
      const std::size_t n = std::min<std::size_t>(kScoreRows, context_ - first);
      probabilities(window, pass.q.data() + at_q.offset, pass.k.data() + at_kv.offset, first, n,
                    scores.data());
      multiply(by_rows(scores.data(), first + n), head_rows(pass.v, at_kv, 0), {n, dim, first + n},
               pass.attended.data() + at_q.offset + first * q_stride, q_stride, false);
    }
  });
}

// Of the query heads that share keys and values, one after the other.
void LayerGraph::attend_backward(std::uint32_t window, const Pass& pass,
                                 const std::vector<float>& dout, std::vector<float>& dq,
                                 std::vector<float>& dk, std::vector<float>& dv) const {
  const std::size_t dim = spec_.head_dim;
  const std::size_t q_stride = spec_.n_heads * dim;
  const std::size_t kv_stride = spec_.n_kv_heads * dim;
  const std::size_t n_windows = pass.q.size() / q_stride / context_;
  const std::size_t group = spec_.n_heads / spec_.n_kv_heads;
  dq.assign(pass.q.size(), 0.0F);
  dk.assign(pass.k.size(), 0.0F);
  dv.assign(pass.v.size(), 0.0F);
  for_rows(n_windows * spec_.n_kv_heads, 1, n_threads_, [&](std::size_t item, std::size_t) {
    const std::size_t row = item / spec_.n_kv_heads * context_;
    const HeadPlace kv = {row * kv_stride + item % spec_.n_kv_heads * dim, kv_stride};
    std::vector<float> p(kScoreRows * context_);
    std::vector<float> ds(kScoreRows * context_);
    for (std::size_t g = 0; g < group; ++g) {
      const std::size_t head = item % spec_.n_kv_heads * group + g;
      const HeadPlace at = {row * q_stride + head * dim, q_stride};
      for (std::size_t first = 0; first < context_; first += kScoreRows) {
        const std::size_t n = std::min<std::size_t>(kScoreRows, context_ - first);
        const std::size_t n_keys = first + n;
        probabilities(window, pass.q.data() + at.offset, pass.k.data() + kv.offset, first, n,
                      p.data());
        multiply(head_rows(dout, at, first), head_rows(pass.v, kv, 0).transposed(),
                 {n, n_keys, dim}, ds.data(), n_keys, false);
        multiply(by_rows(p.data(), n_keys).transposed(), head_rows(dout, at, first),
                 {n_keys, dim, n}, dv.data() + kv.offset, kv_stride, true);
        for (std::size_t r = 0; r < n; ++r) {
          double sum = 0.0;
          for (std::size_t i = r * n_keys; i < (r + 1) * n_keys; ++i) {
            sum += static_cast<double>(p[i]) * static_cast<double>(ds[i]);
          }
          const auto mean = static_cast<float>(sum);
          for (std::size_t i = r * n_keys; i < (r + 1) * n_keys; ++i) {
            ds[i] = p[i] * (ds[i] - mean) * score_scale_;
          }
        }
        multiply(by_rows(ds.data(), n_keys), head_rows(pass.k, kv, 0), {n, dim, n_keys},
                 dq.data() + at.offset + first * q_stride, q_stride, true);
        multiply(by_rows(ds.data(), n_keys).transposed(), head_rows(pass.q, at, first),
                 {n_keys, dim, n}, dk.data() + kv.offset, kv_stride, true);
      }
    }
  });
}

void LayerGraph::run(std::uint32_t layer, const LayerValues& weights, std::span<const float> x,
                     Pass& pass) const {
  const std::size_t hidden = spec_.hidden;
  const auto& kernels = kernels::host_kernel_set();
  const auto norm_rows = [&](std::span<const float> from, LayerPart part, std::vector<float>& to) {
    to.resize(from.size());
    for_rows(from.size() / hidden, kRowsAtOnce, n_threads_, [&](std::size_t first, std::size_t n) {
      for (std::size_t row = first; row < first + n; ++row) {
        kernels.norm.rms_norm(from.data() + row * hidden, weights[part].data(),
                              to.data() + row * hidden, spec_.hidden, spec_.norm_epsilon);
      }
    });
  };
  norm_rows(x, LayerPart::kAttnNorm, pass.normed);
  project(weights[LayerPart::kQ], weights[LayerPart::kQBias], pass.normed, hidden, pass.q_raw);
  project(weights[LayerPart::kK], weights[LayerPart::kKBias], pass.normed, hidden, pass.k_raw);
  project(weights[LayerPart::kV], weights[LayerPart::kVBias], pass.normed, hidden, pass.v);
  norm_heads(weights[LayerPart::kQNorm], pass.q_raw, pass.q);
  norm_heads(weights[LayerPart::kKNorm], pass.k_raw, pass.k);
  rotate(pass.q, spec_.n_heads, false);
  rotate(pass.k, spec_.n_kv_heads, false);
  attend(spec_.window_of(layer), pass);
  project(weights[LayerPart::kO], {}, pass.attended, spec_.q_dim(), pass.middle);
  for (std::size_t i = 0; i < x.size(); ++i) pass.middle[i] += x[i];
  norm_rows(pass.middle, LayerPart::kFfnNorm, pass.ffn_normed);
  project(weights[LayerPart::kGate], {}, pass.ffn_normed, hidden, pass.gate);
  project(weights[LayerPart::kUp], {}, pass.ffn_normed, hidden, pass.up);
  pass.activated.resize(pass.gate.size());
  const std::size_t ffn = spec_.ffn;
  for_rows(pass.gate.size() / ffn, kRowsAtOnce, n_threads_, [&](std::size_t first, std::size_t n) {
    kernels.activation.silu_mul(pass.gate.data() + first * ffn, pass.up.data() + first * ffn,
                                pass.activated.data() + first * ffn,
                                static_cast<std::uint32_t>(n * ffn));
  });
}

void LayerGraph::forward(std::uint32_t layer, const LayerValues& weights,
                         std::span<float> x) const {
  Pass pass;
  run(layer, weights, x, pass);
  std::vector<float> out;
  project(weights[LayerPart::kDown], {}, pass.activated, spec_.ffn, out);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = pass.middle[i] + out[i];
}

namespace {

// With a gate g, s = sigmoid(g): d(g s u) = u s (1 + g (1 - s)) dg + g s du.
void swiglu_backward(std::vector<float>& gate, std::vector<float>& up, const std::vector<float>& dy,
                     unsigned n_threads) {
  const auto& activation = kernels::host_kernel_set().activation;
  constexpr std::size_t kUnit = 4096;
  for_rows(gate.size(), kUnit, n_threads, [&](std::size_t first, std::size_t n) {
    std::vector<float> sigmoids(n, 1.0F);
    activation.sigmoid_mul(gate.data() + first, sigmoids.data(), sigmoids.data(),
                           static_cast<std::uint32_t>(n));
    for (std::size_t i = 0; i < n; ++i) {
      float& g = gate[first + i];
      float& u = up[first + i];
      const float s = sigmoids[i];
      const float dg = dy[first + i] * u * s * (1.0F + g * (1.0F - s));
      u = dy[first + i] * g * s;
      g = dg;
    }
  });
}

}  // namespace

void LayerGraph::backward(std::uint32_t layer, const LayerValues& weights, std::span<const float> x,
                          std::span<float> dx, GradientSink& sink) const {
  const std::size_t hidden = spec_.hidden;
  Pass pass;
  run(layer, weights, x, pass);
  // The FFN: its gradient reaches `middle` past it and through it.
  sink.take_matrix(LayerPart::kDown, dx, pass.activated);
  std::vector<float> dact(pass.activated.size());
  const std::vector<float> dy(dx.begin(), dx.end());
  add_input_gradient(weights[LayerPart::kDown], dy, spec_.ffn, dact);
  swiglu_backward(pass.gate, pass.up, dact, n_threads_);  // now gradients
  sink.take_matrix(LayerPart::kGate, pass.gate, pass.ffn_normed);
  sink.take_matrix(LayerPart::kUp, pass.up, pass.ffn_normed);
  std::vector<float> dnormed(dx.size());
  add_input_gradient(weights[LayerPart::kGate], pass.gate, hidden, dnormed);
  add_input_gradient(weights[LayerPart::kUp], pass.up, hidden, dnormed);
  std::vector<float> dgain(hidden);
  rms_norm_backward(pass.middle, weights[LayerPart::kFfnNorm], spec_.norm_epsilon, dnormed, dx,
                    dgain);
  sink.take_row(LayerPart::kFfnNorm, dgain);
  // Attention likewise.
  sink.take_matrix(LayerPart::kO, dx, pass.attended);
  std::vector<float> dout(pass.attended.size());
  add_input_gradient(weights[LayerPart::kO], {dx.begin(), dx.end()}, spec_.q_dim(), dout);
  std::vector<float> dq, dk, dv;
  attend_backward(spec_.window_of(layer), pass, dout, dq, dk, dv);
  rotate(dq, spec_.n_heads, true);
  rotate(dk, spec_.n_kv_heads, true);
  const auto through_head_norm = [&](LayerPart part, const std::vector<float>& raw,
                                     std::vector<float>& d) {
    if (weights[part].empty()) return;
    std::vector<float> draw(d.size());
    std::vector<float> dhead(weights[part].size());
    rms_norm_backward(raw, weights[part], spec_.norm_epsilon, d, draw, dhead);
    sink.take_row(part, dhead);
    d = std::move(draw);
  };
  through_head_norm(LayerPart::kQNorm, pass.q_raw, dq);
  through_head_norm(LayerPart::kKNorm, pass.k_raw, dk);
  sink.take_matrix(LayerPart::kQ, dq, pass.normed);
  sink.take_matrix(LayerPart::kK, dk, pass.normed);
  sink.take_matrix(LayerPart::kV, dv, pass.normed);
  std::fill(dnormed.begin(), dnormed.end(), 0.0F);
  add_input_gradient(weights[LayerPart::kQ], dq, hidden, dnormed);
  add_input_gradient(weights[LayerPart::kK], dk, hidden, dnormed);
  add_input_gradient(weights[LayerPart::kV], dv, hidden, dnormed);
  ranges::fill(dgain, 0.0F);
  rms_norm_backward(x, weights[LayerPart::kAttnNorm], spec_.norm_epsilon, dnormed, dx, dgain);
  sink.take_row(LayerPart::kAttnNorm, dgain);
}

}  // namespace qsf
