// SPDX-License-Identifier: MIT
//
// A converted model whose scales, mins and norms change while its codes stay: a .qsf file and a
// factor for each of these fields, of which a value v becomes v * (1 + factor), rounded to the
// field's type. So weights, gradients and the file that is written all have the rounded fields.
//
//   2bit, 3bit, 4bit, 8bit, 2bit-sym     the scale of every block, and the min
//   super-blocks, K-quants, codebooks    d of every super-block, and dmin
//   norms                                every element
//
// Other types, biases and everything else keep their bytes.

#ifndef QSF_CONVERT_TUNE_TUNED_MODEL_H_
#define QSF_CONVERT_TUNE_TUNED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/tune/layer_graph.h"
#include "convert/tune/tune_weights.h"
#include "format/qsf_reader.h"
#include "format/qsf_writer.h"

namespace qsf {

// The factors of one tensor: for each row those of its scales, then those of its mins.
struct TunedTensor {
  TensorInfo info;
  std::size_t first = 0;       // of its factors
  std::uint32_t n_groups = 0;  // of columns that share a field; 0: the tensor has no factors
  std::uint32_t group_cols = 0;
  bool has_min = false;

  std::size_t row_factors() const noexcept { return n_groups * (has_min ? 2U : 1U); }
  std::size_t n_factors() const noexcept { return info.rows * row_factors(); }
};

// Returns how the fields of a tensor are tuned, its factors from `first` on.
TunedTensor tuned_tensor(const TensorInfo& info, std::size_t first) noexcept;

// Replaces the fields of a row in layout 0. Shapes  factors [row_factors()]
void set_row_fields(const TunedTensor& tensor, std::span<const float> factors,
                    MutableByteSpan row) noexcept;

// Adds to the gradients of a row's factors, from the gradient of its weights.
// Shapes    row: its bytes in layout 0 with the factors in it; weights, dweights [cols];
//           factors, gradients [row_factors()]
void add_row_gradients(const TunedTensor& tensor, std::span<const float> factors, ByteSpan row,
                       std::span<const float> weights, std::span<const float> dweights,
                       std::span<float> gradients);

// Bytes of a file's tiles, and of them as they are stored.
struct TunedBytes {
  std::uint64_t raw = 0;
  std::uint64_t stored = 0;
};

class TunedModel final : public TuneWeights, private GradientSink {
 public:
  // Requires  LayerGraph::check(reader.spec()) is OK; the reader outlives the model
  // Fails     kUnsupported on a tensor that such layers have not, or without any field to tune
  static Result<std::unique_ptr<TunedModel>> open(const QsfReader& reader, unsigned n_threads);

  // Bytes of the largest section: as it is stored, and as f32 where it is a layer.
  static std::uint64_t memory_bytes(const QsfReader& reader) noexcept;
  // Bytes that a thread takes for gradients of weights and for products.
  static std::uint64_t thread_bytes(const QsfReader& reader) noexcept;

  std::span<float> factors() noexcept { return factors_; }
  std::span<float> gradients() noexcept { return gradients_; }

  Status load_layer(std::uint32_t layer, LayerValues& to) override;
  Status load_final_norm(std::vector<float>& to) override;
  Status embed(std::span<const TokenId> tokens, std::span<float> to) override;
  Status load_head(std::uint32_t first_row, std::span<float> to) override;

  // The sink of the layer that load_layer() read last, with its weights.
  GradientSink& layer_sink(const LayerValues& weights) noexcept;
  // Shapes  gain, as load_final_norm() gave it, and gradient [hidden]
  void add_final_norm_gradient(std::span<const float> gain, std::span<const float> gradient);
  // Of the rows that load_head() read last. Shapes  dlogits [n_rows, head rows], x [n_rows, hidden]
  void add_head_gradients(std::span<const float> dlogits, std::span<const float> weights,
                          std::span<const float> x);
  // Shapes  dx [tokens, hidden]
  Status add_embedding_gradients(std::span<const TokenId> tokens, std::span<const float> dx);

  // Drops the file from the page cache.
  void drop_cached() const noexcept { reader_.file().drop_cached(); }

  // Writes the model with its factors to a file. Fails  as QsfWriter
  Result<TunedBytes> write(const std::string& path, Compression compression,
                           std::uint64_t tile_bytes, FileOps& ops);

 private:
  explicit TunedModel(const QsfReader& reader, unsigned n_threads)
      : reader_(reader), n_threads_(n_threads) {}

  void take_matrix(LayerPart part, std::span<const float> dy, std::span<const float> x) override;
  void take_row(LayerPart part, std::span<const float> gradient) override;
  std::span<const float> row_factors(const TunedTensor& tensor, std::size_t row) const noexcept {
    return std::span(factors_).subspan(tensor.first + row * tensor.row_factors(),
                                       tensor.row_factors());
  }
  std::span<float> row_gradients(const TunedTensor& tensor, std::size_t row) noexcept {
    return std::span(gradients_)
        .subspan(tensor.first + row * tensor.row_factors(), tensor.row_factors());
  }
  void add_norm_gradient(const TunedTensor& tensor, std::span<const float> gain,
                         std::span<const float> gradient);
  const TunedTensor* find(std::size_t section, TensorKind kind) const noexcept;
  Status read_tile(std::size_t section, std::uint32_t tile);  // into raw_
  // Rows of a tile in raw_ in layout 0, with the factors.
  void take_rows(const TunedTensor& tensor, std::uint32_t tile_row, std::uint32_t row,
                 std::uint32_t n_rows, MutableByteSpan to) const;
  Status read_section(std::size_t section);  // into rows_
  void take_row_of_tile(const TunedTensor& tensor, std::uint32_t tile_row, std::uint32_t row,
                        std::vector<std::byte>& to) const;
  void decode(const TunedTensor& tensor, ByteSpan rows, std::span<float> to) const;
  void add_matrix_gradients(const TunedTensor& tensor, std::size_t first_row, ByteSpan rows,
                            std::span<const float> weights, std::span<const float> dy,
                            std::span<const float> x);
  void put_one_rows(std::size_t section);

  const QsfReader& reader_;
  unsigned n_threads_;
  std::vector<std::vector<TunedTensor>> sections_;  // in the order of the file
  std::vector<float> factors_;
  std::vector<float> gradients_;
  std::vector<std::byte> stored_, raw_;       // of a tile
  std::vector<std::vector<std::byte>> rows_;  // of the section's tensors, layout 0
  std::size_t section_ = 0;                   // that rows_ are of
  const LayerValues* weights_ = nullptr;      // of layer_sink()
  std::vector<std::byte> head_rows_;
  std::uint32_t head_first_ = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNED_MODEL_H_
