// SPDX-License-Identifier: MIT

#include "convert/tune/tuned_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/f16.h"
#include "base/ranges.h"
#include "convert/encode/encode_rows.h"
#include "convert/tune/tune_products.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

constexpr std::size_t kGradientRows = 96;  // of a matrix that one thread takes at a time

bool is_tuned_norm(TensorKind kind) noexcept {
  return kind == TensorKind::kAttnNorm || kind == TensorKind::kFfnNorm ||
         kind == TensorKind::kQNorm || kind == TensorKind::kKNorm || kind == TensorKind::kFinalNorm;
}

bool has_fields(QuantType type) noexcept {
  if (type == QuantType::kTernary) return false;
  const ScaleForm form = scale_form(type);
  return form != ScaleForm::kNone && form != ScaleForm::kRow && form != ScaleForm::kExponent;
}

// The offset of a field in a row of layout 0.
std::size_t field_offset(const TunedTensor& tensor, std::size_t group, bool min) noexcept {
  if (has_row_scale(tensor.info.format.type)) return 0;
  const std::size_t block = group * (tensor.group_cols / tensor.info.format.block);
  return locate_in_row(tensor.info.format, block).fields + (min ? sizeof(F16) : 0);
}

// Fields are f16, but for the f32 of a row.
float field(QuantType type, ByteSpan row, std::size_t offset) noexcept {
  if (has_row_scale(type)) return load_le<float>(row, offset);
  return to_f32(F16{load_le<std::uint16_t>(row, offset)});
}

void put_field(QuantType type, MutableByteSpan row, std::size_t offset, float value) noexcept {
  if (has_row_scale(type)) return store_le(row, offset, value);
  store_le(row, offset, to_f16(std::clamp(value, -kF16Max, kF16Max)).bits);
}

// The values of one kind of field: the weights without the other.
std::vector<float> decode_alone(const TunedTensor& tensor, ByteSpan row, bool min) {
  std::vector<std::byte> alone(row.begin(), row.end());
  for (std::size_t g = 0; g < tensor.n_groups; ++g) {
    put_field(tensor.info.format.type, alone, field_offset(tensor, g, !min), 0.0F);
  }
  std::vector<float> weights(tensor.info.cols);
  decode_row(tensor.info.format, alone, weights);
  return weights;
}

}  // namespace

TunedTensor tuned_tensor(const TensorInfo& info, std::size_t first) noexcept {
  TunedTensor tensor = {.info = info, .first = first};
  if (info.rows == 1) {
    tensor.group_cols = 1;
    tensor.n_groups = is_tuned_norm(info.kind) ? info.cols : 0;
  } else if (has_fields(info.format.type)) {
    tensor.group_cols = is_super_type(info.format.type)   ? kSuperColumns
                        : has_row_scale(info.format.type) ? info.cols
                                                          : info.format.block;
    tensor.n_groups = ceil_div(info.cols, tensor.group_cols);
    tensor.has_min = has_min(info.format.type);
  }
  return tensor;
}

void set_row_fields(const TunedTensor& tensor, std::span<const float> factors,
                    MutableByteSpan row) noexcept {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const bool min = i >= tensor.n_groups;
    const std::size_t at = field_offset(tensor, min ? i - tensor.n_groups : i, min);
    const QuantType type = tensor.info.format.type;
    put_field(type, row, at, field(type, row, at) * (1.0F + factors[i]));
  }
}

