// SPDX-License-Identifier: MIT
//
// A model of random weights, and its logits straight from the definition: whole sequences, f64, no
// cache, no tiles. Slow, for tests alone; shares no arithmetic with the decoder.

#ifndef QSF_MODEL_TESTING_NAIVE_MODEL_H_
#define QSF_MODEL_TESTING_NAIVE_MODEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "format/qsf_writer.h"

namespace qsf::testing_support {

class NaiveModel {
 public:
  // Draws every tensor that the architecture may have, the optional ones included.
  // Requires  check_supported(spec) is OK
  NaiveModel(ModelSpec spec, std::uint64_t seed);

  const ModelSpec& spec() const noexcept { return spec_; }
  // Called with every row that a matrix of a layer or the head multiplies; `layer` is 0 for the
  // head, `expert` for matrices that no expert has. Matrices of latent heads are told with the rows
  // of all heads, as if keys and values were of latent columns.
  using OnProduct = std::function<void(TensorKind matrix, std::uint32_t layer, std::uint32_t expert,
                                       const std::vector<double>& x)>;
  void set_on_product(OnProduct on_product) { on_product_ = std::move(on_product); }
  // Leaves the tensors of a kind out of the layers that are written.
  void leave_out(TensorKind kind);
  // The layer that adds nothing to the residual stream, if any.
  void set_skipped(std::optional<std::uint32_t> layer) noexcept { skipped_ = layer; }
  // With `all` every row may attend to later ones as well; `sees` chooses.
  void set_sees_later(bool all) noexcept { sees_later_ = all; }
  // Writes the model with f32 weights in tiles of at most so many bytes, but at least 64 rows.
  Status write(const std::string& path, std::uint64_t tile_bytes = 1) const;
  // Whether the row at position i of a layer attends to position j, not i, with the heads of a KV
  // head.
  using Sees =
      std::function<bool(std::uint32_t layer, std::uint32_t kv_head, std::size_t i, std::size_t j)>;
  // The positions that a row sees, the first ones and the last up to its own, as a text by itself:
  // everything is rotated by its place among them.
  struct Cache {
    std::uint32_t sinks;
    std::uint32_t window;
  };
  // Returns the logits after every token, [tokens][n_vocab]. `context` is what the model is opened
  // for; `slopes` has one ALiBi slope a head, or none; rows see all that `sees` says, or without it
  // everything before them, or what `cache` leaves. `hidden`, where it is given, receives the rows
  // behind every layer: [n_layers][tokens][hidden].
  std::vector<std::vector<double>> logits(
      const std::vector<std::uint32_t>& tokens, std::uint32_t context,
      const std::vector<double>& slopes, const Sees& sees = nullptr,
      std::vector<std::vector<std::vector<double>>>* hidden = nullptr,
      const Cache* cache = nullptr) const;

 private:
  using Row = std::vector<double>;
  using Weights = std::vector<float>;

