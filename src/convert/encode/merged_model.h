// SPDX-License-Identifier: MIT
//
// MergedModel: a ModelSource whose weights have LoRA adapters added.
//
//   W + sum over adapters of scale * B A
//
// is summed in f64 and rounded to f32 once, row by row as rows are read. The adapters' matrices are
// in memory as f32. A tied head that an adapter changes becomes a matrix of its own: the adapter is
// not for the embedding.

#ifndef QSF_CONVERT_ENCODE_MERGED_MODEL_H_
#define QSF_CONVERT_ENCODE_MERGED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "convert/encode/untied_head.h"
#include "import/adapter_source.h"
#include "import/model_source.h"

namespace qsf {

class MergedModel final : public ModelSource {
 public:
  // Makes a model without adapters, which has the weights of the source.
  explicit MergedModel(std::unique_ptr<ModelSource> source);

  // Adds an adapter, whose values load() reads. An adapter may be added several times.
  // Requires  load() has not been called; `scale` is finite
  // Fails     kInvalidArgument when the adapter is of another architecture, or the model does not
  //           have a matrix, or in another shape, naming the adapter; the model is of no use then
  Status add(AdapterSource adapter, float scale);

  // Reads the matrices of all adapters into memory. Changed rows can be read afterwards.
  // Fails  as AdapterValues::read_pair(), naming the adapter
  Status load();

  // The quantiser names the adapters.
  const ModelSpec& spec() const noexcept override { return spec_; }
  std::span<const SourceTensor> tensors(SectionKind section,
                                        std::uint32_t layer) const noexcept override;
  // The bits of a row do not depend on the other rows of the call.
  // Fails  also with kUnsupported on sums that are not finite
  Status read_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                   std::uint32_t first_row, std::span<float> out) const override;
  // Nothing for changed tensors, otherwise the source's format.
  std::optional<BlockFormat> kept_format(SectionKind section, std::uint32_t layer,
                                         std::size_t tensor) const noexcept override;
  Status read_kept_rows(SectionKind section, std::uint32_t layer, std::size_t tensor,
                        std::uint32_t first_row, std::uint32_t n_rows,
                        MutableByteSpan out) const override;
  // A row in f64.
  std::uint64_t read_buffer_bytes() const noexcept override;
  void drop_cached() const noexcept override { source_->drop_cached(); }

  // The adapters' matrices, also before load().
  std::uint64_t resident_bytes() const noexcept override;

  // A checksum of everything that the adapters add, with their scales. Requires  load() succeeded
  std::uint32_t adapters_crc() const noexcept { return crc_; }
  // Matrices that an adapter changes.
  std::size_t n_changed() const noexcept { return terms_.size(); }
  // Weights of a head that the source does not have; 0 without one.
  std::uint64_t added_weights() const noexcept { return head_.n_weights(); }

 private:
  // What one adapter adds to one matrix.
  struct Term {
    double scale = 1.0;
    std::size_t adapter = 0;
    std::size_t pair = 0;  // of the adapter's
    AdapterPair shape;
    std::vector<float> a;  // [rank, in]
    std::vector<float> b;  // [out, rank]
  };
  using Place = std::tuple<SectionKind, std::uint32_t, std::size_t>;  // section, layer, tensor

  Result<Place> find_place(const AdapterPair& pair);
  // The tensor of the source that a place is read from.
  Place origin(const Place& place) const noexcept;
  Status add_terms(std::span<const Term> terms, std::uint32_t first_row, std::size_t n_cols,
                   std::span<float> out) const;

  std::unique_ptr<ModelSource> source_;
  ModelSpec spec_;
  std::vector<AdapterSource> adapters_;  // empty after load()
  std::map<Place, std::vector<Term>> terms_;
  UntiedHead head_;  // where an adapter changes a tied one
  std::uint32_t crc_ = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_MERGED_MODEL_H_