void add_row_gradients(const TunedTensor& tensor, std::span<const float> factors, ByteSpan row,
                       std::span<const float> weights, std::span<const float> dweights,
                       std::span<float> gradients) {
  // A weight is linear in its fields: field * (weight's derivative) is what the field alone gives.
  const auto add = [&](std::span<const float> parts, bool min) {
    for (std::size_t g = 0; g < tensor.n_groups; ++g) {
      const std::size_t first = g * tensor.group_cols;
      const std::size_t end = std::min<std::size_t>(first + tensor.group_cols, parts.size());
      float sum = 0.0F;
      for (std::size_t c = first; c < end; ++c) sum += parts[c] * dweights[c];
      const std::size_t i = g + (min ? tensor.n_groups : 0);
      gradients[i] += sum / (1.0F + factors[i]);
    }
  };
  if (!tensor.has_min) return add(weights, false);
  add(decode_alone(tensor, row, false), false);
  add(decode_alone(tensor, row, true), true);
}

Result<std::unique_ptr<TunedModel>> TunedModel::open(const QsfReader& reader, unsigned n_threads) {
  std::unique_ptr<TunedModel> model(new TunedModel(reader, std::max(n_threads, 1U)));
  std::size_t n_factors = 0;
  for (const SectionDirectory& section : reader.directories()) {
    std::vector<TunedTensor>& tensors = model->sections_.emplace_back();
    for (const TensorInfo& info : section.tensors) {
      const bool known = section.kind == SectionKind::kLayer
                             ? layer_part(info.kind).has_value()
                             : info.kind == TensorKind::kTokenEmbedding ||
                                   info.kind == TensorKind::kFinalNorm ||
                                   info.kind == TensorKind::kHead;
      if (!known) {
        return unsupported("models like this one (%s) cannot be tuned: its layers have %s",
                           reader.spec().architecture.c_str(),
                           std::string(tensor_kind_name(info.kind)).c_str());
      }
      tensors.push_back(tuned_tensor(info, n_factors));
      n_factors += tensors.back().n_factors();
    }
  }
  model->factors_.resize(n_factors);
  model->gradients_.resize(n_factors);
  return model;
}

std::uint64_t TunedModel::memory_bytes(const QsfReader& reader) noexcept {
  std::uint64_t most = 0;
  std::uint64_t n_factors = 0;
  for (const SectionDirectory& section : reader.directories()) {
    std::uint64_t bytes = 0;
    for (const TensorInfo& info : section.tensors) {
      n_factors += tuned_tensor(info, 0).n_factors();
      if (section.kind != SectionKind::kLayer) continue;
      bytes += info.rows *
               (row_major_bytes(info.format, info.cols) + std::uint64_t{info.cols} * sizeof(float));
    }
    most = std::max(most, bytes);
  }
  return most + 2 * n_factors * sizeof(float) + 2 * kMaxTileBytes;
}

std::uint64_t TunedModel::thread_bytes(const QsfReader& reader) noexcept {
  constexpr std::uint64_t kProductBytes = 1 << 20;
  std::uint64_t n_cols = 0;
  for (const SectionDirectory& section : reader.directories()) {
    for (const TensorInfo& info : section.tensors) {
      n_cols = std::max<std::uint64_t>(n_cols, info.cols);
    }
  }
  return kGradientRows * n_cols * sizeof(float) + kProductBytes;
}

const TunedTensor* TunedModel::find(std::size_t section, TensorKind kind) const noexcept {
  for (const TunedTensor& tensor : sections_[section]) {
    if (tensor.info.kind == kind) return &tensor;
  }
  return nullptr;
}

Status TunedModel::read_tile(std::size_t section, std::uint32_t tile) {
  const SectionDirectory& directory = reader_.directories()[section];
  stored_.resize(directory.tiles[tile].stored_bytes);
  raw_.resize(directory.tiles[tile].raw_bytes);
  return reader_.read_tile(directory, tile, stored_, raw_);
}