  const Weights& weights(std::uint32_t section, TensorKind kind, std::uint32_t expert = 0) const;
  Row product(std::uint32_t section, TensorKind matrix, TensorKind bias, const Row& x,
              std::uint32_t expert = 0) const;
  // The same without telling it.
  Row multiplied(std::uint32_t section, TensorKind matrix, TensorKind bias, const Row& x,
                 std::uint32_t expert = 0) const;
  Row norm(const Row& x, const Weights& gain, const Weights& bias) const {
    return norm(x, gain, bias, static_cast<double>(spec_.norm_epsilon));
  }
  Row norm(const Row& x, const Weights& gain, const Weights& bias, double epsilon) const;
  Row normed_input(std::uint32_t section, TensorKind gain, TensorKind bias, Row& x) const;
  void norm_heads(Row& x, std::uint32_t head_dim, const Weights& gain) const;
  // The angle of a pair of columns at a position.
  double turn(std::uint32_t layer, std::uint32_t pair, std::uint32_t position,
              std::uint32_t context) const;
  void rotate(Row& x, std::uint32_t layer, std::uint32_t position, std::uint32_t context) const;
  Row attend(const Row& q, std::size_t own, const std::vector<Row>& keys,
             const std::vector<Row>& values, std::uint32_t layer, const std::vector<double>& slopes,
             const Sees& sees) const;
  Row attend_cache(Row q, std::size_t own, const std::vector<Row>& keys,
                   const std::vector<Row>& values, std::uint32_t layer, std::uint32_t context,
                   const Cache& cache) const;
  // Queries, keys and values of a row. Latent attention has them of every head.
  struct HeadRows {
    Row q;
    Row k;
    Row v;
    Row latent;  // of latent attention: once for every head
  };
  HeadRows head_rows(std::uint32_t section, const Row& x) const;
  HeadRows latent_rows(std::uint32_t section, const Row& x) const;
  void tell_latent_keys(std::uint32_t section, const Row& q) const;
  // What a layer with a state gives for rows that were normed; nothing where it attends.
  std::vector<Row> short_conv(std::uint32_t section, const std::vector<Row>& rows) const;
  std::vector<Row> mix(std::uint32_t section, const std::vector<Row>& rows) const;
  // What attention gives for a row that was normed, times its gates in models that have them.
  Row gated_attention(std::uint32_t section, const Row& row, Row seen) const;
  std::vector<Row> delta_rule(std::uint32_t section, const std::vector<Row>& rows) const;
  std::vector<Row> mamba2(std::uint32_t section, const std::vector<Row>& rows) const;
  Row embedded(std::uint32_t token, std::size_t position) const;
  Row scaled(Row y) const;  // by the residual scale
  Row values_of(std::uint32_t section, const Row& x, const Row& k) const;
  void scale_query(Row& q, std::uint32_t layer, std::uint32_t position, const Cache* cache) const;
  void scale_stream(std::uint32_t section, Row& x) const;
  // What a token's input for a layer adds to the stream.
  Row layer_input(std::uint32_t section, const Row& stream, const Row& embedded,
                  std::uint32_t token) const;
  // Several residual streams of each token, or none.
  using Streams = std::vector<std::vector<Row>>;
  Streams expanded(const std::vector<Row>& rows) const;
  // Rows become what is predicted of the first stream.
  void predict(std::uint32_t section, Streams& streams, std::vector<Row>& rows) const;
  void correct(std::uint32_t section, std::vector<Row>& streams, const Row& y, const Row& embedded,
               std::uint32_t token) const;
  Row laurel(std::uint32_t section, const Row& x, const Row& normed) const;
  void merge(const Streams& streams, std::vector<Row>& rows) const;
  std::vector<double> routed_streams(std::uint32_t section, const Row& x) const;
  void cut(Row& gates) const;
  Row output(const Row& x) const;
  Row ffn(std::uint32_t section, const Row& x, const Row& stream) const;
  Row dense_ffn(std::uint32_t section, const Row& x) const;
  Row beside(std::uint32_t section, const Row& x, const Row& stream) const;
  Row mixed(Row scores) const;
  Row routed(std::uint32_t section, const Row& scores) const;
  struct Matrix {
    TensorKind weight;
    TensorKind bias;
  };
  Row inner_row(std::uint32_t section, const Matrix& gate, const Matrix& up, const Row& x,
                std::uint32_t expert = 0) const;
  Row shared_expert(std::uint32_t section, const Row& x) const;
  Row experts(std::uint32_t section, const Row& x, const Row& routing) const;
  Status write_section(QsfWriter& writer, SectionKind kind, std::uint32_t section) const;

  ModelSpec spec_;
  std::vector<std::vector<TensorInfo>> sections_;  // embedding, layers, final
  std::map<std::tuple<std::uint32_t, TensorKind, std::uint32_t>, Weights> weights_;
  OnProduct on_product_;
  std::optional<std::uint32_t> skipped_;
  bool sees_later_ = false;
};

}  // namespace qsf::testing_support

#endif  // QSF_MODEL_TESTING_NAIVE_MODEL_H_
