// SPDX-License-Identifier: MIT

#include "convert/head/make_head_sketch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "convert/encode/encode_rows.h"
#include "convert/head/principal_axes.h"
#include "convert/head/sketch_errors.h"
#include "engine/engine.h"
#include "format/tensor_values.h"
#include "model/head_sketch.h"
#include "model/sketched_head.h"
#include "quant/codec.h"
#include "quant/fields.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

constexpr std::uint32_t kSampledRows = 512;  // that the bits of blocks are chosen by
constexpr BlockFormat kBasisFormat{QuantType::kF32, 4};
// By rising bits, none first, as choose_sketch_bits() takes them.
constexpr std::array<std::uint32_t, 5> kBits = {0, 2, 3, 4, 8};

std::optional<QuantType> type_of_bits(std::uint32_t bits) {
  switch (bits) {
    case 2: return QuantType::kQ2S;
    case 3: return QuantType::kQ3;
    case 4: return QuantType::kQ4;
    case 8: return QuantType::kQ8;
    default: return std::nullopt;
  }
}

BlockFormat format_of(QuantType type) {
  return {type, kSketchColumns};
}

// The head of a file: where it stands.
struct HeadPlace {
  const SectionDirectory* directory;
  std::uint32_t tensor;
  const TensorInfo& info() const { return directory->tensors[tensor]; }
};

HeadPlace find_head(const QsfReader& reader) {
  const bool tied = reader.spec().tied_head;
  const SectionDirectory& directory = tied ? reader.embedding() : reader.final_section();
  const auto tensor = directory.find(tied ? TensorKind::kTokenEmbedding : TensorKind::kHead);
  QSF_CHECK(tensor.has_value());  // check_tensors() saw it
  return {&directory, *tensor};
}

Status check_head(const QsfReader& reader) {
  const char* reason = SketchedHead::why_unbounded(reader);
  const QuantType type = find_head(reader).info().format.type;
  if (reason == nullptr && !is_float_type(type) && type != QuantType::kQ8) {
    reason = "the head has less than 8 bits a weight, of which no sketch saves enough";
  }
  if (reason == nullptr && reader.spec().embeds_only) reason = "this model has no output head";
  if (reason == nullptr) return ok_status();
  return unsupported("%s: --head-sketch: %s", reader.file().path().c_str(), reason);
}

// Replaces the values of a block by what a type keeps of them. Returns an upper bound of the
// squares of |scale * code| + |min|.
double round_block(std::optional<QuantType> type, std::span<const float> values,
                   std::span<float> rounded, MutableByteSpan bytes) {
  if (!type.has_value()) {
    ranges::fill(rounded, 0.0F);
    return 0.0;
  }
  const BlockFormat format = format_of(*type);
  encode_row(format, values, {}, bytes);
  decode_row(format, bytes, rounded);
  const BlockScale fields = row_block_scale(format, bytes, 0);
  const double least =
      std::abs(static_cast<double>(fields.min)) +
      std::abs(static_cast<double>(fields.scale)) * static_cast<double>(type_traits(*type).zero);
  double squares = 0.0;
  for (const float value : rounded) {
    const double most = std::abs(static_cast<double>(value)) + 2.0 * least;
    squares += most * most;
  }
  return squares;
}

std::uint64_t block_row_bytes(std::optional<QuantType> type) {
  return type.has_value() ? row_major_bytes(format_of(*type), kSketchColumns) : 0;
}

class SketchMaker {
 public:
  SketchMaker(std::vector<float> head, std::uint32_t n_rows, std::uint32_t n_cols,
              const HeadSketchOptions& options)
      : head_(std::move(head)), n_rows_(n_rows), n_cols_(n_cols), options_(options) {}

