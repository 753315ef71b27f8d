// SPDX-License-Identifier: MIT

#include "import/transcode.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/cosine.h"
#include "base/f16.h"
#include "base/run_on_threads.h"
#include "format/file_size.h"
#include "quant/base3.h"
#include "quant/codec.h"
#include "quant/floats.h"
#include "quant/interleave.h"
#include "quant/ternary.h"

namespace qsf {
namespace {

constexpr std::uint32_t kUnitRows = kTileRowAlign;      // rows that one thread takes at a time
constexpr std::uint32_t kFeedbackUnitRows = kGptqRows;  // the same where errors are fed back
static_assert(kFeedbackUnitRows % kRowGroup == 0);

struct SectionId {
  SectionKind kind;
  std::uint32_t layer;
};

// Sums over weights w and decoded weights q; added up in the order of rows, so that reports do not
// depend on threads.
struct ErrorSums {
  double ww = 0.0;
  double qq = 0.0;
  double wq = 0.0;
  double dd = 0.0;

  void add(std::span<const float> w, std::span<const float> q) noexcept {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double a = w[i];
      const double b = q[i];
      ww += a * a;
      qq += b * b;
      wq += a * b;
      dd += (a - b) * (a - b);
    }
  }
  void add(const ErrorSums& other) noexcept {
    ww += other.ww;
    qq += other.qq;
    wq += other.wq;
    dd += other.dd;
  }
  double relative_error() const noexcept { return ww > 0.0 ? std::sqrt(dd / ww) : 0.0; }
  double cosine() const noexcept { return cosine_of_sums(wq, ww, qq); }
};

// An exception that left a thread would end the process and leave the temporary file behind.
template <typename Work>
Status run_unit(const Work& work, std::size_t unit) {
  try {
    return work(unit);
  } catch (const std::bad_alloc&) {
    return out_of_budget("not enough memory to convert %u rows; use fewer threads", kUnitRows);
  }
}

// Runs work(0) .. work(n - 1) on up to n_threads threads. Returns the failure of the lowest number,
// whichever thread finished first.
template <typename Work>
Status run_units(std::size_t n_units, unsigned n_threads, const Work& work) {
  std::vector<Status> statuses(n_units);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto loop = [&] {
    // A unit that was taken is always done and units are taken in order, so the lowest failing one
    // is the same at any number of threads.
    while (!failed) {
      const std::size_t unit = next++;
      if (unit >= n_units) return;
      statuses[unit] = run_unit(work, unit);
      if (!statuses[unit].ok()) failed = true;
    }
  };
  run_on_threads(std::clamp<std::size_t>(n_units, 1, n_threads), loop);
  for (Status& status : statuses) QSF_RETURN_IF_ERROR(std::move(status));
  return ok_status();
}

bool is_vocabulary(TensorKind kind) noexcept {
  return kind == TensorKind::kTokenEmbedding || kind == TensorKind::kHead;
}

bool is_ternary(QuantType type) noexcept {
  return type == QuantType::kTernary || scale_form(type) == ScaleForm::kRow;
}

class Transcoder {
 public:
  Transcoder(const ModelSource& source, const TranscodeOptions& options)
      : source_(source), options_(options), spec_(source.spec()) {
    sections_.push_back({SectionKind::kEmbedding, 0});
    for (std::uint32_t i = 0; i < spec_.n_layers; ++i)
      sections_.push_back({SectionKind::kLayer, i});
    sections_.push_back({SectionKind::kFinal, 0});
  }

  Status choose_formats();
  Result<TranscodeReport> write(const std::string& path, FileOps& ops);
  // After write() failed: gives up keeping the blocks that cannot be held exactly. Returns whether
  // there were any, so that writing once more makes sense.
  Result<bool> give_up_keeping();

 private:
  struct Tensor {
    SectionId section;
    std::size_t index;
    const SourceTensor* source;
    std::uint64_t weights() const noexcept { return std::uint64_t{source->rows} * source->cols; }
  };

