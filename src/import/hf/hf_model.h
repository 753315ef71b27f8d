// SPDX-License-Identifier: MIT
//
// HfModel: a Hugging Face folder (config.json and weights) as a ModelSource.
//
// Tensors are found by their names in transformers (hf_tensors.h), with or without the prefix of
// the base model. Fused, transposed and shifted tensors are converted while reading, and rows of
// families whose RoPE rotates neighbours are reordered (rope_pairs.h). Of a model of text and
// images, the text model is read; a warning says what was left out.

#ifndef QSF_IMPORT_HF_HF_MODEL_H_
#define QSF_IMPORT_HF_HF_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "import/checkpoint.h"
#include "import/hf/hf_config.h"
#include "import/model_source.h"
#include "import/mtp_block.h"

namespace qsf {

class HfModel final : public ModelSource {
 public:
  // Opens a folder and checks that it has exactly the tensors of its configuration; of a part, that
  // it has these.
  // Requires  `ops` outlives the model
  // Fails     as read_hf_config and open_checkpoint; kCorrupt on a missing or unexpected
  //           tensor or a shape that disagrees with the configuration, kUnsupported on a dtype; as
  //           mtp_block_spec
  static Result<std::unique_ptr<HfModel>> open(const std::string& folder,
                                               FileOps& ops = system_file_ops(),
                                               ModelPart part = ModelPart::kModel);

  const ModelSpec& spec() const noexcept override { return config_.spec; }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t layer) const noexcept override;
  Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override;

  // Ternary matrices have one scale a row; other tensors keep their float type.
  std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                         std::size_t tensor) const noexcept override;
  Status read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                        std::uint32_t first_row, std::uint32_t n_rows,
                        MutableByteSpan out) const override;
  void drop_cached() const noexcept override;

  const std::vector<std::string>& warnings() const noexcept { return config_.warnings; }

 private:
  // The outputs of a tensor (rows of a matrix, elements of a vector) inside a stored tensor: output
  // i is stored at first + i / run * step + i % run * stride, or in another order.
  struct Place {
    const StoredTensor* stored = nullptr;
    const Checkpoint* from = nullptr;  // a file of its own, with [outputs, inputs]
    std::uint64_t n_stored = 0;        // outputs of the stored tensor
    std::uint64_t first = 0;
    std::uint64_t run = 0;
    std::uint64_t step = 0;
    std::uint64_t stride = 1;
    bool transposed = false;               // stored as [inputs, outputs]
    const StoredTensor* scales = nullptr;  // of MXFP4, whose blocks are `stored`
    bool less_one = false;                 // stored as w - 1
    bool decay_log = false;                // the logarithm of what is negated
    // Where other orders store output i: that of rotating neighbours, those of latent_rows.h, and
    // that of a delta rule's inputs by group of keys (delta_rows.h).
    enum class Order : std::uint8_t { kRuns, kPairedRope, kLatentQuery, kLatentRow, kKeyGroups };
    Order order = Order::kRuns;
    std::uint32_t n_taps = 0;  // of a convolution; 0: something else
    // Ternary weights are -scale, 0 and scale. kPacked: a byte holds the codes of four outputs at a
    // distance of `run`, the first in its lowest bits. kMasters: rounded to multiples of the scale.
    enum class Ternary : std::uint8_t { kNone, kPacked, kPlain, kMasters };
    Ternary ternary = Ternary::kNone;
    float scale = 1.0F;
    bool adds_row = false;  // HfModel::added_row_ to every row
  };
  struct Section {
    std::vector<SourceTensor> tensors;
    std::vector<Place> places;
  };
  friend class HfModelMapper;

  HfModel(std::string folder, HfConfig config, std::unique_ptr<Checkpoint> weights)
      : folder_(std::move(folder)), config_(std::move(config)), weights_(std::move(weights)) {}
  const Section& section(SectionKind kind, std::uint32_t layer) const noexcept;
  Status read_mxfp4(const Place& place, std::uint32_t first_row, std::uint32_t n_rows,
                    std::uint32_t n_cols, MutableByteSpan out) const;
  Status read_mxfp4_weights(const Place& place, std::uint32_t first_row, std::uint32_t n_cols,
                            std::span<float> out) const;
  std::uint64_t stored_row(const Place& place, std::uint64_t output) const noexcept;
  Status read_run(const Place& place, std::uint64_t stored_first, std::uint32_t n_inputs,
                  std::span<float> out) const;
  Status map_dense(FileOps& ops);
  Status read_taps(const Place& place, std::span<float> out) const;
  Status make_decays(const Place& place, std::span<float> out) const;
  void multiply_rows(TensorKind kind, std::uint32_t first_row, std::uint32_t n_cols,
                     std::span<float> out) const;
  Status make_ternary(const Place& place, std::uint64_t field, std::span<float> out) const;

  std::string folder_;
  HfConfig config_;
  std::unique_ptr<Checkpoint> weights_;
  std::vector<std::unique_ptr<Checkpoint>> dense_;
  std::vector<Section> sections_;  // embedding, layers, final
  std::vector<float> added_row_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_MODEL_H_
