// SPDX-License-Identifier: MIT
//
// The weights of a model as tuning reads them, section by section in f32, whatever stores them.

#ifndef QSF_CONVERT_TUNE_TUNE_WEIGHTS_H_
#define QSF_CONVERT_TUNE_TUNE_WEIGHTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "convert/tune/layer_graph.h"
#include "import/model_source.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class TuneWeights {
 public:
  virtual ~TuneWeights() = default;
  // Reads a layer. Fails  kCorrupt, kIo
  virtual Status load_layer(std::uint32_t layer, LayerValues& to) = 0;
  // Reads the gain of the final norm.
  virtual Status load_final_norm(std::vector<float>& to) = 0;
  // Looks up the rows of tokens. Shapes  to [tokens, hidden]
  virtual Status embed(std::span<const TokenId> tokens, std::span<float> to) = 0;
  // Reads rows of the head, which may be the embedding. Shapes  to [n_rows, hidden]
  virtual Status load_head(std::uint32_t first_row, std::span<float> to) = 0;
};

// The weights that a conversion reads.
class OriginalWeights final : public TuneWeights {
 public:
  // Requires  LayerGraph::check(source.spec()) is OK; the source outlives this
  OriginalWeights(const ModelSource& source, unsigned n_threads)
      : source_(source), n_threads_(n_threads) {}

  Status load_layer(std::uint32_t layer, LayerValues& to) override;
  Status load_final_norm(std::vector<float>& to) override;
  Status embed(std::span<const TokenId> tokens, std::span<float> to) override;
  Status load_head(std::uint32_t first_row, std::span<float> to) override;

 private:
  Status read(const SourcePlace& place, std::uint32_t first_row, std::span<float> to) const;

  const ModelSource& source_;
  unsigned n_threads_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNE_WEIGHTS_H_