  Tensor tensor(std::size_t section, std::size_t index) const {
    const SectionId id = sections_[section];
    return {id, index, &source_.tensors(id.kind, id.layer)[index]};
  }
  // Whether the user has said what becomes of the tensor, whatever the preset.
  bool is_asked_for(const Tensor& t) const noexcept {
    return options_.vocabulary_type && is_vocabulary(t.source->kind);
  }
  // The format of a tensor before anything is measured or kept.
  BlockFormat planned_format(const Tensor& t) const noexcept {
    return block_format(
        is_asked_for(t) ? *options_.vocabulary_type : preset_type(options_.preset, t.source->kind),
        options_.block);
  }
  static std::string label(SectionId id) { return section_label(id.kind, id.layer); }
  static std::string full_name(const Tensor& t) { return label(t.section) + ", " + t.source->name; }

  Status check_cancelled() const {
    if (options_.cancel == nullptr || !options_.cancel->load()) return ok_status();
    return cancelled("the conversion was interrupted; nothing was written");
  }
  void report_progress(const char* stage, const SectionId& id) const {
    if (options_.on_progress) options_.on_progress({stage, label(id), done_, total_});
  }
  void start_stage();

  Status encode_unit(const Tensor& t, BlockFormat format, std::optional<Layout> layout,
                     std::uint32_t first_row, std::uint32_t n_rows, const GptqFactor* factor,
                     MutableByteSpan out, ErrorSums& sums) const;
  Result<const GptqFactor*> factor_of(std::size_t section, const TensorInfo& info) const;
  Status keep_unit(const Tensor& t, BlockFormat format, Layout layout, std::uint32_t first_row,
                   std::uint32_t n_rows, MutableByteSpan out) const;
  // The format of what read_kept_rows() gives. Requires  the source keeps the tensor
  BlockFormat source_format(const Tensor& t) const noexcept {
    return *source_.kept_format(t.section.kind, t.section.layer, t.index);
  }
  Result<bool> has_row_scales(const Tensor& t, BlockFormat format) const;
  Result<BlockFormat> choose_kept(const Tensor& t, BlockFormat own) const;
  Status scan_kept(const Tensor& t) const;
  void warn_of_requantised();
  Result<ErrorSums> measure(const Tensor& t, BlockFormat format);
  Result<TernaryScan> scan_ternary(const Tensor& t) const;
  Result<BlockFormat> choose_mixed(const Tensor& t, BlockFormat format);
  Status choose_one_row_formats(std::size_t section);
  std::vector<TensorInfo> tensor_infos(std::size_t section) const;
  std::optional<QuantType> common_matrix_type() const;
  bool uses_importance() const;
  Status announce_size() const;
  Status write_section(std::size_t section, QsfWriter& writer);
  Status encode_one_rows(std::size_t section, std::span<const TensorInfo> infos,
                         MutableByteSpan out, std::vector<ErrorSums>& sums) const;
  void report_section(std::size_t section, std::span<const TensorInfo> infos,
                      std::span<const ErrorSums> sums);