  // Returns the section, but for the head's checksum and row bytes that its caller knows.
  Result<std::vector<std::byte>> make(std::vector<float> axes, std::span<const double> hidden_norms,
                                      double row_bytes, std::uint32_t head_crc) {
    QSF_RETURN_IF_ERROR(choose_bits(axes, hidden_norms, row_bytes));
    sort_blocks(axes);
    QSF_ASSIGN_OR_RETURN(errors_, SketchErrors::create(std::move(axes), mean(), n_rows_, n_cols_));
    make_parts();
    QSF_RETURN_IF_ERROR(encode());
    HeadSketch sketch;
    sketch.head_crc = head_crc;
    sketch.errors = (*std::move(errors_)).finish();
    const std::vector<std::uint8_t> codes = std::move(sketch.errors.codes);
    sketch.codes = codes;
    lay_out(sketch);
    return write_head_sketch(sketch);
  }

 private:
  std::uint32_t n_blocks() const { return sketch_blocks(n_cols_); }
  std::uint32_t block_cols(std::uint32_t block) const {
    return std::min(kSketchColumns, n_cols_ - block * kSketchColumns);
  }
  std::span<const float> row(std::uint32_t r) const {
    return std::span(head_).subspan(std::size_t{r} * n_cols_, n_cols_);
  }

  std::vector<float> mean() const {
    std::vector<double> sums(n_cols_);
    for (std::uint32_t r = 0; r < n_rows_; ++r) {
      for (std::uint32_t i = 0; i < n_cols_; ++i) sums[i] += static_cast<double>(row(r)[i]);
    }
    std::vector<float> mean(n_cols_);
    for (std::uint32_t i = 0; i < n_cols_; ++i) mean[i] = static_cast<float>(sums[i] / n_rows_);
    return mean;
  }

  Status choose_bits(const std::vector<float>& axes, std::span<const double> hidden_norms,
                     double row_bytes) {
    QSF_ASSIGN_OR_RETURN(const SketchErrors turner,
                         SketchErrors::create(axes, mean(), n_rows_, n_cols_));
    std::vector<double> norms(n_blocks() * kBits.size());
    std::vector<double> turned(n_cols_);
    const std::uint32_t step = std::max(1U, n_rows_ / kSampledRows);
    std::array<float, kSketchColumns> values;
    std::array<float, kSketchColumns> rounded;
    std::array<std::byte, 2 * kSketchColumns> bytes;
    for (std::uint32_t r = 0; r < n_rows_; r += step) {
      turner.turn(row(r), turned);
      for (std::uint32_t block = 0; block < n_blocks(); ++block) {
        const std::uint32_t n = block_cols(block);
        for (std::uint32_t i = 0; i < n; ++i) {
          values[i] = static_cast<float>(turned[block * kSketchColumns + i]);
        }
        for (std::size_t choice = 0; choice < kBits.size(); ++choice) {
          const auto type = type_of_bits(kBits[choice]);
          const std::size_t n_bytes = block_row_bytes(type);
          round_block(type, {values.data(), n}, {rounded.data(), n}, {bytes.data(), n_bytes});
          double squares = 0.0;
          for (std::uint32_t i = 0; i < n; ++i) {
            const double error = static_cast<double>(values[i]) - static_cast<double>(rounded[i]);
            squares += error * error;
          }
          norms[block * kBits.size() + choice] += std::sqrt(squares);
        }
      }
    }
    std::array<double, kBits.size()> bytes_of;
    for (std::size_t i = 0; i < kBits.size(); ++i) {
      bytes_of[i] = 1.0 + static_cast<double>(block_row_bytes(type_of_bits(kBits[i])));
    }
    bits_ = choose_sketch_bits(hidden_norms, norms, kBits, bytes_of, options_.share * row_bytes);
    return ok_status();
  }

