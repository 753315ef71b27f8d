// SPDX-License-Identifier: MIT

#include "convert/choose/format_choice.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "convert/encode/encode_rows.h"
#include "convert/encode/transcode_progress.h"
#include "quant/base3.h"
#include "quant/codec.h"
#include "quant/ternary.h"

namespace qsf {
namespace {

// The format of read_kept_rows(). Requires  the source keeps the tensor
BlockFormat source_format(const ModelSource& source, const SourcePlace& t) noexcept {
  return *source.kept_format(t.section.kind, t.section.layer, t.index);
}

// Reads all rows of a tensor whose blocks are kept, unit by unit, and calls look(bytes, n_rows).
template <typename Look>
Status read_all_kept(const ModelSource& source, const TranscodeOptions& options,
                     const SourcePlace& t, BlockFormat format, const Look& look) {
  const std::uint32_t n_rows = t.source->rows;
  return run_units(ceil_div(n_rows, kUnitRows), options.n_threads, [&](std::size_t unit) {
    QSF_RETURN_IF_ERROR(check_cancelled(options.cancel));
    const auto row = static_cast<std::uint32_t>(unit * kUnitRows);
    const std::uint32_t n = std::min(kUnitRows, n_rows - row);
    std::vector<std::byte> bytes(n * row_major_bytes(format, t.source->cols));
    QSF_RETURN_IF_ERROR(
        source.read_kept_rows(t.section.kind, t.section.layer, t.index, row, n, bytes));
    look(bytes, n);
    return ok_status();
  });
}

class FormatChooser {
 public:
  FormatChooser(const ModelSource& source, const TranscodeOptions& options)
      : source_(source),
        options_(options),
        measuring_("measuring", source, options),
        cached_(options.max_cached_bytes) {}

  Result<FormatChoice> run();
  // The format of a matrix before anything is measured or kept.
  BlockFormat planned_format(const SourcePlace& t) const;
  // Whether an option names the format of the tensor, overriding the preset.
  bool is_asked_for(const SourcePlace& t) const;
  void warn_of_requantised(FormatChoice& choice) const;

 private:
  bool asks_ternary() const noexcept {
    return options_.preset == QuantType::kTernary || options_.preset == QuantType::kTernaryRow;
  }
  // Whether matrices of layers are checked for native ternary weights.
  bool scans() const noexcept { return asks_ternary() || options_.preset == QuantPreset::kMixed; }
  QuantType native_ternary() const noexcept {
    return options_.preset == QuantType::kTernaryRow ? QuantType::kTernaryRow
                                                     : options_.native_ternary;
  }
  Result<TensorChoice> choose(const SourcePlace& t);
  Result<TensorChoice> choose_one_row(const SourcePlace& t) const;
  Result<TensorChoice> choose_kept(const SourcePlace& t) const;
  Result<BlockFormat> choose_mixed(const SourcePlace& t, BlockFormat format);
  Result<bool> has_row_scales(const SourcePlace& t, BlockFormat format) const;
  void conclude(FormatChoice& choice) const;

