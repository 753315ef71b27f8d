// SPDX-License-Identifier: MIT
//
// GgufModel: a GGUF file as a ModelSource.
//
// Fused projections are split by rows. Query and key rows in pair order (GPT-J RoPE), as in files
// of the architecture "llama", are reordered for RoPE on halves of a head (NeoX). Only whole rows
// move, so blocks that a QSF type can hold are copied exactly.

#ifndef QSF_IMPORT_GGUF_GGUF_MODEL_H_
#define QSF_IMPORT_GGUF_GGUF_MODEL_H_

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "import/gguf/gguf_arch.h"
#include "import/gguf/gguf_file.h"
#include "import/gguf/i2s_decoder.h"
#include "import/gguf/i2s_flavor.h"
#include "import/model_source.h"
#include "import/mtp_block.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

class GgufModel final : public ModelSource {
 public:
  // Opens a file, or all parts of a model, and checks that exactly the tensors of its architecture
  // are there; of a block for multi-token prediction, that it is.
  // `layout` names the layout of I2_S tensors; kAuto detects it.
  // Requires  `ops` outlives the model
  // Fails     as GgufFile::open; kCorrupt on a missing or unexpected tensor or a shape that
  //           disagrees with the keys; kUnsupported, naming it, on an architecture, feature or
  //           type that this version does not read. Messages begin with the file's name
  static Result<std::unique_ptr<GgufModel>> open(const std::string& path,
                                                 I2sLayout layout = I2sLayout::kAuto,
                                                 FileOps& ops = system_file_ops(),
                                                 ModelPart part = ModelPart::kModel);

  const ModelSpec& spec() const noexcept override { return spec_; }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t layer) const noexcept override;
  Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override;
  std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                         std::size_t tensor) const noexcept override;
  Status read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                        std::uint32_t first_row, std::uint32_t n_rows,
                        MutableByteSpan out) const override;
  void drop_cached() const noexcept override;

  const GgufFile& file() const noexcept { return file_; }
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  // The tokenizer, fitted to the embedding; nothing when the file has none.
  // Fails  as tokenizer_from_gguf and limit_vocabulary
  const Result<std::optional<TokenizerData>>& tokenizer() const noexcept { return tokenizer_; }

 private:
  // The rows of a tensor (the elements of a vector) inside a stored tensor.
  struct Place {
    const GgufFile::Entry* stored = nullptr;
    std::uint64_t first = 0;
    std::uint64_t row_bytes = 0;
    const I2sDecoder* i2s = nullptr;  // reads the rows instead, of a tensor of type I2_S
    float scale = 1.0F;               // of the whole tensor, from a tensor beside it
    // How rows are stored: in runs with others between them, in pairs that rotate (rope_pairs.h),
    // as latent_rows.h has them, or of each head of latent attention its keys, which are
    // transposed, and then its values.
    enum class Order : std::uint8_t {
      kPlain,
      kRuns,
      kPairedRope,
      kLatentQuery,
      kLatentRow,
      kHeadKeys,
      kHeadValues
    };
    Order order = Order::kPlain;
    std::uint64_t run = 0;     // of kRuns: rows that are neighbours in both
    std::uint64_t step = 0;    // of kRuns: from a run to the next in the stored tensor
    std::uint32_t n_taps = 0;  // of a convolution; 0: something else
    bool adds_row = false;     // GgufModel::added_row_ to every row
  };
  struct Section {
    std::vector<SourceTensor> tensors;
    std::vector<Place> places;
  };
  friend class GgufModelMapper;

  explicit GgufModel(GgufFile file) : file_(std::move(file)) {}
  const Section& section(SectionKind kind, std::uint32_t layer) const noexcept;
  Status open_i2s(I2sLayout layout);
  Result<std::optional<I2sFlavor>> order_by_dead_channels(
      std::span<const GgufFile::Entry* const> entries, std::span<const I2sTensor> tensors);
  void read_vocabulary();
  Status read_vector(const SourceTensor& tensor, const Place& place, std::span<float> out) const;
  Status read_head_keys(const SourceTensor& tensor, const Place& place, std::uint32_t first_row,
                        std::span<float> out) const;
  Status read_i2s_rows(const Place& place, std::uint32_t first_row, std::uint32_t n_cols,
                       std::span<float> out) const;
  Status read_kept_i2s_rows(const Place& place, std::uint32_t first_row, std::size_t row_bytes,
                            MutableByteSpan out) const;
  // Returns which row of the stored tensor is a row of ours.
  std::uint64_t stored_row(const Place& place, std::uint64_t row) const noexcept;
  Status read_stored_rows(const Place& place, std::uint64_t first_row, std::uint32_t n_rows,
                          MutableByteSpan out) const;

  GgufFile file_;
  ModelSpec spec_;
  std::vector<Section> sections_;  // embedding, layers, final
  std::vector<float> added_row_;
  std::map<const GgufFile::Entry*, I2sDecoder> i2s_;
  std::vector<const GgufFile::Entry*> i2s_scales_;  // tensors that decoders have read
  std::vector<std::string> warnings_;
  Result<std::optional<TokenizerData>> tokenizer_{std::optional<TokenizerData>()};
};

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_MODEL_H_
