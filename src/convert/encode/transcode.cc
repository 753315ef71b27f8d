// SPDX-License-Identifier: MIT

#include "convert/encode/transcode.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "convert/choose/format_choice.h"
#include "convert/encode/encode_rows.h"
#include "convert/encode/saved_sections.h"
#include "convert/encode/transcode_progress.h"
#include "format/tile_plan.h"
#include "import/model_source.h"
#include "quant/base3.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "quant/search/trellis_search.h"

namespace qsf {
namespace {

// The weights of a tile; of a matrix, or of all tensors of one row.
std::uint64_t n_weights_of(const TilePlan& tile, std::span<const TensorInfo> infos) {
  if (tile.tensor != kOneRowTensors) return std::uint64_t{tile.n_rows} * infos[tile.tensor].cols;
  std::uint64_t n = 0;
  for (const TensorInfo& info : infos) n += info.rows == 1 ? info.cols : 0;
  return n;
}

class Transcoder {
 public:
  Transcoder(const ModelSource& source, const TranscodeOptions& options, FormatChoice& choice)
      : source_(source),
        options_(options),
        choice_(choice),
        sections_(sections_of(source.spec())),
        converting_("converting", source, options),
        cached_(options.max_cached_bytes),
        spec_(source.spec()) {}

  Result<TranscodeReport> write(const std::string& path, FileOps& ops);
  Result<std::uint64_t> file_bytes();
  // Whether write() failed at a row that the source could not keep.
  bool could_not_keep() const noexcept { return could_not_keep_; }

 private:
  SourcePlace place(std::size_t section, std::size_t index) const {
    return place_of(source_, sections_[section], index);
  }
  std::vector<TensorInfo> tensor_infos(std::size_t section) const;
  bool any_type_uses_importance() const;
  void describe();
  Status write_section(std::size_t section, QsfWriter& writer);
  Status encode_tile(std::size_t section, const TilePlan& tile, std::span<const TensorInfo> infos,
                     MutableByteSpan out, std::vector<ErrorSums>& sums);
  Status write_one_rows(std::size_t section, std::span<const TensorInfo> infos, MutableByteSpan out,
                        std::vector<ErrorSums>& sums);
  Status write_matrix_rows(std::size_t section, const TilePlan& tile, const TensorInfo& info,
                           MutableByteSpan out, ErrorSums& sums);
  Status keep_unit(const SourcePlace& t, const TensorInfo& info, RowRange rows,
                   MutableByteSpan out) const;
  Result<const GptqFactor*> factor_of(std::size_t section, std::size_t index) const;
  void report_section(std::size_t section, std::span<const TensorInfo> infos,
                      std::span<const ErrorSums> sums);

  const ModelSource& source_;
  const TranscodeOptions& options_;
  FormatChoice& choice_;
  std::vector<SectionId> sections_;
  StageProgress converting_;
  CachedBytes cached_;
  ModelSpec spec_;
  bool could_not_keep_ = false;
  TranscodeReport report_;
};

// Reads rows as the source keeps them and brings them into the layout of the file. Their bytes are
// a stranger's, so they are held to what the format may contain.
Status Transcoder::keep_unit(const SourcePlace& t, const TensorInfo& info, RowRange rows,
                             MutableByteSpan out) const {
  const std::size_t n_cols = t.source->cols;
  const SectionId id = t.section;
  const BlockFormat own = *source_.kept_format(id.kind, id.layer, t.index);
  const std::size_t own_bytes = row_major_bytes(own, n_cols);
  std::vector<std::byte> read(rows.n * own_bytes);
  QSF_RETURN_IF_ERROR(source_.read_kept_rows(id.kind, id.layer, t.index, rows.first, rows.n, read));
  QSF_RETURN_IF_ERROR(
      check_blocks(own, Layout::kRowMajor, rows.n, n_cols, read).with_context(t.full_name()));
  if (own != info.format) {
    const std::size_t n_bytes = row_major_bytes(info.format, n_cols);
    std::vector<std::byte> repacked(rows.n * n_bytes);
    for (std::size_t r = 0; r < rows.n; ++r) {
      repack_ternary_row(own, info.format, n_cols, ByteSpan(read).subspan(r * own_bytes, own_bytes),
                         MutableByteSpan(repacked).subspan(r * n_bytes, n_bytes));
    }
    read = std::move(repacked);
  }
  lay_out_rows(info.format, info.layout, rows.n, n_cols, read, out);
  return ok_status();
}

std::vector<TensorInfo> Transcoder::tensor_infos(std::size_t section) const {
  std::vector<TensorInfo> infos;
  for (std::size_t i = 0; i < choice_.sections[section].size(); ++i) {
    const SourceTensor& t = *place(section, i).source;
    const Layout layout = t.rows == 1 ? Layout::kRowMajor : options_.layout;
    infos.push_back(
        {t.kind, t.rows, t.cols, choice_.sections[section][i].format, layout, t.expert});
  }
  return infos;
}

Status Transcoder::write_one_rows(std::size_t section, std::span<const TensorInfo> infos,
                                  MutableByteSpan out, std::vector<ErrorSums>& sums) {
  std::fill(out.begin(), out.end(), std::byte{0});
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].rows != 1) continue;
    QSF_ASSIGN_OR_RETURN(
        const EncodedRows encoded,
        encode_rows(source_, place(section, i), {infos[i].format, {}, nullptr}, {0, 1}));
    std::copy(encoded.bytes.begin(), encoded.bytes.end(),
              out.begin() + static_cast<std::ptrdiff_t>(one_row_offset(infos, i)));
    sums[i].add(encoded.sums);
  }
  return ok_status();
}

