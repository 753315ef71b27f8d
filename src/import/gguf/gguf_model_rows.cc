// SPDX-License-Identifier: MIT
//
// Rows of a GGUF file: the reading half of GgufModel.

#include <algorithm>
#include <cmath>

#include "format/tensor_rules.h"
#include "import/conv_taps.h"
#include "import/gguf/ggml_repack.h"
#include "import/gguf/ggml_types.h"
#include "import/gguf/gguf_model.h"
#include "import/latent_rows.h"
#include "import/rope_pairs.h"

namespace qsf {

std::uint64_t GgufModel::stored_row(const Place& place, std::uint64_t row) const noexcept {
  const std::uint64_t n_values = spec_.latent_value_dim;
  switch (place.order) {
    case Place::Order::kPlain:
    case Place::Order::kHeadKeys: break;
    case Place::Order::kRuns: return place.first + row / place.run * place.step + row % place.run;
    case Place::Order::kPairedRope:
      return place.first + stored_rope_row(row, spec_.head_dim, spec_.rope_dims());
    case Place::Order::kLatentQuery:
      return stored_latent_query_row(row, spec_.latent_key_dim, spec_.rope.dims);
    case Place::Order::kLatentRow: return stored_latent_row(row, spec_.latent_dim, spec_.rope.dims);
    case Place::Order::kHeadValues: return (row / n_values + 1) * spec_.latent_key_dim + row;
  }
  return place.first + row;
}

// Reads rows as they are stored.
Status GgufModel::read_stored_rows(const Place& place, std::uint64_t first_row,
                                   std::uint32_t n_rows, MutableByteSpan out) const {
  const std::uint64_t n_bytes = place.row_bytes;
  if (place.order == Place::Order::kPlain) {
    return file_.read(*place.stored, (place.first + first_row) * n_bytes, out);
  }
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::uint64_t stored = stored_row(place, first_row + r);
    QSF_RETURN_IF_ERROR(
        file_.read(*place.stored, stored * n_bytes, out.subspan(r * n_bytes, n_bytes)));
  }
  return ok_status();
}

Status GgufModel::read_vector(const SourceTensor& tensor, const Place& place,
                              std::span<float> out) const {
  QSF_ASSIGN_OR_RETURN(const std::vector<float> all, place.n_taps != 0
                                                         ? read_gguf_rows(file_, *place.stored)
                                                         : read_gguf_vector(file_, *place.stored));
  if (place.n_taps != 0) {
    transpose_taps(all, place.n_taps, out);
    return ok_status();
  }
  for (std::uint32_t i = 0; i < tensor.cols; ++i) out[i] = all[stored_row(place, i)];
  return ok_status();
}

void GgufModel::drop_cached() const noexcept {
  for (std::uint32_t part = 0; part < file_.n_parts(); ++part) file_.file(part).drop_cached();
}

Status GgufModel::read_rows(SectionKind kind, std::uint32_t layer, std::size_t tensor,
                            std::uint32_t first_row, std::span<float> out) const {
  const SourceTensor& shape = section(kind, layer).tensors[tensor];
  const Place& place = section(kind, layer).places[tensor];
  const std::uint64_t* const dims = place.stored->tensor->dims;
  const bool is_stacked = dims[1] != 1 && dims[0] == shape.cols;  // as rows of a matrix
  if (place.n_taps != 0 || (!is_matrix(shape.kind) && !is_stacked)) {
    return read_vector(shape, place, out);
  }
  if (place.i2s != nullptr) return read_i2s_rows(place, first_row, shape.cols, out);
  if (place.order == Place::Order::kHeadKeys) return read_head_keys(shape, place, first_row, out);
  const auto n_rows = static_cast<std::uint32_t>(out.size() / shape.cols);
  std::vector<std::byte> bytes(n_rows * place.row_bytes);
  QSF_RETURN_IF_ERROR(read_stored_rows(place, first_row, n_rows, bytes));
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::span<float> row = out.subspan(std::size_t{r} * shape.cols, shape.cols);
    decode_ggml_row(place.stored->tensor->type,
                    ByteSpan(bytes).subspan(r * place.row_bytes, place.row_bytes), row);
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] *= place.scale;
      if (place.adds_row) row[c] += added_row_[c];
      if (std::isfinite(row[c])) continue;
      return corrupt("%s: tensor \"%s\": the weight at row %u, column %zu is not finite",
                     file_.file(place.stored->part).path().c_str(), shape.name.c_str(),
                     first_row + r, c);
    }
  }
  return ok_status();
}

