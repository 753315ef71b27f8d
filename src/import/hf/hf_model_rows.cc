// SPDX-License-Identifier: MIT
//
// Rows of a Hugging Face model: as weights, and in the format that a conversion may keep.

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "base/portable_math.h"
#include "import/conv_taps.h"
#include "import/delta_rows.h"
#include "import/hf/hf_model.h"
#include "import/hf/hf_mxfp4.h"
#include "import/hf/hf_stored_kinds.h"
#include "import/latent_rows.h"
#include "import/rope_pairs.h"
#include "quant/codec.h"
#include "quant/ternary.h"

namespace qsf {
namespace {

bool is_ternary(std::span<const float> row) noexcept {
  TernaryScan scan;
  scan.add(row);
  return scan.is_natively_ternary() || scan.magnitude() == 0.0F;
}

}  // namespace

Status HfModel::read_rows(SectionKind kind, std::uint32_t layer, std::size_t tensor,
                          std::uint32_t first_row, std::span<float> out) const {
  const SourceTensor& shape = section(kind, layer).tensors[tensor];
  const Place& place = section(kind, layer).places[tensor];
  if (place.from != nullptr) {
    return place.from->read(*place.stored, std::uint64_t{first_row} * shape.cols, out);
  }
  if (place.n_taps != 0) return read_taps(place, out);
  const bool vector = is_vector(shape.kind);
  const std::uint32_t n_inputs = vector ? 1 : shape.cols;
  if (place.scales != nullptr) {
    return read_mxfp4_weights(place, first_row, n_inputs, out).with_context(folder_);
  }
  const std::uint64_t begin = vector ? std::uint64_t{first_row} * shape.cols : first_row;
  const std::uint64_t end = begin + out.size() / n_inputs;
  for (std::uint64_t i = begin; i < end;) {
    const std::uint64_t in_run = i % place.run;
    const bool in_runs = place.order == Place::Order::kRuns;
    const std::uint64_t n = in_runs ? std::min(place.run - in_run, end - i) : 1;
    const std::uint64_t stored = stored_row(place, i);
    const std::span<float> part = out.subspan((i - begin) * n_inputs, n * n_inputs);
    QSF_RETURN_IF_ERROR(read_run(place, stored, n_inputs, part));
    QSF_RETURN_IF_ERROR(make_ternary(place, i / place.run, part));
    i += n;
  }
  if (place.less_one) {
    for (float& gain : out) gain += 1.0F;
  }
  multiply_rows(shape.kind, first_row, n_inputs, out);
  if (place.adds_row) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] += added_row_[i % shape.cols];
      if (std::isfinite(out[i])) continue;
      return corrupt("%s: tensor \"%s\": row %zu and that of token type 0 have no finite sum",
                     folder_.c_str(), shape.name.c_str(), first_row + i / shape.cols);
    }
  }
  return place.decay_log ? make_decays(place, out) : ok_status();
}

// Multiplies rows by the factors of their matrix, if it has any.
void HfModel::multiply_rows(TensorKind kind, std::uint32_t first_row, std::uint32_t n_cols,
                            std::span<float> out) const {
  const auto found = config_.factors.find(kind);
  if (found == config_.factors.end()) return;
  auto part = found->second.begin();
  std::uint64_t end = part->n_rows;  // of the part
  for (std::size_t r = 0; r * n_cols < out.size(); ++r) {
    while (first_row + r >= end && part + 1 != found->second.end()) end += (++part)->n_rows;
    for (float& weight : out.subspan(r * n_cols, n_cols)) {
      weight *= part->first;
      weight *= part->second;
    }
  }
}

// Turns logarithms into what is negated.
Status HfModel::make_decays(const Place& place, std::span<float> out) const {
  for (float& value : out) {
    const float decay = static_cast<float>(-portable::exp(static_cast<double>(value)));
    if (!std::isfinite(decay)) {
      return corrupt("%s: tensor \"%s\": exp(%g) is too large", folder_.c_str(),
                     place.stored->name.c_str(), static_cast<double>(value));
    }
    value = decay;
  }
  return ok_status();
}

std::uint64_t HfModel::stored_row(const Place& place, std::uint64_t output) const noexcept {
  const ModelSpec& s = config_.spec;
  switch (place.order) {
    case Place::Order::kPairedRope: return stored_rope_row(output, s.head_dim, s.rope_dims());
    case Place::Order::kLatentQuery:
      return stored_latent_query_row(output, s.latent_key_dim, s.rope.dims);
    case Place::Order::kLatentRow: return stored_latent_row(output, s.latent_dim, s.rope.dims);
    case Place::Order::kKeyGroups: return input_row_by_group(s, output);
    case Place::Order::kRuns: break;
  }
  return place.first + output / place.run * place.step + output % place.run * place.stride;
}

// The taps of a channel are stored side by side.
Status HfModel::read_taps(const Place& place, std::span<float> out) const {
  std::vector<float> stored(out.size());
  QSF_RETURN_IF_ERROR(weights_->read(*place.stored, 0, stored));
  transpose_taps(stored, place.n_taps, out);
  return ok_status();
}

