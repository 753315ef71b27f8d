// SPDX-License-Identifier: MIT
//
// What a pass over a model has to read and to compute, from the shapes in its file.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_COST_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_COST_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "format/qsf_reader.h"
#include "quant/kv_type.h"

namespace qsf_tools {

class ModelCost {
 public:
  // With keys of k_type and values of v_type, of which a row sees `n_kept` at most, 0: all; `h2o`
  // of sparse prefill, or none.
  ModelCost(const qsf::QsfReader& reader, qsf::KvType k_type, qsf::KvType v_type,
            std::uint64_t n_kept, const std::optional<qsf::SparsePrefillOptions>& h2o);

  // Bytes of weights that a pass reads once, whatever the number of its rows: every matrix of the
  // layers and the output head, as they lie in memory. Of the embedding it reads single rows, which
  // are not counted.
  std::uint64_t weight_bytes() const noexcept { return weight_bytes_; }
  // Bytes of keys and values that a row at `position` reads.
  std::uint64_t kv_bytes(std::uint64_t position) const noexcept;
  // Multiplications and additions of a row at `position`: products with weights, scores and sums of
  // attention, which a generated row pays to all positions; of the output head where logits are
  // wanted.
  std::uint64_t operations(std::uint64_t position, bool with_logits, bool generated) const noexcept;
  // Whether the largest part of the weights is stored as floats.
  bool float_weights() const noexcept { return float_weights_; }
  // "4bit" of most layers' weights and "8bit" of the head.
  const std::string& layer_type() const noexcept { return layer_type_; }
  const std::string& head_type() const noexcept { return head_type_; }

 private:
  // Positions that a row at `position` sees, summed over the layers.
  std::uint64_t visible(std::uint64_t position, bool generated) const noexcept;

  qsf::ModelSpec spec_;
  qsf::KvType k_type_;
  qsf::KvType v_type_;
  std::uint64_t n_kept_;
  std::optional<qsf::SparsePrefillOptions> h2o_;
  std::uint64_t weight_bytes_ = 0;
  std::uint64_t layer_weights_ = 0;
  std::uint64_t head_weights_ = 0;
  bool float_weights_ = false;
  std::string layer_type_;
  std::string head_type_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_COST_H_
