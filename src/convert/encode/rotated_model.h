// SPDX-License-Identifier: MIT
//
// RotatedModel: a ModelSource with rotations folded into the weights. Outputs do not change and
// inference costs nothing; outliers of weights are spread over their neighbours before they are
// quantised (docs/decisions/038-rotation-and-outliers.md).
//
// Values: with R2 orthogonal, attention sums R2 v instead of v. The value matrix becomes R2 Wv in
// every KV head, and the output matrix Wo R2^T in every head.
//
// Residual stream: with R1 orthogonal, every layer reads and writes R1 h instead of h. RMSNorm
// commutes with R1 except for its gains g, which are folded into the matrices behind it:
//
//   embeddings             E R1^T
//   q, k, v, gate, up      W diag(g) R1^T, and the gains become ones
//   o, down                R1 W, and their biases R1 b
//   head                   W diag(g) R1^T
//
// A tied head becomes a separate matrix, since the last gains apply only to the head.
//
// Based on: Ashkboos et al., "SliceGPT", 2024 (folded gains), and "QuaRot", 2024.

#ifndef QSF_CONVERT_ENCODE_ROTATED_MODEL_H_
#define QSF_CONVERT_ENCODE_ROTATED_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "convert/encode/untied_head.h"
#include "import/model_source.h"

namespace qsf {

// HadamardRotation: a random orthogonal matrix that spreads every element over its block.
//
// Each block of b columns is multiplied by D2 H D1 / sqrt(b): H is the Hadamard matrix in
// Sylvester's order, D1 and D2 are diagonals of random signs from a seed. Without D1, H would
// concentrate some vectors, such as constant ones, in one element. Without D2, the rotation by H of
// a quantised KV cache (kernels/kv_rows) would undo this one.
//
// Based on: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024; Tseng et
// al., "QuIP#", 2024.
class HadamardRotation {
 public:
  // A rotation of vectors of n columns, in blocks of the largest power of two that divides n and is
  // at most `most`.
  // Requires  n and most are at least 1
  HadamardRotation(std::uint32_t n, std::uint32_t most, std::uint64_t seed);

  std::uint32_t block() const noexcept { return block_; }

  // Multiplies consecutive vectors in place, x := R x.
  // Requires  x is a whole number of vectors
  void rotate(std::span<float> x) const noexcept;

  // The same for vectors that are columns of a matrix: rotates one block of its rows, from
  // first_row on. Shapes    rows [block(), n_cols] Requires  first_row is a multiple of block()
  void rotate_columns(std::uint32_t first_row, std::size_t n_cols,
                      std::span<float> rows) const noexcept;

 private:
  std::uint32_t block_ = 1;
  std::vector<float> before_;  // [n], D1
  std::vector<float> after_;   // [n], D2 / sqrt(b)
};

// The rotated parts of a model; at least one.
struct RotationScope {
  bool values = false;
  bool stream = false;
};

class RotatedModel final : public ModelSource {
 public:
  // Block size of the residual stream's rotation. Reading a row of a matrix that writes into the
  // stream reads all rows of its block, so this bounds memory: 256 rows for each reading thread.
  static constexpr std::uint32_t kMostStreamColumns = 256;

  // Fails  kUnsupported, with the reason, when the model cannot be rotated; as the source
  static Result<std::unique_ptr<RotatedModel>> create(std::unique_ptr<ModelSource> source,
                                                      RotationScope scope);

  // The quantiser names the rotation.
  const ModelSpec& spec() const noexcept override { return spec_; }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t layer) const noexcept override;
  // The bits of a row do not depend on the other rows of the call.
  // Fails  also with kUnsupported on sums that are not finite
  Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override;

  // Nothing for rotated tensors, otherwise the source's format.
  std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                         std::size_t tensor) const noexcept override;
  Status read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                        std::uint32_t first_row, std::uint32_t n_rows,
                        MutableByteSpan out) const override;

  // The rows of a block.
  std::uint64_t read_buffer_bytes() const noexcept override;
  std::uint64_t resident_bytes() const noexcept override { return source_->resident_bytes(); }
  void drop_cached() const noexcept override { source_->drop_cached(); }

  // Returns the weights of a head that the source does not have; 0 without one.
  std::uint64_t added_weights() const noexcept { return head_.n_weights(); }

 private:
  // The changes to a tensor, in this order.
  struct Change {
    bool ones = false;                         // instead of all else
    const HadamardRotation* rows = nullptr;    // mixes rows
    const std::vector<float>* gain = nullptr;  // of the columns
    const HadamardRotation* columns = nullptr;
    bool any() const noexcept {
      return ones || rows != nullptr || gain != nullptr || columns != nullptr;
    }
  };
  struct LayerGains {
    std::vector<float> attention;
    std::vector<float> ffn;  // empty where the FFN takes attention's norm
  };
  // A tensor of the source.
  struct Origin {
    SectionKind section;
    std::uint32_t layer;
    std::size_t tensor;
  };

  RotatedModel(std::unique_ptr<ModelSource> source, RotationScope scope);
  Status read_gains();
  Origin origin(SectionKind section, std::uint32_t layer, std::size_t tensor) const noexcept;
  Change change_of(TensorKind kind, std::uint32_t layer) const noexcept;
  Status read_mixed(const Origin& from, const SourceTensor& tensor,
                    const HadamardRotation& rotation, std::uint32_t first_row,
                    std::span<float> out) const;

  std::unique_ptr<ModelSource> source_;
  ModelSpec spec_;
  RotationScope scope_;
  HadamardRotation stream_;
  HadamardRotation values_;
  std::vector<LayerGains> gains_;  // empty without the residual stream
  std::vector<float> final_gain_;  // the same
  UntiedHead head_;                // where the residual stream is rotated
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_ROTATED_MODEL_H_