  // Orders blocks by falling bits; a narrower last one stays last, with the fewest bits of any.
  void sort_blocks(std::vector<float>& axes) {
    const bool is_narrow = n_cols_ % kSketchColumns != 0;
    if (is_narrow) bits_.back() = *ranges::min_element(bits_);
    std::vector<std::uint32_t> order(bits_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end() - (is_narrow ? 1 : 0),
                     [this](std::uint32_t a, std::uint32_t b) { return bits_[a] > bits_[b]; });
    std::vector<float> sorted;
    std::vector<std::uint32_t> bits;
    sorted.reserve(axes.size());
    for (const std::uint32_t block : order) {
      const auto first = axes.begin() + std::ptrdiff_t{block} * kSketchColumns * n_cols_;
      sorted.insert(sorted.end(), first, first + std::ptrdiff_t{block_cols(block)} * n_cols_);
      bits.push_back(bits_[block]);
    }
    axes = std::move(sorted);
    bits_ = std::move(bits);
    axes_ = axes;
  }

  void make_parts() {
    for (std::uint32_t block = 0; block < n_blocks(); ++block) {
      const auto type = type_of_bits(bits_[block]);
      if (parts_.empty() || parts_.back().type != type) {
        parts_.push_back({.first_col = block * kSketchColumns,
                          .n_cols = 0,
                          .type = type,
                          .basis = {},
                          .rows = {}});
      }
      parts_.back().n_cols += block_cols(block);
    }
    for (const SketchPart& part : parts_) {
      const std::uint64_t n =
          part.type.has_value() ? row_major_bytes(part.format(), part.n_cols) * n_rows_ : 0;
      rows_.emplace_back(static_cast<std::size_t>(n));
    }
  }