  const ModelSource& source_;
  const TranscodeOptions& options_;
  ModelSpec spec_;
  std::vector<SectionId> sections_;
  std::vector<std::vector<BlockFormat>> formats_;  // by section and tensor
  std::vector<std::vector<bool>> kept_;            // the same: the source's blocks are written
  bool could_not_keep_ = false;                    // read_kept_rows() refused a row
  TranscodeReport report_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

void Transcoder::start_stage() {
  done_ = 0;
  total_ = 0;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    const std::size_t n = source_.tensors(sections_[s].kind, sections_[s].layer).size();
    for (std::size_t i = 0; i < n; ++i) total_ += tensor(s, i).weights();
  }
}

// Reads, encodes and measures rows [first_row, first_row + n_rows). Without a layout nothing is
// kept: `out` is empty then. Without a factor errors are not fed back.
Status Transcoder::encode_unit(const Tensor& t, BlockFormat format, std::optional<Layout> layout,
                               std::uint32_t first_row, std::uint32_t n_rows,
                               const GptqFactor* factor, MutableByteSpan out,
                               ErrorSums& sums) const {
  const std::size_t n_cols = t.source->cols;
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  std::vector<float> weights(n_rows * n_cols);
  QSF_RETURN_IF_ERROR(
      source_.read_rows(t.section.kind, t.section.layer, t.index, first_row, weights));
  const bool any_magnitude = format.type == QuantType::kF32 || format.type == QuantType::kBF16;
  std::vector<std::byte> rows;
  MutableByteSpan row_major = out;
  if (layout != Layout::kRowMajor) {
    rows.resize(n_rows * row_bytes);
    row_major = rows;
  }
  std::vector<float> decoded(n_cols);
  QuantOptions encode = {.rounding = options_.rounding};
  if (options_.importance != nullptr) {
    encode.importance = options_.importance->find(t.source->kind, t.section.layer, n_cols);
  }
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    const std::span<const float> row = std::span(weights).subspan(r * n_cols, n_cols);
    for (std::size_t c = 0; c < n_cols && !any_magnitude; ++c) {
      if (!(std::fabs(row[c]) <= kF16Max)) {
        return invalid_argument(
            "%s: weight %g at row %u, column %zu is beyond the 65504 that %s can "
            "hold; convert to bf16 or f32",
            full_name(t).c_str(), static_cast<double>(row[c]), first_row + r, c,
            std::string(quant_type_name(format.type)).c_str());
      }
    }
    if (factor == nullptr) {
      encode_row(format, row, encode, row_major.subspan(r * row_bytes, row_bytes));
    }
  }
  if (factor != nullptr) {
    encode_rows_gptq(*factor, format, options_.rounding, weights, row_major);
  }
  for (std::uint32_t r = 0; r < n_rows; ++r) {
    decode_row(format, row_major.subspan(r * row_bytes, row_bytes), decoded);
    sums.add(std::span(weights).subspan(r * n_cols, n_cols), decoded);
  }
  if (layout == Layout::kInterleaved) interleave_rows(format, n_rows, n_cols, rows, out);
  return ok_status();
}

// Reads rows as the source keeps them and brings them into the layout of the file. Their bytes are
// a stranger's, so they are held to what the format may contain.
Status Transcoder::keep_unit(const Tensor& t, BlockFormat format, Layout layout,
                             std::uint32_t first_row, std::uint32_t n_rows,
                             MutableByteSpan out) const {
  const std::size_t n_cols = t.source->cols;
  std::vector<std::byte> rows;
  MutableByteSpan row_major = out;
  if (layout != Layout::kRowMajor) {
    rows.resize(n_rows * row_major_bytes(format, n_cols));
    row_major = rows;
  }
  const BlockFormat own = source_format(t);
  std::vector<std::byte> own_rows;
  if (own != format) own_rows.resize(n_rows * row_major_bytes(own, n_cols));
  const MutableByteSpan read = own != format ? MutableByteSpan(own_rows) : row_major;
  QSF_RETURN_IF_ERROR(
      source_.read_kept_rows(t.section.kind, t.section.layer, t.index, first_row, n_rows, read));
  QSF_RETURN_IF_ERROR(
      check_blocks(own, Layout::kRowMajor, n_rows, n_cols, read).with_context(full_name(t)));
  const std::size_t own_bytes = row_major_bytes(own, n_cols);
  const std::size_t n_bytes = row_major_bytes(format, n_cols);
  for (std::uint32_t r = 0; r < n_rows && own != format; ++r) {
    repack_ternary_row(own, format, n_cols, read.subspan(r * own_bytes, own_bytes),
                       row_major.subspan(r * n_bytes, n_bytes));
  }
  if (layout == Layout::kInterleaved) interleave_rows(format, n_rows, n_cols, rows, out);
  return ok_status();
}