  const ModelSource& source_;
  const TranscodeOptions& options_;
  StageProgress measuring_;
  CachedBytes cached_;
  std::vector<std::string> widened_;
};

bool FormatChooser::is_asked_for(const SourcePlace& t) const {
  return (options_.vocabulary_type && is_vocabulary(t.source->kind)) ||
         (options_.formats != nullptr &&
          options_.formats->find(t.source->kind, t.section.layer).has_value());
}

BlockFormat FormatChooser::planned_format(const SourcePlace& t) const {
  const TensorKind kind = t.source->kind;
  if (options_.formats != nullptr) {
    if (const auto format = options_.formats->find(kind, t.section.layer)) return *format;
  }
  if (options_.vocabulary_type && is_vocabulary(kind)) {
    return block_format(*options_.vocabulary_type, options_.block);
  }
  return preset_format(options_.preset, kind, options_.block);
}

// Returns whether every row of a tensor of ternary blocks has one scale. Rows that the source
// cannot keep are found later, when they are written.
Result<bool> FormatChooser::has_row_scales(const SourcePlace& t, BlockFormat format) const {
  std::atomic<bool> all{true};
  Status status = read_all_kept(source_, options_, t, format,
                                [&](const std::vector<std::byte>& bytes, std::uint32_t n_rows) {
                                  const std::size_t n_bytes = bytes.size() / n_rows;
                                  for (std::uint32_t r = 0; r < n_rows && all; ++r) {
                                    const auto one = ByteSpan(bytes).subspan(r * n_bytes, n_bytes);
                                    if (!has_one_ternary_scale(format, t.source->cols, one))
                                      all = false;
                                  }
                                });
  if (status.code() == StatusCode::kUnsupported) return false;
  QSF_RETURN_IF_ERROR(std::move(status));
  return all.load();
}

// Keeps the blocks of the source where a type can hold them.
Result<TensorChoice> FormatChooser::choose_kept(const SourcePlace& t) const {
  TensorChoice choice = {.format = planned_format(t)};
  auto own = source_.kept_format(t.section.kind, t.section.layer, t.index);
  if (own && is_asked_for(t) && own->type != choice.format.type) own.reset();
  if (own) {
    bool by_row = own->type == QuantType::kTernaryRow;
    if (own->type == QuantType::kTernary) {
      QSF_ASSIGN_OR_RETURN(by_row, has_row_scales(t, *own));
    }
    choice.format = by_row ? block_format(options_.native_ternary, 0) : *own;
  }
  // Ternary weights stored as floats take a tenth of the bits in a ternary type.
  const bool floats = !own || is_float_type(own->type);
  if (floats && t.section.kind == SectionKind::kLayer && !is_asked_for(t)) {
    QSF_ASSIGN_OR_RETURN(choice.natively_ternary, is_natively_ternary(source_, t));
    if (choice.natively_ternary) {
      choice.format = block_format(options_.native_ternary, 0);
      own.reset();
    }
  }
  choice.kept = own.has_value();
  return choice;
}

Result<BlockFormat> FormatChooser::choose_mixed(const SourcePlace& t, BlockFormat format) {
  const QuantType planned = format.type;
  const MeasureOptions measure = {.n_threads = options_.n_threads, .cancel = options_.cancel};
  for (;;) {
    const RowEncoding encoding = {format, quant_options(options_.rounding, options_.importance, t),
                                  nullptr};
    QSF_ASSIGN_OR_RETURN(const ErrorSums sums, measure_errors(source_, t, encoding, measure));
    if (sums.cosine() >= kLowCosine) break;
    const std::optional<BlockFormat> wider = wider_format(format);
    if (!wider) break;
    format = *wider;
  }
  if (format.type != planned) {
    widened_.push_back(t.full_name() + ": " + std::string(quant_type_name(planned)) +
                       ": cosine with the original below 0.99; widened to " +
                       std::string(quant_type_name(format.type)));
  }
  return format;
}

Result<TensorChoice> FormatChooser::choose_one_row(const SourcePlace& t) const {
  std::vector<float> values(t.source->cols);
  QSF_RETURN_IF_ERROR(source_.read_rows(t.section.kind, t.section.layer, t.index, 0, values));
  const QuantType type = f16_holds_exactly(values) ? QuantType::kF16 : QuantType::kF32;
  return TensorChoice{.format = block_format(type, 0)};
}

Result<TensorChoice> FormatChooser::choose(const SourcePlace& t) {
  if (t.source->rows == 1) return choose_one_row(t);
  if (options_.preset == QuantPreset::kKeep) return choose_kept(t);
  TensorChoice choice = {.format = planned_format(t)};
  if (!scans() || is_asked_for(t)) return choice;
  QSF_RETURN_IF_ERROR(check_cancelled(options_.cancel));
  if (t.section.kind == SectionKind::kLayer) {
    QSF_ASSIGN_OR_RETURN(choice.natively_ternary, is_natively_ternary(source_, t));
    if (choice.natively_ternary) {
      choice.format = block_format(native_ternary(), 0);
      return choice;
    }
  }
  if (options_.preset == QuantPreset::kMixed && !is_float_type(choice.format.type)) {
    QSF_ASSIGN_OR_RETURN(choice.format, choose_mixed(t, choice.format));
  }
  return choice;
}

Result<FormatChoice> FormatChooser::run() {
  FormatChoice choice;
  for (const SectionId id : sections_of(source_.spec())) {
    std::vector<TensorChoice>& section = choice.sections.emplace_back();
    const std::size_t n = source_.tensors(id.kind, id.layer).size();
    for (std::size_t i = 0; i < n; ++i) {
      const SourcePlace t = place_of(source_, id, i);
      QSF_ASSIGN_OR_RETURN(const TensorChoice chosen, choose(t));
      section.push_back(chosen);
      measuring_.add(t.n_weights());
      if (cached_.is_due(sizeof(float) * t.n_weights())) source_.drop_cached();
      if (scans()) measuring_.report(id);
    }
  }
  choice.widened = std::move(widened_);
  conclude(choice);
  return choice;
}

// Conclusions from all tensors together.
void FormatChooser::conclude(FormatChoice& choice) const {
  std::size_t n_matrices = 0;
  std::size_t n_ternary = 0;
  std::size_t n_exact = 0;
  for (std::size_t layer = 1; layer + 1 < choice.sections.size(); ++layer) {
    const auto id = SectionId{SectionKind::kLayer, static_cast<std::uint32_t>(layer - 1)};
    for (std::size_t i = 0; i < choice.sections[layer].size(); ++i) {
      const TensorChoice& chosen = choice.sections[layer][i];
      if (place_of(source_, id, i).source->rows == 1) continue;
      ++n_matrices;
      n_ternary += chosen.natively_ternary ? 1 : 0;
      n_exact += chosen.natively_ternary || (chosen.kept && is_ternary(chosen.format.type)) ? 1 : 0;
    }
  }
  choice.natively_ternary = n_matrices > 0 && n_exact == n_matrices;
  if (options_.preset == QuantPreset::kKeep) warn_of_requantised(choice);
  if (asks_ternary() && n_ternary < n_matrices) {
    choice.warnings.push_back(std::to_string(n_matrices - n_ternary) + " of " +
                              std::to_string(n_matrices) +
                              " matrices are not natively ternary; a model trained without "
                              "ternary weights is unusable in this type");
  }
}

// One line for each pair of types, in the order of the file.
void FormatChooser::warn_of_requantised(FormatChoice& choice) const {
  struct Pair {
    std::string source_type;
    QuantType type;
    std::size_t n_tensors;
  };
  std::vector<Pair> pairs;
  const std::vector<SectionId> ids = sections_of(source_.spec());
  for (std::size_t s = 0; s < ids.size(); ++s) {
    for (std::size_t i = 0; i < choice.sections[s].size(); ++i) {
      const SourcePlace t = place_of(source_, ids[s], i);
      const TensorChoice& chosen = choice.sections[s][i];
      if (chosen.kept || t.source->rows == 1 || is_ternary(chosen.format.type)) continue;
      if (is_asked_for(t)) continue;
      const auto same = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) {
        return pair.source_type == t.source->type && pair.type == chosen.format.type;
      });
      if (same != pairs.end()) {
        ++same->n_tensors;
      } else {
        pairs.push_back({t.source->type, chosen.format.type, 1});
      }
    }
  }
  for (const Pair& pair : pairs) {
    choice.warnings.push_back(std::to_string(pair.n_tensors) + " matrices of " +
                              (pair.source_type.empty() ? "an unknown type" : pair.source_type) +
                              " cannot be kept bit for bit: requantised to " +
                              std::string(quant_type_name(pair.type)));
  }
}

}  // namespace