  // Rows are turned and rounded on threads, unit by unit; the errors of a unit are added in order.
  Status encode() {
    const unsigned n_threads = std::max(1U, options_.n_threads);
    const std::size_t n_at_once = std::size_t{n_threads} * 4 * kUnitRows;
    std::vector<double> turned(n_at_once * n_cols_);
    std::vector<float> rounded(n_at_once * n_cols_);
    std::vector<double> magnitudes(n_at_once);
    for (std::uint32_t first = 0; first < n_rows_; first += static_cast<std::uint32_t>(n_at_once)) {
      QSF_RETURN_IF_ERROR(check_cancelled(options_.cancel));
      const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(n_at_once, n_rows_ - first));
      QSF_RETURN_IF_ERROR(
          run_units((n + kUnitRows - 1) / kUnitRows, n_threads, [&](std::size_t unit) {
            const auto begin = static_cast<std::uint32_t>(unit * kUnitRows);
            for (std::uint32_t i = begin; i < std::min(begin + kUnitRows, n); ++i) {
              const std::span<double> its =
                  std::span(turned).subspan(std::size_t{i} * n_cols_, n_cols_);
              errors_->turn(row(first + i), its);
              magnitudes[i] = round_row(
                  first + i, its, std::span(rounded).subspan(std::size_t{i} * n_cols_, n_cols_));
            }
            return ok_status();
          }));
      for (std::uint32_t i = 0; i < n; ++i) {
        double squares = 0.0;
        for (const float value : row(first + i)) {
          squares += static_cast<double>(value) * static_cast<double>(value);
        }
        QSF_RETURN_IF_ERROR(
            errors_->add(first + i, std::span(turned).subspan(std::size_t{i} * n_cols_, n_cols_),
                         std::span(rounded).subspan(std::size_t{i} * n_cols_, n_cols_),
                         std::sqrt(squares) * (1.0 + 0x1.0p-30), magnitudes[i]));
      }
    }
    return ok_status();
  }

  // Returns the row's magnitude for SketchErrors::add().
  double round_row(std::uint32_t r, std::span<const double> turned, std::span<float> rounded) {
    double squares = 0.0;
    std::vector<float> values(turned.begin(), turned.end());
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const SketchPart& part = parts_[p];
      const std::size_t block_bytes = block_row_bytes(part.type);
      const std::size_t row_bytes = rows_[p].size() / n_rows_;
      for (std::uint32_t first = 0; first < part.n_cols; first += kSketchColumns) {
        const std::uint32_t n = std::min(kSketchColumns, part.n_cols - first);
        const MutableByteSpan bytes = MutableByteSpan(rows_[p]).subspan(
            r * row_bytes + first / kSketchColumns * block_bytes, block_bytes);
        squares += round_block(part.type, std::span(values).subspan(part.first_col + first, n),
                               rounded.subspan(part.first_col + first, n), bytes);
      }
    }
    return std::sqrt(squares) * (1.0 + 0x1.0p-30);
  }

  // Interleaves rows and basis, as kernels read them.
  void lay_out(HeadSketch& sketch) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      SketchPart& part = parts_[p];
      std::vector<std::byte>& basis = basis_.emplace_back(static_cast<std::size_t>(
          rows_bytes(kBasisFormat, Layout::kInterleaved, part.n_cols, n_cols_)));
      const std::uint64_t axis_bytes = row_major_bytes(kBasisFormat, n_cols_);
      std::vector<std::byte> axes(static_cast<std::size_t>(axis_bytes * part.n_cols));
      for (std::uint32_t i = 0; i < part.n_cols; ++i) {
        encode_row(kBasisFormat,
                   std::span(axes_).subspan(std::size_t{part.first_col + i} * n_cols_, n_cols_), {},
                   MutableByteSpan(axes).subspan(i * axis_bytes, axis_bytes));
      }
      interleave_rows(kBasisFormat, part.n_cols, n_cols_, axes, basis);
      part.basis = basis;
      if (!part.type.has_value()) continue;
      std::vector<std::byte> groups(static_cast<std::size_t>(
          rows_bytes(part.format(), Layout::kInterleaved, n_rows_, part.n_cols)));
      interleave_rows(part.format(), n_rows_, part.n_cols, rows_[p], groups);
      rows_[p] = std::move(groups);
      part.rows = rows_[p];
    }
    sketch.parts = parts_;
  }

  std::vector<float> head_;
  std::uint32_t n_rows_;
  std::uint32_t n_cols_;
  const HeadSketchOptions& options_;
  std::vector<std::uint32_t> bits_;  // of blocks
  std::vector<float> axes_;          // in the order of blocks
  std::optional<SketchErrors> errors_;
  std::vector<SketchPart> parts_;
  std::vector<std::vector<std::byte>> rows_;   // of parts
  std::vector<std::vector<std::byte>> basis_;  // the same
};

// What a calibration says of hidden rows.
struct HiddenRows {
  std::vector<float> axes;
  std::vector<double> block_norms;  // mean |(Q h)_b|
};

Result<HiddenRows> collect(const std::string& path, std::span<const TokenId> tokens,
                           const HeadSketchOptions& options) {
  EngineOptions engine_options;
  engine_options.n_threads = options.n_threads;
  engine_options.ram_budget_bytes = options.ram_budget_bytes;
  engine_options.head_mode = HeadMode::kFull;
  engine_options.max_context = options.context;
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::open(path, engine_options));
  const std::size_t n_cols = engine->spec().hidden;
  OuterProducts products(n_cols);
  std::vector<float> rows;
  for (std::size_t first = 0; first < tokens.size(); first += options.context) {
    QSF_RETURN_IF_ERROR(check_cancelled(options.cancel));
    const std::size_t n = std::min<std::size_t>(options.context, tokens.size() - first);
    QSF_RETURN_IF_ERROR(
        engine->normed_rows(tokens.subspan(first, n), [&](std::span<const float> row) {
          products.add(row.first(n_cols));
          rows.insert(rows.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(n_cols));
        }));
  }
  HiddenRows found;
  QSF_ASSIGN_OR_RETURN(found.axes, products.axes());
  found.block_norms.resize(sketch_blocks(static_cast<std::uint32_t>(n_cols)));
  // Of evenly spaced rows: means need few.
  constexpr std::size_t kSampled = 256;
  const std::size_t step = std::max<std::size_t>(1, products.n_rows() / kSampled);
  for (std::size_t r = 0; r < products.n_rows(); r += step) {
    const float* const row = &rows[r * n_cols];
    for (std::size_t block = 0; block < found.block_norms.size(); ++block) {
      double squares = 0.0;
      for (std::size_t i = block * kSketchColumns;
           i < std::min<std::size_t>((block + 1) * kSketchColumns, n_cols); ++i) {
        const float* const axis = &found.axes[i * n_cols];
        double sum = 0.0;
        for (std::size_t k = 0; k < n_cols; ++k) {
          sum += static_cast<double>(axis[k]) * static_cast<double>(row[k]);
        }
        squares += sum * sum;
      }
      found.block_norms[block] += std::sqrt(squares);
    }
  }
  return found;
}

}  // namespace

