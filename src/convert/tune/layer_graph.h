// SPDX-License-Identifier: MIT
//
// One decoder layer of Llama's kind in f32, forwards and backwards: RMSNorm, attention with rotated
// halves, RMSNorm, SwiGLU. The backward pass computes the forward one again, so that a layer keeps
// nothing but its input.
//
// Rows are positions of windows, window after window; each window begins at position 0 and rows
// attend to their own window. Results depend on neither the number of threads nor the CPU model.

#ifndef QSF_CONVERT_TUNE_LAYER_GRAPH_H_
#define QSF_CONVERT_TUNE_LAYER_GRAPH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

// The tensors of a layer. Biases and the norms of heads may be missing.
enum class LayerPart : std::uint8_t {
  kQ,
  kK,
  kV,
  kO,
  kGate,
  kUp,
  kDown,
  kAttnNorm,
  kFfnNorm,
  kQNorm,
  kKNorm,
  kQBias,
  kKBias,
  kVBias
};
inline constexpr std::size_t kLayerParts = 14;

// Returns the part that is a tensor of that kind; nothing for other kinds.
std::optional<LayerPart> layer_part(TensorKind kind) noexcept;

// The weights of a layer, or their gradients, by part; a missing part is empty.
struct LayerValues {
  std::array<std::vector<float>, kLayerParts> parts;

  std::vector<float>& operator[](LayerPart part) { return parts[static_cast<std::size_t>(part)]; }
  const std::vector<float>& operator[](LayerPart part) const {
    return parts[static_cast<std::size_t>(part)];
  }
};

// Takes the gradients of a layer's weights as the backward pass finds them.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // The gradient of a matrix is the sum over rows of the outer product of dy and x.
  // Shapes  dy [n_rows, rows of the matrix], x [n_rows, columns of it]
  virtual void take_matrix(LayerPart part, std::span<const float> dy, std::span<const float> x) = 0;
  // Shapes  gradient [columns]
  virtual void take_row(LayerPart part, std::span<const float> gradient) = 0;
};

// Adds to the gradients of rows that RMSNorm took, and of its gain.
// Shapes  x, dy, dx [n_rows, gain.size()]; dgain [gain.size()]
void rms_norm_backward(std::span<const float> x, std::span<const float> gain, float epsilon,
                       std::span<const float> dy, std::span<float> dx, std::span<float> dgain);

class LayerGraph {
 public:
  // Fails  kUnsupported on a model whose layers are of another kind, naming its architecture
  static Status check(const ModelSpec& spec);

  // Requires  check(spec) is OK; context is that of the windows
  LayerGraph(const ModelSpec& spec, std::uint32_t context, unsigned n_threads);

  // Bytes that a pass over so many rows takes beside its input and the weights.
  static std::uint64_t memory_bytes(const ModelSpec& spec, std::uint32_t context,
                                    std::size_t n_rows, unsigned n_threads) noexcept;

  // Replaces the rows of a layer's input by those of its output.
  // Shapes  x [n_rows, hidden], n_rows a multiple of the context
  void forward(std::uint32_t layer, const LayerValues& weights, std::span<float> x) const;

  // Replaces the gradients of the output rows by those of the input rows, which are x, and hands
  // over those of the weights.
  // Shapes  x, dx [n_rows, hidden]
  void backward(std::uint32_t layer, const LayerValues& weights, std::span<const float> x,
                std::span<float> dx, GradientSink& sink) const;

 private:
  struct Pass;  // the rows between the operators of a layer

  void project(const std::vector<float>& w, const std::vector<float>& bias,
               const std::vector<float>& x, std::size_t n_in, std::vector<float>& y) const;
  void add_input_gradient(const std::vector<float>& w, const std::vector<float>& dy,
                          std::size_t n_in, std::span<float> dx) const;
  void norm_heads(const std::vector<float>& gain, const std::vector<float>& x,
                  std::vector<float>& y) const;
  void rotate(std::vector<float>& x, std::uint32_t n_heads, bool back) const;
  void attend(std::uint32_t window, Pass& pass) const;
  void attend_backward(std::uint32_t window, const Pass& pass, const std::vector<float>& dout,
                       std::vector<float>& dq, std::vector<float>& dk,
                       std::vector<float>& dv) const;
  // Probabilities of rows [first, first + n) of a window and head for the keys before them.
  void probabilities(std::uint32_t window, const float* q, const float* k, std::size_t first,
                     std::size_t n, float* to) const;
  void run(std::uint32_t layer, const LayerValues& weights, std::span<const float> x,
           Pass& pass) const;

  ModelSpec spec_;
  std::uint32_t context_;
  unsigned n_threads_;
  float score_scale_;
  std::vector<float> cos_, sin_;  // [context, rotated / 2]
};

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_LAYER_GRAPH_H_