// Returns whether every row of a tensor of ternary blocks has one scale. Rows that the source
// cannot keep are left to be found when they are written.
Result<bool> Transcoder::has_row_scales(const Tensor& t, BlockFormat format) const {
  const std::uint32_t n_rows = t.source->rows;
  std::atomic<bool> all{true};
  Status status = run_units(ceil_div(n_rows, kUnitRows), options_.n_threads, [&](std::size_t unit) {
    QSF_RETURN_IF_ERROR(check_cancelled());
    const auto row = static_cast<std::uint32_t>(unit * kUnitRows);
    const std::uint32_t n = std::min(kUnitRows, n_rows - row);
    const std::size_t n_bytes = row_major_bytes(format, t.source->cols);
    if (!all) return ok_status();
    std::vector<std::byte> bytes(n * n_bytes);
    QSF_RETURN_IF_ERROR(
        source_.read_kept_rows(t.section.kind, t.section.layer, t.index, row, n, bytes));
    for (std::uint32_t r = 0; r < n; ++r) {
      const auto one = ByteSpan(bytes).subspan(r * n_bytes, n_bytes);
      if (!has_one_ternary_scale(format, t.source->cols, one)) all = false;
    }
    return ok_status();
  });
  if (status.code() == StatusCode::kUnsupported) return false;
  QSF_RETURN_IF_ERROR(std::move(status));
  return all.load();
}

// Returns the type that a file gives a tensor that the source keeps in `own`.
Result<BlockFormat> Transcoder::choose_kept(const Tensor& t, BlockFormat own) const {
  bool by_row = own.type == QuantType::kTernaryRow;
  if (own.type == QuantType::kTernary) {
    QSF_ASSIGN_OR_RETURN(by_row, has_row_scales(t, own));
  }
  return by_row ? block_format(options_.native_ternary, 0) : own;
}

// Reads all rows of a tensor whose blocks are kept, for what the source says of them.
Status Transcoder::scan_kept(const Tensor& t) const {
  const BlockFormat format = source_format(t);
  const std::uint32_t n_rows = t.source->rows;
  return run_units(ceil_div(n_rows, kUnitRows), options_.n_threads, [&](std::size_t unit) {
    QSF_RETURN_IF_ERROR(check_cancelled());
    const auto row = static_cast<std::uint32_t>(unit * kUnitRows);
    const std::uint32_t n = std::min(kUnitRows, n_rows - row);
    std::vector<std::byte> bytes(n * row_major_bytes(format, t.source->cols));
    return source_.read_kept_rows(t.section.kind, t.section.layer, t.index, row, n, bytes);
  });
}

// A block that no type holds is rare, and looking for one would read every file twice: so the
// search begins when writing has come upon the first.
Result<bool> Transcoder::give_up_keeping() {
  if (!could_not_keep_) return false;
  could_not_keep_ = false;
  report_ = {};
  bool found = false;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t i = 0; i < formats_[s].size(); ++i) {
      if (!kept_[s][i] || is_float_type(formats_[s][i].type)) continue;
      const Tensor t = tensor(s, i);
      Status status = scan_kept(t);
      if (status.ok()) continue;
      if (status.code() != StatusCode::kUnsupported) return status;
      if (is_ternary(formats_[s][i].type)) spec_.natively_ternary = false;
      kept_[s][i] = false;
      formats_[s][i] = planned_format(t);
      report_.warnings.push_back(std::string(status.message()) + "; stored as " +
                                 std::string(quant_type_name(formats_[s][i].type)));
      found = true;
    }
  }
  warn_of_requantised();
  return found;
}

// One line for each pair of types, in the order of the file.
void Transcoder::warn_of_requantised() {
  struct Pair {
    std::string source_type;
    QuantType type;
    std::size_t n_tensors;
  };
  std::vector<Pair> pairs;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t i = 0; i < formats_[s].size(); ++i) {
      const Tensor t = tensor(s, i);
      const SourceTensor& source = *t.source;
      if (kept_[s][i] || source.rows == 1 || is_ternary(formats_[s][i].type)) continue;
      if (is_asked_for(t)) continue;
      const auto same = std::find_if(pairs.begin(), pairs.end(), [&](const Pair& pair) {
        return pair.source_type == source.type && pair.type == formats_[s][i].type;
      });
      if (same != pairs.end()) {
        ++same->n_tensors;
      } else {
        pairs.push_back({source.type, formats_[s][i].type, 1});
      }
    }
  }
  for (const Pair& pair : pairs) {
    report_.warnings.push_back(std::to_string(pair.n_tensors) + " matrices of " +
                               (pair.source_type.empty() ? "an unknown type" : pair.source_type) +
                               " are not kept as they are: requantised to " +
                               std::string(quant_type_name(pair.type)));
  }
}