void TunedModel::take_rows(const TunedTensor& tensor, std::uint32_t tile_row, std::uint32_t row,
                           std::uint32_t n_rows, MutableByteSpan to) const {
  const TensorInfo& info = tensor.info;
  const std::size_t row_bytes = row_major_bytes(info.format, info.cols);
  const Status done = run_units(ceil_div(n_rows, kRowGroup), n_threads_, [&](std::size_t unit) {
    const auto first = static_cast<std::uint32_t>(unit * kRowGroup);
    const std::uint32_t n = std::min(kRowGroup, n_rows - first);
    const ByteSpan from = ByteSpan(raw_).subspan(tile_bytes(info, tile_row + first));
    const MutableByteSpan rows = to.subspan(first * row_bytes, n * row_bytes);
    if (info.layout == Layout::kInterleaved) {
      deinterleave_group(info.format, n, info.cols, from.first(group_bytes(info.format, info.cols)),
                         rows);
    } else {
      ranges::copy(from.first(rows.size()), rows.begin());
    }
    if (tensor.n_groups == 0) return ok_status();
    for (std::uint32_t r = 0; r < n; ++r) {
      set_row_fields(tensor, row_factors(tensor, row + first + r),
                     rows.subspan(r * row_bytes, row_bytes));
    }
    return ok_status();
  });
  QSF_CHECK(done.ok());
}

void TunedModel::put_one_rows(std::size_t section) {
  const std::vector<TensorInfo>& infos = reader_.directories()[section].tensors;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const TunedTensor& tensor = sections_[section][i];
    if (infos[i].rows != 1 || tensor.n_groups == 0) continue;
    const MutableByteSpan bytes = MutableByteSpan(raw_).subspan(
        one_row_offset(infos, i), row_major_bytes(infos[i].format, infos[i].cols));
    std::vector<float> row(infos[i].cols);
    decode_float_row(infos[i].format.type, bytes, row);
    for (std::size_t c = 0; c < row.size(); ++c) row[c] *= 1.0F + factors_[tensor.first + c];
    if (infos[i].format.type == QuantType::kF16) {
      for (float& value : row) value = std::clamp(value, -kF16Max, kF16Max);
    }
    encode_float_row(infos[i].format.type, row, bytes);
  }
}

// Into rows_, in layout 0.
Status TunedModel::read_section(std::size_t section) {
  const SectionDirectory& directory = reader_.directories()[section];
  rows_.resize(directory.tensors.size());
  section_ = section;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const TensorInfo& info = directory.tensors[i];
    rows_[i].resize(info.rows * row_major_bytes(info.format, info.cols));
  }
  for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
    const TileInfo& tile = directory.tiles[t];
    QSF_RETURN_IF_ERROR(read_tile(section, t));
    if (tile.tensor != kOneRowTensors) {
      const TunedTensor& tensor = sections_[section][tile.tensor];
      const std::size_t row_bytes = row_major_bytes(tensor.info.format, tensor.info.cols);
      take_rows(tensor, 0, tile.first_row, tile.n_rows,
                MutableByteSpan(rows_[tile.tensor])
                    .subspan(tile.first_row * row_bytes, tile.n_rows * row_bytes));
      continue;
    }
    put_one_rows(section);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (directory.tensors[i].rows != 1) continue;
      const auto from =
          ByteSpan(raw_).subspan(one_row_offset(directory.tensors, i), rows_[i].size());
      ranges::copy(from, rows_[i].begin());
    }
  }
  return ok_status();
}

void TunedModel::decode(const TunedTensor& tensor, ByteSpan rows, std::span<float> to) const {
  const std::size_t n_cols = tensor.info.cols;
  const std::size_t row_bytes = row_major_bytes(tensor.info.format, n_cols);
  const std::size_t n_rows = to.size() / n_cols;
  const Status done =
      run_units(ceil_div(n_rows, std::size_t{kUnitRows}), n_threads_, [&](std::size_t unit) {
        const std::size_t first = unit * kUnitRows;
        for (std::size_t r = first; r < std::min<std::size_t>(first + kUnitRows, n_rows); ++r) {
          decode_row(tensor.info.format, rows.subspan(r * row_bytes, row_bytes),
                     to.subspan(r * n_cols, n_cols));
        }
        return ok_status();
      });
  QSF_CHECK(done.ok());
}