std::optional<QuantType> FormatChoice::common_matrix_type(const ModelSource& source) const {
  std::optional<QuantType> common;
  const std::vector<SectionId> ids = sections_of(source.spec());
  for (std::size_t s = 0; s < ids.size(); ++s) {
    for (std::size_t i = 0; i < sections[s].size(); ++i) {
      if (place_of(source, ids[s], i).source->rows == 1) continue;
      if (common && *common != sections[s][i].format.type) return std::nullopt;
      common = sections[s][i].format.type;
    }
  }
  return common;
}

Result<FormatChoice> choose_formats(const ModelSource& source, const TranscodeOptions& options) {
  return FormatChooser(source, options).run();
}

// A block that no type can hold is rare, and a search would read every file twice, so it starts
// only when writing has hit the first one.
Result<bool> give_up_keeping(const ModelSource& source, const TranscodeOptions& options,
                             FormatChoice& choice) {
  const FormatChooser chooser(source, options);
  choice.warnings.clear();
  bool found = false;
  const std::vector<SectionId> ids = sections_of(source.spec());
  for (std::size_t s = 0; s < ids.size(); ++s) {
    for (std::size_t i = 0; i < choice.sections[s].size(); ++i) {
      TensorChoice& chosen = choice.sections[s][i];
      if (!chosen.kept || is_float_type(chosen.format.type)) continue;
      const SourcePlace t = place_of(source, ids[s], i);
      const Status status =
          read_all_kept(source, options, t, source_format(source, t),
                        [](const std::vector<std::byte>& /*bytes*/, std::uint32_t /*n_rows*/) {});
      if (status.ok()) continue;
      if (status.code() != StatusCode::kUnsupported) return status;
      if (is_ternary(chosen.format.type)) choice.natively_ternary = false;
      chosen.kept = false;
      chosen.format = chooser.planned_format(t);
      choice.warnings.push_back(std::string(status.message()) + "; stored as " +
                                std::string(quant_type_name(chosen.format.type)));
      found = true;
    }
  }
  chooser.warn_of_requantised(choice);
  return found;
}

// Reads until a second magnitude appears; other weights have one in the first row.
Result<bool> is_natively_ternary(const ModelSource& source, const SourcePlace& tensor) {
  TernaryScan scan;
  std::vector<float> weights;
  const SourceTensor& t = *tensor.source;
  for (std::uint32_t row = 0; row < t.rows; row += kUnitRows) {
    const std::uint32_t n_rows = std::min(kUnitRows, t.rows - row);
    weights.resize(std::size_t{n_rows} * t.cols);
    QSF_RETURN_IF_ERROR(
        source.read_rows(tensor.section.kind, tensor.section.layer, tensor.index, row, weights));
    scan.add(weights);
    if (scan.magnitude() > 0.0F && !scan.is_natively_ternary()) break;
  }
  return scan.is_natively_ternary();
}

}  // namespace qsf