// Encodes a whole tensor and keeps nothing but the errors.
Result<ErrorSums> Transcoder::measure(const Tensor& t, BlockFormat format) {
  const std::uint32_t n_rows = t.source->rows;
  const std::size_t n_units = ceil_div(n_rows, kUnitRows);
  const std::size_t batch = std::size_t{4} * options_.n_threads;
  ErrorSums all;
  for (std::size_t first = 0; first < n_units; first += batch) {
    QSF_RETURN_IF_ERROR(check_cancelled());
    const std::size_t n = std::min(batch, n_units - first);
    std::vector<ErrorSums> sums(n);
    QSF_RETURN_IF_ERROR(run_units(n, options_.n_threads, [&](std::size_t unit) {
      const auto row = static_cast<std::uint32_t>((first + unit) * kUnitRows);
      return encode_unit(t, format, std::nullopt, row, std::min(kUnitRows, n_rows - row), nullptr,
                         {}, sums[unit]);
    }));
    for (const ErrorSums& part : sums) all.add(part);
    report_progress("measuring", t.section);
  }
  return all;
}

// Reads until a second magnitude shows, which for other weights is in the first row.
Result<TernaryScan> Transcoder::scan_ternary(const Tensor& t) const {
  TernaryScan scan;
  std::vector<float> weights;
  for (std::uint32_t row = 0; row < t.source->rows; row += kUnitRows) {
    const std::uint32_t n_rows = std::min(kUnitRows, t.source->rows - row);
    weights.resize(std::size_t{n_rows} * t.source->cols);
    QSF_RETURN_IF_ERROR(source_.read_rows(t.section.kind, t.section.layer, t.index, row, weights));
    scan.add(weights);
    if (scan.magnitude() > 0.0F && !scan.is_natively_ternary()) break;
  }
  return scan;
}

Result<BlockFormat> Transcoder::choose_mixed(const Tensor& t, BlockFormat format) {
  const QuantType planned = format.type;
  for (;;) {
    QSF_ASSIGN_OR_RETURN(const ErrorSums sums, measure(t, format));
    if (sums.cosine() >= kLowCosine) break;
    const std::optional<QuantType> wider = wider_type(format.type);
    if (!wider) break;
    format = block_format(*wider, options_.block);
  }
  if (format.type != planned) {
    report_.widened.push_back(full_name(t) + ": " + std::string(quant_type_name(planned)) +
                              " falls below a cosine of 0.99; raised to " +
                              std::string(quant_type_name(format.type)));
  }
  return format;
}

