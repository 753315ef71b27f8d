// SPDX-License-Identifier: MIT
//
// RotatedModel: a model with rotations folded into its weights, which change no output and cost
// nothing when it runs, but spread outliers of weights over their neighbours before they are
// quantised (docs/decisions/038-rotation-and-outliers.md).
//
// Values: with R2 orthogonal, attention sums R2 v where it summed v. The value matrix becomes R2 Wv
// in every KV head, and the output matrix, which takes the sums, Wo R2^T in every head.
//
// Residual stream: with R1 orthogonal, every layer reads and writes R1 h where it did h. An RMSNorm
// notices nothing but its gains g, which go into the matrices behind it:
//
//   embeddings             E R1^T
//   q, k, v, gate, up      W diag(g) R1^T, and the gains become ones
//   o, down                R1 W, and their biases R1 b
//   head                   W diag(g) R1^T
//
// A head that is the embedding becomes a matrix of its own, since the last gains go into one of the
// two.
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
#include "import/model_source.h"

namespace qsf {

// HadamardRotation: an orthogonal matrix that spreads every element over a block of others, so that
// none is far larger than the rest.
//
// Each block of b columns is multiplied with D2 H D1 / sqrt(b): H the Hadamard matrix in
// Sylvester's order, D1 and D2 diagonals of signs that a seed draws. D1 keeps vectors that H would
// gather in one element, such as constant ones, from being so; D2 keeps a second rotation by H,
// which quantised values take at run time (kernels/kv_rows), from undoing the first.
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

  // Multiplies vectors that lie one behind the other, x := R x.
  // Requires  x is a whole number of vectors
  void rotate(std::span<float> x) const noexcept;

  // The same for vectors that stand as columns in rows of n_cols: one block of them, of the rows
  // from first_row on of a matrix whose columns are whole vectors.
  // Shapes    rows [block(), n_cols]
  // Requires  first_row is a multiple of block()
  void rotate_columns(std::uint32_t first_row, std::size_t n_cols,
                      std::span<float> rows) const noexcept;

 private:
  std::uint32_t block_ = 1;
  std::vector<float> before_;  // [n], D1
  std::vector<float> after_;   // [n], D2 / sqrt(b)
};

// What of a model is rotated; at least one of them.
struct RotationScope {
  bool values = false;
  bool stream = false;
};

class RotatedModel final : public ModelSource {
 public:
  // Blocks of the residual stream's rotation. A row of a matrix that writes into the stream is read
  // with all rows of its block, so this bounds memory: 256 rows for each thread that reads.
  static constexpr std::uint32_t kMostStreamColumns = 256;

  // Fails  kUnsupported where the model does not allow it, saying why; as the source
  static Result<std::unique_ptr<RotatedModel>> create(std::unique_ptr<ModelSource> source,
                                                      RotationScope scope);

  // The quantiser names the rotation.
  const ModelSpec& spec() const noexcept override { return spec_; }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t layer) const noexcept override;
  // Rows have the same bits whatever others they are read with.
  // Fails  also with kUnsupported on sums that are not finite
  Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override;

  // What is rotated are f32, the rest is as in the source.
  std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                         std::size_t tensor) const noexcept override;
  Status read_saved_hidden_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                                std::uint32_t first_row, std::uint32_t n_rows,
                                MutableByteSpan out) const override;

  // The rows of a block.
  std::uint64_t read_buffer_bytes() const noexcept override;
  void drop_cached() const noexcept override { source_->drop_cached(); }

  // Weights of the head that this has and the source has not; 0: none.
  std::uint64_t added_weights() const noexcept;

 private:
  // What becomes of a tensor, in this order.
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
    std::vector<float> ffn;  // empty in a parallel block
  };
  // Where a tensor stands in the source.
  struct Origin {
    SectionKind section;
    std::uint32_t layer;
    std::size_t tensor;
  };

  RotatedModel(std::unique_ptr<ModelSource> source, RotationScope scope);
  Status read_gains();
  Status add_head();
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
  std::vector<LayerGains> gains_;         // empty without the residual stream
  std::vector<float> final_gain_;         // the same
  std::vector<SourceTensor> final_;       // of the final section, where a head was added
  std::optional<std::size_t> embedding_;  // the tensor that such a head comes from
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_ROTATED_MODEL_H_