Result<std::uint64_t> Transcoder::file_bytes() {
  describe();
  std::uint64_t sum = other_file_bytes(spec_, options_.tokenizer.size());
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    QSF_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                         section_file_bytes(tensor_infos(s), options_.tile_bytes));
    sum += bytes;
  }
  return sum;
}

// Returns the factor of a matrix for error compensation; null for matrices without it.
Result<const GptqFactor*> Transcoder::factor_of(std::size_t section, std::size_t index) const {
  const SectionId id = sections_[section];
  const TensorChoice& chosen = choice_.sections[section][index];
  if (options_.compensation == nullptr || chosen.natively_ternary ||
      is_float_type(chosen.format.type)) {
    return nullptr;
  }
  const SourceTensor& t = *place(section, index).source;
  return options_.compensation->factor_of(t.kind, id.layer, t.cols);
}

Status Transcoder::write_matrix_rows(std::size_t section, const TilePlan& tile,
                                     const TensorInfo& info, MutableByteSpan out, ErrorSums& sums) {
  const SourcePlace t = place(section, tile.tensor);
  const bool keep = choice_.sections[section][tile.tensor].kept && !is_float_type(info.format.type);
  RowEncoding encoding = {info.format, quant_options(options_.rounding, options_.importance, t),
                          nullptr};
  if (!keep) {
    QSF_ASSIGN_OR_RETURN(encoding.factor, factor_of(section, tile.tensor));
  }
  const std::uint32_t unit_rows =
      encoding.factor != nullptr ? gptq_unit_rows(tile.n_rows, options_.n_threads) : kUnitRows;
  std::vector<ErrorSums> parts(ceil_div(tile.n_rows, unit_rows));
  Status done = run_units(parts.size(), options_.n_threads, [&](std::size_t unit) -> Status {
    const auto row = static_cast<std::uint32_t>(unit * unit_rows);
    const RowRange rows = {tile.first_row + row, std::min(unit_rows, tile.n_rows - row)};
    const auto laid_out = out.subspan(tile_bytes(info, row), tile_bytes(info, rows.n));
    if (keep) return keep_unit(t, info, rows, laid_out);
    QSF_ASSIGN_OR_RETURN(const EncodedRows encoded, encode_rows(source_, t, encoding, rows));
    lay_out_rows(info.format, info.layout, rows.n, info.cols, encoded.bytes, laid_out);
    parts[unit] = encoded.sums;
    return ok_status();
  });
  could_not_keep_ = keep && done.code() == StatusCode::kUnsupported;
  QSF_RETURN_IF_ERROR(std::move(done));
  for (const ErrorSums& part : parts) sums.add(part);
  return ok_status();
}

Status Transcoder::encode_tile(std::size_t section, const TilePlan& tile,
                               std::span<const TensorInfo> infos, MutableByteSpan out,
                               std::vector<ErrorSums>& sums) {
  if (tile.tensor == kOneRowTensors) return write_one_rows(section, infos, out, sums);
  return write_matrix_rows(section, tile, infos[tile.tensor], out, sums[tile.tensor]);
}