Status TunedModel::load_layer(std::uint32_t layer, LayerValues& to) {
  to = {};
  QSF_RETURN_IF_ERROR(read_section(1 + std::size_t{layer}));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const TunedTensor& tensor = sections_[section_][i];
    std::vector<float>& part = to[*layer_part(tensor.info.kind)];
    part.resize(std::size_t{tensor.info.rows} * tensor.info.cols);
    decode(tensor, rows_[i], part);
  }
  return ok_status();
}

Status TunedModel::load_final_norm(std::vector<float>& to) {
  const std::size_t last = sections_.size() - 1;
  const SectionDirectory& directory = reader_.directories()[last];
  const auto index = directory.find(TensorKind::kFinalNorm);
  QSF_CHECK(index.has_value());
  for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
    if (directory.tiles[t].tensor != kOneRowTensors) continue;
    QSF_RETURN_IF_ERROR(read_tile(last, t));
    put_one_rows(last);
    const TensorInfo& info = directory.tensors[*index];
    to.resize(info.cols);
    decode_float_row(info.format.type,
                     ByteSpan(raw_).subspan(one_row_offset(directory.tensors, *index),
                                            row_major_bytes(info.format, info.cols)),
                     to);
  }
  return ok_status();
}

namespace {

// Calls take(tile_row, index) for every token whose row is in a tile, in the order of the tokens.
template <typename Take>
void for_tokens_in(const TileInfo& tile, std::span<const TokenId> tokens, const Take& take) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= tile.first_row && tokens[i] - tile.first_row < tile.n_rows) {
      take(tokens[i] - tile.first_row, i);
    }
  }
}

bool any_in(const TileInfo& tile, std::span<const TokenId> tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [&](TokenId token) {
    return token >= tile.first_row && token - tile.first_row < tile.n_rows;
  });
}

}  // namespace

// One row of a tile, which is in the middle of a group.
Status TunedModel::embed(std::span<const TokenId> tokens, std::span<float> to) {
  const TunedTensor& tensor = *find(0, TensorKind::kTokenEmbedding);
  const std::size_t n_cols = tensor.info.cols;
  std::vector<std::byte> row;
  const SectionDirectory& directory = reader_.embedding();
  for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
    const TileInfo& tile = directory.tiles[t];
    if (&sections_[0][tile.tensor] != &tensor || !any_in(tile, tokens)) continue;
    QSF_RETURN_IF_ERROR(read_tile(0, t));
    for_tokens_in(tile, tokens, [&](std::uint32_t tile_row, std::size_t i) {
      take_row_of_tile(tensor, tile_row, tokens[i], row);
      decode_row(tensor.info.format, row, to.subspan(i * n_cols, n_cols));
    });
  }
  return ok_status();
}

Status TunedModel::add_embedding_gradients(std::span<const TokenId> tokens,
                                           std::span<const float> dx) {
  const TunedTensor& tensor = *find(0, TensorKind::kTokenEmbedding);
  if (tensor.n_groups == 0) return ok_status();
  const std::size_t n_cols = tensor.info.cols;
  std::vector<std::byte> row;
  std::vector<float> weights(n_cols);
  const SectionDirectory& directory = reader_.embedding();
  for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
    const TileInfo& tile = directory.tiles[t];
    if (&sections_[0][tile.tensor] != &tensor || !any_in(tile, tokens)) continue;
    QSF_RETURN_IF_ERROR(read_tile(0, t));
    for_tokens_in(tile, tokens, [&](std::uint32_t tile_row, std::size_t i) {
      take_row_of_tile(tensor, tile_row, tokens[i], row);
      decode_row(tensor.info.format, row, weights);
      add_row_gradients(tensor, row_factors(tensor, tokens[i]), row, weights,
                        dx.subspan(i * n_cols, n_cols), row_gradients(tensor, tokens[i]));
    });
  }
  return ok_status();
}