// Decides the format of every matrix; those of one row follow when their section is written.
Status Transcoder::choose_formats() {
  const bool by_row = options_.preset == QuantPreset::kTernaryRow;
  const bool asks_ternary = options_.preset == QuantPreset::kTernary || by_row;
  const bool scans = asks_ternary || options_.preset == QuantPreset::kMixed;
  const bool keeps = options_.preset == QuantPreset::kKeep;
  std::size_t n_matrices = 0;
  std::size_t n_ternary = 0;
  std::size_t n_exact = 0;
  start_stage();
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    const std::size_t n = source_.tensors(sections_[s].kind, sections_[s].layer).size();
    std::vector<BlockFormat>& formats = formats_.emplace_back();
    std::vector<bool>& kept = kept_.emplace_back(n, false);
    for (std::size_t i = 0; i < n; ++i) {
      const Tensor t = tensor(s, i);
      BlockFormat format = planned_format(t);
      if (keeps && t.source->rows > 1) {
        auto own = source_.kept_format(t.section.kind, t.section.layer, i);
        if (own && is_asked_for(t) && own->type != format.type) own.reset();
        if (own) {
          QSF_ASSIGN_OR_RETURN(format, choose_kept(t, *own));
        }
        // Ternary weights that are stored as floats are the same numbers in a tenth of the bits.
        if ((!own || is_float_type(own->type)) && t.section.kind == SectionKind::kLayer) {
          QSF_ASSIGN_OR_RETURN(const TernaryScan scan, scan_ternary(t));
          if (scan.is_natively_ternary()) {
            format = block_format(options_.native_ternary, 0);
            own.reset();
          }
        }
        kept[i] = own.has_value();
        n_matrices += t.section.kind == SectionKind::kLayer ? 1 : 0;
        n_exact += t.section.kind == SectionKind::kLayer && is_ternary(format.type) ? 1 : 0;
      }
      if (scans && t.source->rows > 1 && t.section.kind == SectionKind::kLayer) {
        QSF_RETURN_IF_ERROR(check_cancelled());
        ++n_matrices;
        QSF_ASSIGN_OR_RETURN(const TernaryScan scan, scan_ternary(t));
        if (scan.is_natively_ternary()) {
          ++n_ternary;
          ++n_exact;
          format = block_format(by_row ? QuantType::kTernaryRow : options_.native_ternary, 0);
        }
      }
      if (options_.preset == QuantPreset::kMixed && t.source->rows > 1 && !is_asked_for(t) &&
          !is_ternary(format.type) && !is_float_type(format.type)) {
        QSF_ASSIGN_OR_RETURN(format, choose_mixed(t, format));
      }
      formats.push_back(format);
      done_ += t.weights();
      if (scans) report_progress("measuring", t.section);
    }
  }
  spec_.natively_ternary = n_matrices > 0 && n_exact == n_matrices;
  if (keeps) warn_of_requantised();
  if (asks_ternary && n_ternary < n_matrices) {
    report_.warnings.push_back(std::to_string(n_matrices - n_ternary) + " of " +
                               std::to_string(n_matrices) +
                               " matrices are not natively ternary; a model that was not trained "
                               "with ternary weights is unusable in this type");
  }
  return ok_status();
}

Status Transcoder::choose_one_row_formats(std::size_t section) {
  for (std::size_t i = 0; i < formats_[section].size(); ++i) {
    const Tensor t = tensor(section, i);
    if (t.source->rows != 1) continue;
    std::vector<float> values(t.source->cols);
    QSF_RETURN_IF_ERROR(source_.read_rows(t.section.kind, t.section.layer, i, 0, values));
    formats_[section][i] =
        block_format(f16_holds_exactly(values) ? QuantType::kF16 : QuantType::kF32, 0);
  }
  return ok_status();
}

Status Transcoder::encode_one_rows(std::size_t section, std::span<const TensorInfo> infos,
                                   MutableByteSpan out, std::vector<ErrorSums>& sums) const {
  std::fill(out.begin(), out.end(), std::byte{0});
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].rows != 1) continue;
    const std::uint64_t offset = one_row_offset(infos, i);
    QSF_RETURN_IF_ERROR(encode_unit(tensor(section, i), infos[i].format, Layout::kRowMajor, 0, 1,
                                    nullptr, out.subspan(offset, tile_bytes(infos[i], 1)),
                                    sums[i]));
  }
  return ok_status();
}

std::vector<TensorInfo> Transcoder::tensor_infos(std::size_t section) const {
  std::vector<TensorInfo> infos;
  for (std::size_t i = 0; i < formats_[section].size(); ++i) {
    const SourceTensor& t = *tensor(section, i).source;
    const Layout layout = t.rows == 1 ? Layout::kRowMajor : options_.layout;
    infos.push_back({t.kind, t.rows, t.cols, formats_[section][i], layout, 0});
  }
  return infos;
}

// Says what the file will take before it takes anything.
Status Transcoder::announce_size() const {
  if (!options_.on_size) return ok_status();
  std::uint64_t sum = other_file_bytes(spec_, options_.tokenizer.size());
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    QSF_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                         section_file_bytes(tensor_infos(s), options_.tile_bytes));
    sum += bytes;
  }
  return options_.on_size(sum);
}