// Rows are columns of what is stored, of each head in turn.
Status GgufModel::read_head_keys(const SourceTensor& tensor, const Place& place,
                                 std::uint32_t first_row, std::span<float> out) const {
  const std::uint64_t n_latent = place.stored->tensor->dims[0];
  const std::uint64_t n_keys = spec_.latent_key_dim;
  const std::uint64_t of_head = n_keys + spec_.latent_value_dim;
  std::vector<std::byte> bytes(n_keys * place.row_bytes);
  std::vector<float> keys(n_keys * n_latent);
  std::uint64_t read_head = UINT64_MAX;
  for (std::size_t r = 0; r < out.size() / tensor.cols; ++r) {
    const std::uint64_t head = (first_row + r) / n_latent;
    if (head != read_head) {
      QSF_RETURN_IF_ERROR(file_.read(*place.stored, head * of_head * place.row_bytes, bytes));
      for (std::uint64_t k = 0; k < n_keys; ++k) {
        decode_ggml_row(place.stored->tensor->type,
                        ByteSpan(bytes).subspan(k * place.row_bytes, place.row_bytes),
                        std::span(keys).subspan(k * n_latent, n_latent));
      }
      read_head = head;
    }
    const std::span<float> row = out.subspan(r * tensor.cols, tensor.cols);
    for (std::size_t k = 0; k < row.size(); ++k) {
      row[k] = keys[k * n_latent + (first_row + r) % n_latent] * place.scale;
      if (std::isfinite(row[k])) continue;
      return corrupt("%s: tensor \"%s\": a weight of head %llu is not finite",
                     file_.file(place.stored->part).path().c_str(), tensor.name.c_str(),
                     static_cast<unsigned long long>(head));
    }
  }
  return ok_status();
}

// Rows in pair order are read one by one.
Status GgufModel::read_i2s_rows(const Place& place, std::uint32_t first_row, std::uint32_t n_cols,
                                std::span<float> out) const {
  if (place.order == Place::Order::kPlain)
    return place.i2s->read_rows(place.first + first_row, out);
  for (std::size_t r = 0; r < out.size() / n_cols; ++r) {
    const std::uint64_t stored = stored_row(place, first_row + r);
    QSF_RETURN_IF_ERROR(place.i2s->read_rows(stored, out.subspan(r * n_cols, n_cols)));
  }
  return ok_status();
}

Status GgufModel::read_kept_i2s_rows(const Place& place, std::uint32_t first_row,
                                     std::size_t row_bytes, MutableByteSpan out) const {
  const std::size_t n_rows = out.size() / row_bytes;
  if (place.order == Place::Order::kPlain) {
    return place.i2s->read_kept_rows(place.first + first_row, n_rows, out);
  }
  for (std::size_t r = 0; r < n_rows; ++r) {
    const std::uint64_t stored = stored_row(place, first_row + r);
    QSF_RETURN_IF_ERROR(
        place.i2s->read_kept_rows(stored, 1, out.subspan(r * row_bytes, row_bytes)));
  }
  return ok_status();
}

std::optional<BlockFormat> GgufModel::kept_format(SectionKind kind, std::uint32_t layer,
                                                  std::size_t tensor) const noexcept {
  const Place& place = section(kind, layer).places[tensor];
  if (place.i2s != nullptr) return place.i2s->kept_format();
  if (place.order == Place::Order::kHeadKeys) return std::nullopt;
  const auto format = qsf::kept_format(place.stored->tensor->type);
  if (place.adds_row) {  // sums of floats are floats; codes have no place for them
    const bool floats = format && is_float_type(format->type);
    return floats ? std::optional(block_format(QuantType::kF32, 0)) : std::nullopt;
  }
  // A scale of the whole tensor has a place in one type alone.
  if (place.scale != 1.0F && format && format->type != QuantType::kTernaryRow) return std::nullopt;
  return format;
}

Status GgufModel::read_kept_rows(SectionKind kind, std::uint32_t layer, std::size_t tensor,
                                 std::uint32_t first_row, std::uint32_t n_rows,
                                 MutableByteSpan out) const {
  const SourceTensor& shape = section(kind, layer).tensors[tensor];
  const Place& place = section(kind, layer).places[tensor];
  const std::size_t kept_bytes = out.size() / n_rows;
  if (place.i2s != nullptr) return read_kept_i2s_rows(place, first_row, kept_bytes, out);
  std::vector<std::byte> bytes(n_rows * place.row_bytes);
  QSF_RETURN_IF_ERROR(read_stored_rows(place, first_row, n_rows, bytes));
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    QSF_RETURN_IF_ERROR(
        repack_ggml_row(place.stored->tensor->type,
                        ByteSpan(bytes).subspan(r * place.row_bytes, place.row_bytes), shape.cols,
                        out.subspan(r * kept_bytes, kept_bytes))
            .with_context("tensor \"" + shape.name + "\""));
    if (place.scale == 1.0F) continue;
    const MutableByteSpan row = out.subspan(r * kept_bytes, kept_bytes);
    store_le(row, 0, load_le<float>(row, 0) * place.scale);
  }
  return ok_status();
}

}  // namespace qsf