void TunedModel::take_row_of_tile(const TunedTensor& tensor, std::uint32_t tile_row,
                                  std::uint32_t row, std::vector<std::byte>& to) const {
  const TensorInfo& info = tensor.info;
  const std::size_t row_bytes = row_major_bytes(info.format, info.cols);
  const std::uint32_t in_group = tile_row % kRowGroup;
  to.resize(row_bytes);
  if (info.layout == Layout::kInterleaved) {
    std::vector<std::byte> group((in_group + 1) * row_bytes);
    deinterleave_group(info.format, in_group + 1, info.cols,
                       ByteSpan(raw_).subspan(tile_bytes(info, tile_row - in_group),
                                              group_bytes(info.format, info.cols)),
                       group);
    ranges::copy(ByteSpan(group).subspan(in_group * row_bytes), to.begin());
  } else {
    ranges::copy(ByteSpan(raw_).subspan(tile_row * row_bytes, row_bytes), to.begin());
  }
  if (tensor.n_groups != 0) set_row_fields(tensor, row_factors(tensor, row), to);
}

Status TunedModel::load_head(std::uint32_t first_row, std::span<float> to) {
  const bool tied = reader_.spec().tied_head;
  const std::size_t section = tied ? 0 : sections_.size() - 1;
  const TunedTensor& tensor =
      *find(section, tied ? TensorKind::kTokenEmbedding : TensorKind::kHead);
  const std::size_t row_bytes = row_major_bytes(tensor.info.format, tensor.info.cols);
  const auto n_rows = static_cast<std::uint32_t>(to.size() / tensor.info.cols);
  head_first_ = first_row;
  head_rows_.resize(n_rows * row_bytes);
  const SectionDirectory& directory = reader_.directories()[section];
  for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
    const TileInfo& tile = directory.tiles[t];
    if (tile.tensor == kOneRowTensors || &sections_[section][tile.tensor] != &tensor) continue;
    const std::uint32_t begin = std::max(first_row, tile.first_row);
    const std::uint32_t end = std::min(first_row + n_rows, tile.first_row + tile.n_rows);
    if (begin >= end) continue;
    QSF_RETURN_IF_ERROR(read_tile(section, t));
    take_rows(tensor, begin - tile.first_row, begin, end - begin,
              MutableByteSpan(head_rows_)
                  .subspan((begin - first_row) * row_bytes, (end - begin) * row_bytes));
  }
  decode(tensor, head_rows_, to);
  return ok_status();
}

// Gradients of weights are made for some rows at a time and used at once.
void TunedModel::add_matrix_gradients(const TunedTensor& tensor, std::size_t first_row,
                                      ByteSpan rows, std::span<const float> weights,
                                      std::span<const float> dy, std::span<const float> x) {
  if (tensor.n_groups == 0) return;
  const std::size_t n_cols = tensor.info.cols;
  const std::size_t row_bytes = row_major_bytes(tensor.info.format, n_cols);
  const std::size_t n_rows = weights.size() / n_cols;
  const std::size_t n_inputs = x.size() / n_cols;
  const Status done = run_units(ceil_div(n_rows, kGradientRows), n_threads_, [&](std::size_t unit) {
    const std::size_t first = unit * kGradientRows;
    const std::size_t n = std::min(kGradientRows, n_rows - first);
    std::vector<float> dweights(n * n_cols);
    multiply(MatrixView{dy.data() + first, n_rows, 1}.transposed(), by_rows(x.data(), n_cols),
             {n, n_cols, n_inputs}, dweights.data(), n_cols, false);
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t row = first + r;
      add_row_gradients(
          tensor, row_factors(tensor, first_row + row), rows.subspan(row * row_bytes, row_bytes),
          weights.subspan(row * n_cols, n_cols), std::span(dweights).subspan(r * n_cols, n_cols),
          row_gradients(tensor, first_row + row));
    }
    return ok_status();
  });
  QSF_CHECK(done.ok());
}