// What the errors of a matrix are fed back by; null for those that have no errors, or none asked
// for.
Result<const GptqFactor*> Transcoder::factor_of(std::size_t section, const TensorInfo& info) const {
  const SectionId id = sections_[section];
  if (options_.feedback == nullptr || id.kind != SectionKind::kLayer ||
      is_float_type(info.format.type)) {
    return nullptr;
  }
  return options_.feedback->factor_of(info.kind, id.layer, info.cols);
}

Status Transcoder::write_section(std::size_t section, QsfWriter& writer) {
  const SectionId id = sections_[section];
  const std::vector<TensorInfo> infos = tensor_infos(section);
  std::vector<ErrorSums> sums(infos.size());
  QSF_RETURN_IF_ERROR(writer.begin_section(id.kind, id.layer, infos));
  std::vector<std::byte> raw;
  for (const TilePlan& tile : writer.tiles()) {
    QSF_RETURN_IF_ERROR(check_cancelled());
    raw.resize(tile.raw_bytes);
    if (tile.tensor == kOneRowTensors) {
      QSF_RETURN_IF_ERROR(encode_one_rows(section, infos, raw, sums));
      for (const TensorInfo& info : infos) done_ += info.rows == 1 ? info.cols : 0;
    } else {
      const Tensor t = tensor(section, tile.tensor);
      const TensorInfo& info = infos[tile.tensor];
      const bool keep = kept_[section][tile.tensor] && !is_float_type(info.format.type);
      const GptqFactor* factor = nullptr;
      if (!keep) {
        QSF_ASSIGN_OR_RETURN(factor, factor_of(section, info));
      }
      const std::uint32_t unit_rows = factor != nullptr ? kFeedbackUnitRows : kUnitRows;
      const std::size_t n_units = ceil_div(tile.n_rows, unit_rows);
      std::vector<ErrorSums> parts(n_units);
      Status encoded = run_units(n_units, options_.n_threads, [&](std::size_t unit) {
        const auto row = static_cast<std::uint32_t>(unit * unit_rows);
        const std::uint32_t n_rows = std::min(unit_rows, tile.n_rows - row);
        const auto out =
            MutableByteSpan(raw).subspan(tile_bytes(info, row), tile_bytes(info, n_rows));
        if (keep) return keep_unit(t, info.format, info.layout, tile.first_row + row, n_rows, out);
        return encode_unit(t, info.format, info.layout, tile.first_row + row, n_rows, factor, out,
                           parts[unit]);
      });
      could_not_keep_ = keep && encoded.code() == StatusCode::kUnsupported;
      QSF_RETURN_IF_ERROR(std::move(encoded));
      for (const ErrorSums& part : parts) sums[tile.tensor].add(part);
      done_ += std::uint64_t{tile.n_rows} * info.cols;
    }
    QSF_RETURN_IF_ERROR(writer.write_tile(raw));
    report_progress("converting", id);
  }
  report_section(section, infos, sums);
  const bool is_layer = id.kind == SectionKind::kLayer && !options_.layer_importance.empty();
  return writer.end_section(is_layer ? options_.layer_importance[id.layer] : 0.0F);
}

void Transcoder::report_section(std::size_t section, std::span<const TensorInfo> infos,
                                std::span<const ErrorSums> sums) {
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const Tensor t = tensor(section, i);
    TensorReport report;
    report.section = label(t.section);
    report.kind = infos[i].kind;
    report.source_name = t.source->name;
    report.source_type = t.source->type;
    report.rows = infos[i].rows;
    report.cols = infos[i].cols;
    report.format = infos[i].format;
    report.kept = kept_[section][i];
    report.bits_per_weight = 8.0 * static_cast<double>(tile_bytes(infos[i], infos[i].rows)) /
                             static_cast<double>(t.weights());
    report.relative_error = sums[i].relative_error();
    report.cosine = sums[i].cosine();
    report_.n_weights += t.weights();
    report_.tensors.push_back(std::move(report));
  }
}

// What a file of kept weights can say of all of them: their type, where they have the same.
std::optional<QuantType> Transcoder::common_matrix_type() const {
  std::optional<QuantType> common;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t i = 0; i < formats_[s].size(); ++i) {
      if (tensor(s, i).source->rows == 1) continue;
      if (common && *common != formats_[s][i].type) return std::nullopt;
      common = formats_[s][i].type;
    }
  }
  return common;
}