Status Transcoder::write_section(std::size_t section, QsfWriter& writer) {
  const SectionId id = sections_[section];
  const std::vector<TensorInfo> infos = tensor_infos(section);
  std::vector<ErrorSums> sums(infos.size());
  QSF_RETURN_IF_ERROR(writer.begin_section(id.kind, id.layer, infos));
  const SectionPlan plan = {id, infos, choice_.sections[section], writer.tiles()};
  std::optional<SavedSection> before;  // is read, or
  std::optional<SectionSaver> saver;   // is written, where sections are saved
  if (options_.saved != nullptr) {
    QSF_ASSIGN_OR_RETURN(before, options_.saved->find(plan));
    if (!before) {
      QSF_ASSIGN_OR_RETURN(saver, options_.saved->begin(plan));
    }
  }
  std::vector<std::byte> raw;
  for (const TilePlan& tile : writer.tiles()) {
    QSF_RETURN_IF_ERROR(check_cancelled(options_.cancel));
    raw.resize(tile.raw_bytes);
    if (before) {
      QSF_RETURN_IF_ERROR(before->read_tile(raw));
    } else {
      QSF_RETURN_IF_ERROR(encode_tile(section, tile, infos, raw, sums));
    }
    QSF_RETURN_IF_ERROR(writer.write_tile(raw));
    if (saver) QSF_RETURN_IF_ERROR(saver->add_tile(raw));
    const std::uint64_t n_weights = n_weights_of(tile, infos);
    converting_.add(n_weights);
    // Weights take 4 bytes in the source at most, its blocks less.
    const std::uint64_t n_read = sizeof(float) * n_weights;
    if (cached_.is_due(n_read + (saver ? 2 : 1) * tile.raw_bytes)) {
      source_.drop_cached();
      if (before) before->drop_cached();
      QSF_RETURN_IF_ERROR(writer.drop_cached());
      if (saver) QSF_RETURN_IF_ERROR(saver->drop_cached());
    }
    converting_.report(id);
  }
  if (before) {
    ranges::copy(before->sums(), sums.begin());
    before->drop_cached();
  }
  if (saver) QSF_RETURN_IF_ERROR(saver->finish(sums));
  report_section(section, infos, sums);
  const bool is_layer = id.kind == SectionKind::kLayer && !options_.layer_importance.empty();
  return writer.end_section(is_layer ? options_.layer_importance[id.layer] : 0.0F);
}

void Transcoder::report_section(std::size_t section, std::span<const TensorInfo> infos,
                                std::span<const ErrorSums> sums) {
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const SourcePlace t = place(section, i);
    TensorReport report;
    report.section = t.section.label();
    report.kind = infos[i].kind;
    report.source_name = t.source->name;
    report.source_type = t.source->type;
    report.rows = infos[i].rows;
    report.cols = infos[i].cols;
    report.format = infos[i].format;
    report.kept = choice_.sections[section][i].kept;
    report.bits_per_weight = 8.0 * static_cast<double>(tile_bytes(infos[i], infos[i].rows)) /
                             static_cast<double>(t.n_weights());
    report.relative_error = sums[i].relative_error();
    report.cosine = sums[i].cosine();
    report_.n_weights += t.n_weights();
    report_.tensors.push_back(std::move(report));
  }
}

// Returns whether column importance or error compensation affects any code of the file.
bool Transcoder::any_type_uses_importance() const {
  const bool searches = options_.importance != nullptr && options_.rounding == Rounding::kSearch;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t i = 0; i < choice_.sections[s].size(); ++i) {
      const TensorChoice& chosen = choice_.sections[s][i];
      const SourceTensor& t = *place(s, i).source;
      if (chosen.kept || chosen.natively_ternary || is_float_type(chosen.format.type)) continue;
      if (options_.compensation != nullptr && sections_[s].kind == SectionKind::kLayer) return true;
      if (searches && uses_importance(chosen.format.type) &&
          !options_.importance->find({t.kind, sections_[s].layer, t.expert}, t.cols).empty()) {
        return true;
      }
    }
  }
  return false;
}

// Fills in what a conversion decides of the file's description.
void Transcoder::describe() {
  const bool by_tensor = options_.formats != nullptr;
  spec_.default_type = by_tensor || options_.preset == QuantPreset::kKeep
                           ? choice_.common_matrix_type(source_)
                           : preset_default_type(options_.preset);
  spec_.int8_rows = spec_.int8_rows || options_.int8_rows;
  spec_.block = options_.block;
  const std::string types = by_tensor ? "types by tensor"
                                      : std::string(quant_preset_name(options_.preset)) +
                                            ", blocks of " + std::to_string(options_.block);
  const std::string& before = source_.spec().quantiser;
  spec_.quantiser = options_.program + (options_.program.empty() ? "" : ": ") + types +
                    (before.empty() ? "" : ", " + before);
  spec_.natively_ternary = choice_.natively_ternary;
  spec_.calibrated = any_type_uses_importance();
  if (!options_.expert_hits.empty()) {
    spec_.expert_hits.assign(options_.expert_hits.begin(), options_.expert_hits.end());
  }
}