Status check_head_sketch(const std::string& path) {
  QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
  return check_head(reader);
}

Result<std::vector<std::byte>> make_head_sketch(const std::string& path,
                                                std::span<const TokenId> tokens,
                                                const HeadSketchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
  QSF_RETURN_IF_ERROR(check_head(reader));
  QSF_ASSIGN_OR_RETURN(HiddenRows hidden, collect(path, tokens, options));
  const HeadPlace place = find_head(reader);
  const TensorInfo& info = place.info();
  QSF_ASSIGN_OR_RETURN(std::vector<float> head,
                       read_tensor_values(reader, *place.directory, place.tensor));
  const double row_bytes = static_cast<double>(row_major_bytes(info.format, info.cols));
  return SketchMaker(std::move(head), info.rows, info.cols, options)
      .make(std::move(hidden.axes), hidden.block_norms, row_bytes,
            head_tiles_crc(*place.directory, place.tensor));
}

Status write_with_head_sketch(const std::string& path, ByteSpan section,
                              const HeadSketchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
  QSF_ASSIGN_OR_RETURN(QsfWriter writer, QsfWriter::create(path, reader.spec(),
                                                           {.compression = Compression::kNone,
                                                            .tile_bytes = options.tile_bytes}));
  std::vector<std::byte> stored;
  std::vector<std::byte> raw;
  for (const SectionDirectory& directory : reader.directories()) {
    QSF_RETURN_IF_ERROR(check_cancelled(options.cancel));
    writer.set_compression(directory.compression);
    QSF_RETURN_IF_ERROR(writer.begin_section(directory.kind, directory.layer, directory.tensors));
    if (writer.tiles().size() != directory.tiles.size()) {
      return internal_error("%s: %s: %zu tiles, expected %zu", path.c_str(),
                            section_label(directory.kind, directory.layer).c_str(),
                            directory.tiles.size(), writer.tiles().size());
    }
    for (std::uint32_t t = 0; t < directory.tiles.size(); ++t) {
      stored.resize(directory.tiles[t].stored_bytes);
      raw.resize(directory.tiles[t].raw_bytes);
      QSF_RETURN_IF_ERROR(reader.read_tile(directory, t, stored, raw));
      QSF_RETURN_IF_ERROR(writer.write_tile(raw));
    }
    QSF_RETURN_IF_ERROR(writer.end_section(directory.importance));
  }
  if (reader.tokenizer_bytes() != 0) {
    QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> tokenizer, reader.read_tokenizer());
    QSF_RETURN_IF_ERROR(writer.set_tokenizer(tokenizer));
  }
  QSF_RETURN_IF_ERROR(writer.add_section(kHeadSketchSection, section, /*required=*/false));
  return writer.finish();
}

Status add_head_sketch(const std::string& path, std::span<const TokenId> tokens,
                       const HeadSketchOptions& options) {
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> section,
                       make_head_sketch(path, tokens, options));
  return write_with_head_sketch(path, section, options);
}

}  // namespace qsf