// Whether what columns are worth, or how their inputs go together, decides any code of the file.
bool Transcoder::uses_importance() const {
  const bool searches = options_.importance != nullptr && options_.rounding == Rounding::kSearch;
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    for (std::size_t i = 0; i < formats_[s].size(); ++i) {
      const SourceTensor& t = *tensor(s, i).source;
      if (kept_[s][i] || is_float_type(formats_[s][i].type)) continue;
      if (options_.feedback != nullptr && sections_[s].kind == SectionKind::kLayer) return true;
      if (searches && !options_.importance->find(t.kind, sections_[s].layer, t.cols).empty()) {
        return true;
      }
    }
  }
  return false;
}

Result<TranscodeReport> Transcoder::write(const std::string& path, FileOps& ops) {
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    QSF_RETURN_IF_ERROR(choose_one_row_formats(s));
  }
  spec_.default_type = options_.preset == QuantPreset::kKeep ? common_matrix_type()
                                                             : preset_default_type(options_.preset);
  spec_.int8_rows = spec_.int8_rows || options_.int8_rows;
  spec_.block = options_.block;
  spec_.quantiser = options_.program + (options_.program.empty() ? "" : ": ") +
                    std::string(quant_preset_name(options_.preset)) + ", blocks of " +
                    std::to_string(options_.block);
  spec_.calibrated = uses_importance();
  QSF_RETURN_IF_ERROR(announce_size());
  QSF_ASSIGN_OR_RETURN(
      QsfWriter writer,
      QsfWriter::create(path, spec_, {options_.compression, options_.tile_bytes}, ops));
  if (!options_.tokenizer.empty()) QSF_RETURN_IF_ERROR(writer.set_tokenizer(options_.tokenizer));
  start_stage();
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    QSF_RETURN_IF_ERROR(write_section(s, writer));
  }
  report_.raw_bytes = writer.raw_bytes();
  report_.stored_bytes = writer.stored_bytes();
  QSF_RETURN_IF_ERROR(check_cancelled());
  QSF_RETURN_IF_ERROR(writer.finish());
  if (spec_.natively_ternary && !spec_.int8_rows) {
    report_.warnings.push_back(
        "every matrix of the layers is ternary, and nothing in the input says whether the model "
        "was trained with activations rounded to 8 bits, as BitNet models are; if it was, convert "
        "it with qsf-convert --int8-rows");
  }
  return std::move(report_);
}

}  // namespace

Result<TranscodeReport> transcode(const ModelSource& source, const std::string& path,
                                  const TranscodeOptions& options, FileOps& ops) {
  QSF_CHECK(scale_form(options.native_ternary) == ScaleForm::kRow);
  QSF_CHECK(options.layer_importance.empty() ||
            options.layer_importance.size() == source.spec().n_layers);
  if (options.n_threads < 1 || !is_valid({QuantType::kQ4, options.block})) {
    return invalid_argument(
        "%u threads and blocks of %u, expected at least 1 and 32, 64, 128 or "
        "256",
        options.n_threads, options.block);
  }
  const BlockFormat format =
      block_format(preset_type(options.preset, TensorKind::kAttnQ), options.block);
  if (!is_valid(format)) {
    return invalid_argument("blocks of %u with %s, expected 32 or 64", options.block,
                            std::string(quant_preset_name(options.preset)).c_str());
  }
  if (options.vocabulary_type && !is_valid(block_format(*options.vocabulary_type, options.block))) {
    return invalid_argument("blocks of %u with %s for the vocabulary, expected 32 or 64",
                            options.block,
                            std::string(quant_type_name(*options.vocabulary_type)).c_str());
  }
  Transcoder transcoder(source, options);
  QSF_RETURN_IF_ERROR(transcoder.choose_formats());
  auto report = transcoder.write(path, ops);
  if (report) return report;
  QSF_ASSIGN_OR_RETURN(const bool again, transcoder.give_up_keeping());
  if (!again) return report;
  return transcoder.write(path, ops);
}

}  // namespace qsf