GradientSink& TunedModel::layer_sink(const LayerValues& weights) noexcept {
  weights_ = &weights;
  return *this;
}

void TunedModel::take_matrix(LayerPart part, std::span<const float> dy, std::span<const float> x) {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const TunedTensor& tensor = sections_[section_][i];
    if (layer_part(tensor.info.kind) == part) {
      add_matrix_gradients(tensor, 0, rows_[i], (*weights_)[part], dy, x);
    }
  }
}

void TunedModel::add_norm_gradient(const TunedTensor& tensor, std::span<const float> gain,
                                   std::span<const float> gradient) {
  for (std::size_t c = 0; c < tensor.n_factors(); ++c) {
    gradients_[tensor.first + c] += gradient[c] * gain[c] / (1.0F + factors_[tensor.first + c]);
  }
}

void TunedModel::take_row(LayerPart part, std::span<const float> gradient) {
  for (const TunedTensor& tensor : sections_[section_]) {
    if (layer_part(tensor.info.kind) == part) {
      add_norm_gradient(tensor, (*weights_)[part], gradient);
    }
  }
}

void TunedModel::add_final_norm_gradient(std::span<const float> gain,
                                         std::span<const float> gradient) {
  add_norm_gradient(*find(sections_.size() - 1, TensorKind::kFinalNorm), gain, gradient);
}

void TunedModel::add_head_gradients(std::span<const float> dlogits, std::span<const float> weights,
                                    std::span<const float> x) {
  const bool tied = reader_.spec().tied_head;
  const TunedTensor& tensor = *find(tied ? 0 : sections_.size() - 1,
                                    tied ? TensorKind::kTokenEmbedding : TensorKind::kHead);
  add_matrix_gradients(tensor, head_first_, head_rows_, weights, dlogits, x);
}

Result<TunedBytes> TunedModel::write(const std::string& path, Compression compression,
                                     std::uint64_t tile_bytes, FileOps& ops) {
  ModelSpec spec = reader_.spec();
  spec.quantiser += spec.quantiser.empty() ? "tuned" : ", tuned";
  QSF_ASSIGN_OR_RETURN(QsfWriter writer,
                       QsfWriter::create(path, std::move(spec), {compression, tile_bytes}, ops));
  if (reader_.tokenizer_bytes() != 0) {
    QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> tokenizer, reader_.read_tokenizer());
    QSF_RETURN_IF_ERROR(writer.set_tokenizer(tokenizer));
  }
  std::vector<std::byte> rows;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    const SectionDirectory& directory = reader_.directories()[s];
    QSF_RETURN_IF_ERROR(writer.begin_section(directory.kind, directory.layer, directory.tensors));
    QSF_CHECK(writer.tiles().size() == directory.tiles.size());
    for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
      const TileInfo& tile = directory.tiles[t];
      QSF_RETURN_IF_ERROR(read_tile(s, t));
      if (tile.tensor == kOneRowTensors) {
        put_one_rows(s);
      } else if (const TunedTensor& tensor = sections_[s][tile.tensor]; tensor.n_groups != 0) {
        const TensorInfo& info = tensor.info;
        rows.resize(tile.n_rows * row_major_bytes(info.format, info.cols));
        take_rows(tensor, 0, tile.first_row, tile.n_rows, rows);
        lay_out_rows(info.format, info.layout, tile.n_rows, info.cols, rows, raw_);
      }
      QSF_RETURN_IF_ERROR(writer.write_tile(raw_));
    }
    QSF_RETURN_IF_ERROR(writer.end_section(directory.importance));
  }
  const TunedBytes bytes = {writer.raw_bytes(), writer.stored_bytes()};
  QSF_RETURN_IF_ERROR(writer.finish());
  return bytes;
}

}  // namespace qsf