Result<TranscodeReport> Transcoder::write(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(const std::uint64_t bytes, file_bytes());
  if (options_.on_size) QSF_RETURN_IF_ERROR(options_.on_size(bytes));
  report_.warnings = choice_.warnings;
  report_.widened = choice_.widened;
  QSF_ASSIGN_OR_RETURN(
      QsfWriter writer,
      QsfWriter::create(path, spec_, {options_.compression, options_.tile_bytes}, ops));
  if (!options_.tokenizer.empty()) QSF_RETURN_IF_ERROR(writer.set_tokenizer(options_.tokenizer));
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    QSF_RETURN_IF_ERROR(write_section(s, writer));
  }
  report_.raw_bytes = writer.raw_bytes();
  report_.stored_bytes = writer.stored_bytes();
  QSF_RETURN_IF_ERROR(check_cancelled(options_.cancel));
  QSF_RETURN_IF_ERROR(writer.finish());
  if (spec_.natively_ternary && !spec_.int8_rows) {
    report_.warnings.push_back(
        "all layer matrices are ternary, but the input does not say whether the model was trained "
        "with int8 activations, as BitNet models are; if so, convert it with --int8-rows");
  }
  return std::move(report_);
}

Status check_options(const ModelSource& source, const TranscodeOptions& options) {
  QSF_CHECK(scale_form(options.native_ternary) == ScaleForm::kRow);
  QSF_CHECK(options.layer_importance.empty() ||
            options.layer_importance.size() == source.spec().n_layers);
  if (options.n_threads < 1 || !is_valid({QuantType::kQ4, options.block})) {
    return invalid_argument(
        "%u threads, blocks of %u; expected at least 1 thread and blocks of 32, 64, 128 or 256",
        options.n_threads, options.block);
  }
  const BlockFormat format = preset_format(options.preset, TensorKind::kAttnQ, options.block);
  if (!is_valid(format)) {
    return invalid_argument("blocks of %u with %s, expected 32 or 64", options.block,
                            std::string(quant_preset_name(options.preset)).c_str());
  }
  if (options.vocabulary_type && !is_valid(block_format(*options.vocabulary_type, options.block))) {
    return invalid_argument("blocks of %u with %s for the vocabulary, expected 32 or 64",
                            options.block,
                            std::string(quant_type_name(*options.vocabulary_type)).c_str());
  }
  return ok_status();
}

}  // namespace

namespace {

// Whether a path through a trellis may be searched, whose memory grows with the columns of a row.
bool may_search_trellis(const TranscodeOptions& options) noexcept {
  const auto is_trellis = [](const std::optional<QuantType>& type) {
    return type && is_trellis_type(*type);
  };
  return options.formats != nullptr || is_trellis(options.preset.type()) ||
         is_trellis(options.vocabulary_type);
}

}  // namespace

std::uint64_t transcode_memory_bytes(const ModelSource& source, const TranscodeOptions& options,
                                     bool compensates) {
  // The bytes of a unit: weights, encoded rows, and rows in the layout of the file.
  constexpr std::uint64_t kBytesPerWeight = 4 * sizeof(float);
  constexpr std::uint64_t kTileCopies = 3;  // as it is, compressed, with room for what does not
  const std::uint64_t unit_rows = compensates ? kGptqRows : kUnitRows;
  std::uint64_t max_cols = 0;
  std::uint64_t row_bytes = 0;
  for (const SourcePlace& t : tensors_of(source)) {
    max_cols = std::max<std::uint64_t>(max_cols, t.source->cols);
    row_bytes = std::max<std::uint64_t>(row_bytes, sizeof(float) * kTileRowAlign * t.source->cols);
  }
  const std::uint64_t search_bytes =
      may_search_trellis(options) ? max_cols * kTrellisSearchBytesPerColumn : 0;
  return options.n_threads *
             (unit_rows * max_cols * kBytesPerWeight + search_bytes + source.read_buffer_bytes()) +
         kTileCopies * std::max(options.tile_bytes, row_bytes) + source.resident_bytes();
}

Result<std::uint64_t> transcoded_bytes(const ModelSource& source, const TranscodeOptions& options) {
  QSF_RETURN_IF_ERROR(check_options(source, options));
  QSF_ASSIGN_OR_RETURN(FormatChoice choice, choose_formats(source, options));
  return Transcoder(source, options, choice).file_bytes();
}

Result<TranscodeReport> transcode(const ModelSource& source, const std::string& path,
                                  const TranscodeOptions& options, FileOps& ops) {
  QSF_RETURN_IF_ERROR(check_options(source, options));
  QSF_ASSIGN_OR_RETURN(FormatChoice choice, choose_formats(source, options));
  Transcoder transcoder(source, options, choice);
  auto report = transcoder.write(path, ops);
  if (report || !transcoder.could_not_keep()) return report;
  QSF_ASSIGN_OR_RETURN(const bool again, give_up_keeping(source, options, choice));
  if (!again) return report;
  return Transcoder(source, options, choice).write(path, ops);
}

}  // namespace qsf