// Turns what is stored of ternary weights into the weights; `field` counts the codes of a byte.
Status HfModel::make_ternary(const Place& place, std::uint64_t field, std::span<float> out) const {
  switch (place.ternary) {
    case Place::Ternary::kNone: return ok_status();
    case Place::Ternary::kPacked:
      for (float& value : out) {
        const unsigned code = static_cast<unsigned>(value) >> (2 * field) & 3U;
        if (code == 3) {
          return corrupt("%s: tensor \"%s\": a code of 3, expected 0, 1 or 2", folder_.c_str(),
                         place.stored->name.c_str());
        }
        value = static_cast<float>(static_cast<int>(code) - 1) * place.scale;
      }
      return ok_status();
    case Place::Ternary::kPlain:
      for (float& value : out) value *= place.scale;
      return ok_status();
    case Place::Ternary::kMasters: {
      const float inverse = 1.0F / place.scale;
      for (float& value : out) {
        value = std::clamp(std::nearbyint(value * inverse), -1.0F, 1.0F) * place.scale;
      }
      return ok_status();
    }
  }
  return ok_status();
}

std::optional<BlockFormat> HfModel::kept_format(SectionKind kind, std::uint32_t layer,
                                                std::size_t tensor) const noexcept {
  const Place& place = section(kind, layer).places[tensor];
  if (place.scales != nullptr) return block_format(QuantType::kMxfp4, 0);
  if (place.ternary != Place::Ternary::kNone) return block_format(QuantType::kTernaryRow, 0);
  if (place.adds_row || config_.factors.contains(section(kind, layer).tensors[tensor].kind)) {
    return block_format(QuantType::kF32, 0);
  }
  switch (place.stored->type) {
    case StoredType::kF16: return block_format(QuantType::kF16, 0);
    case StoredType::kBF16: return block_format(QuantType::kBF16, 0);
    default: return block_format(QuantType::kF32, 0);
  }
}

void HfModel::drop_cached() const noexcept {
  for (const File& file : weights_->files()) file.drop_cached();
  for (const std::unique_ptr<Checkpoint>& dense : dense_) {
    for (const File& file : dense->files()) file.drop_cached();
  }
}

Status HfModel::read_kept_rows(SectionKind kind, std::uint32_t layer, std::size_t tensor,
                               std::uint32_t first_row, std::uint32_t n_rows,
                               MutableByteSpan out) const {
  const std::uint32_t n_cols = section(kind, layer).tensors[tensor].cols;
  const Place& place = section(kind, layer).places[tensor];
  if (place.scales != nullptr) {
    return read_mxfp4(place, first_row, n_rows, n_cols, out).with_context(folder_);
  }
  std::vector<float> weights(std::size_t{n_rows} * n_cols);
  QSF_RETURN_IF_ERROR(read_rows(kind, layer, tensor, first_row, weights));
  const std::size_t row_bytes = row_major_bytes(block_format(QuantType::kTernaryRow, 0), n_cols);
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::span<const float> row = std::span(weights).subspan(std::size_t{r} * n_cols, n_cols);
    if (!is_ternary(row)) {
      return unsupported("tensor \"%s\": row %u is not ternary",
                         section(kind, layer).tensors[tensor].name.c_str(), first_row + r);
    }
    encode_ternary_row(row, kNearestRounding, out.subspan(r * row_bytes, row_bytes));
  }
  return ok_status();
}

// Reads rows of an MXFP4 matrix in layout 0.
Status HfModel::read_mxfp4(const Place& place, std::uint32_t first_row, std::uint32_t n_rows,
                           std::uint32_t n_cols, MutableByteSpan out) const {
  return read_hf_mxfp4_rows(*weights_,
                            {.blocks = *place.stored,
                             .scales = *place.scales,
                             .first = place.first + first_row * place.stride,
                             .stride = place.stride,
                             .n_rows = n_rows,
                             .n_cols = n_cols},
                            out);
}

Status HfModel::read_mxfp4_weights(const Place& place, std::uint32_t first_row,
                                   std::uint32_t n_cols, std::span<float> out) const {
  constexpr BlockFormat kFormat = block_format(QuantType::kMxfp4, 0);
  const auto n_rows = static_cast<std::uint32_t>(out.size() / n_cols);
  const std::size_t row_bytes = row_major_bytes(kFormat, n_cols);
  std::vector<std::byte> rows(n_rows * row_bytes);
  QSF_RETURN_IF_ERROR(read_mxfp4(place, first_row, n_rows, n_cols, rows));
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    decode_row(kFormat, ByteSpan(rows).subspan(r * row_bytes, row_bytes),
               out.subspan(std::size_t{r} * n_cols, n_cols));
  }
  return ok_status();
}

// Reads outputs of the stored tensor, from `stored_first` on, place.stride apart.
Status HfModel::read_run(const Place& place, std::uint64_t stored_first, std::uint32_t n_inputs,
                         std::span<float> out) const {
  if (!place.transposed && place.stride == 1) {
    return weights_->read(*place.stored, stored_first * n_inputs, out);
  }
  const std::size_t n = out.size() / n_inputs;
  if (!place.transposed) {
    for (std::size_t r = 0; r < n; ++r) {
      QSF_RETURN_IF_ERROR(weights_->read(*place.stored,
                                         (stored_first + r * place.stride) * n_inputs,
                                         out.subspan(r * n_inputs, n_inputs)));
    }
    return ok_status();
  }
  std::vector<float> column((n - 1) * place.stride + 1);
  for (std::uint32_t c = 0; c < n_inputs; ++c) {
    QSF_RETURN_IF_ERROR(weights_->read(*place.stored, stored_first + c * place.n_stored, column));
    for (std::size_t r = 0; r < n; ++r) out[r * n_inputs + c] = column[r * place.stride];
  }
  return ok_status();
}

}  // namespace qsf
