// SPDX-License-Identifier: MIT

#include "convert/choose/target_size.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/portable_math.h"
#include "base/ranges.h"
#include "convert/choose/allocation.h"
#include "convert/choose/sensitivity.h"
#include "convert/encode/encode_rows.h"
#include "format/tensor_rules.h"
#include "format/tile_plan.h"

namespace qsf {
namespace {

// The formats with the smallest errors at each width (decisions 035, 036 and 068).
constexpr BlockFormat kCandidates[] = {
    {QuantType::kQ2Trellis, 64},  {QuantType::kQ3Trellis, 64},  {QuantType::kQ2Super, 64},
    {QuantType::kQ2Codebook, 16}, {QuantType::kQ2Super, 32},    {QuantType::kQ2K, 16},
    {QuantType::kQ3Super, 64},    {QuantType::kQ3Codebook, 16}, {QuantType::kQ3Super, 32},
    {QuantType::kQ4Codebook, 32}, {QuantType::kQ4Super, 64},    {QuantType::kQ4Super, 32},
    {QuantType::kQ5K, 32},        {QuantType::kQ6K, 16},        {QuantType::kQ8, 64},
    {QuantType::kF16, 4}};

// Rows on which the error of a format is measured: with the fewest columns still tens of thousands
// of weights. For 7 billion weights in groups of 1024 rows of 4096 columns all formats take ten
// seconds.
constexpr std::uint32_t kMeasuredRows = 128;
// Of many experts together, and of each at least.
constexpr std::uint32_t kExpertRows = 2048;
constexpr std::uint32_t kLeastMeasuredRows = 32;
// Of formats whose search takes several times as long.
constexpr std::uint32_t kTrellisMeasuredRows = 64;

// Matrices that get one format: those of a kind in a layer. There is one, or one for each expert:
// slots of the expert cache are of one size, so narrower experts beside wider ones would save reads
// but no memory.
struct Matrix {
  std::vector<SourcePlace> places;
  std::size_t group = 0;
  bool keeps_codes = false;  // one of `formats` is the source's own, which loses nothing
  std::vector<BlockFormat> formats;
  std::vector<double> errors;  // weighted, by format
  std::vector<double> probed;  // the same of the probes of its group
  std::vector<AllocationChoice> choices;
};

std::uint64_t n_weights(const Matrix& matrix) noexcept {
  return matrix.places.size() * matrix.places.front().n_weights();
}

class Planner {
 public:
  // `calibration`: null where the weights' own errors are the costs.
  Planner(const ModelSource& source, const Calibration* calibration,
          const TranscodeOptions& options)
      : source_(source),
        calibration_(calibration),
        on_progress_(options.on_progress),
        options_(options) {
    options_.preset = QuantPreset::kKeep;
    options_.on_progress = nullptr;
    options_.on_size = nullptr;
  }

  Result<TargetPlan> plan(std::uint64_t max_bytes);
  // The plan of the fewest bytes, which needs no measurement.
  Result<TargetPlan> smallest();

 private:
  Status take_matrices();
  void add_place(const SourcePlace& place, std::size_t group);
  Status take_choices(Matrix& matrix);
  Status measure_all();
  Status measure(Matrix& matrix);
  std::vector<std::vector<AllocationChoice>> items() const;
  Result<ErrorSums> sums_of(const SourcePlace& place, BlockFormat format,
                            std::uint32_t max_rows) const;
  Result<double> error_of(const Matrix& matrix, BlockFormat format) const;
  void estimate_costs();
  void estimate_costs_by_error();
  Result<std::uint64_t> tensor_bytes(const SourcePlace& t, BlockFormat format) const;
  double uses_of(const SourcePlace& place) const;
  Result<TargetPlan> plan_of(const Allocation& allocation);
  std::vector<const Probe*> probes_of(const TensorGroup& group) const;

  const ModelSource& source_;
  const Calibration* calibration_;
  std::function<void(const TranscodeProgress&)> on_progress_;
  TranscodeOptions options_;
  std::vector<TensorGroup> groups_;
  std::vector<Matrix> matrices_;
};

std::vector<const Probe*> Planner::probes_of(const TensorGroup& group) const {
  std::vector<const Probe*> found;
  if (calibration_ == nullptr) return found;
  for (const Probe& probe : calibration_->probes) {
    if (probe.kind == group.kind && probe.first_layer == group.first_layer &&
        probe.n_layers == group.n_layers) {
      found.push_back(&probe);
    }
  }
  return found;
}

Status Planner::take_matrices() {
  QSF_ASSIGN_OR_RETURN(groups_, sensitivity_groups(source_));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (options_.vocabulary_type && is_vocabulary(groups_[g].kind)) continue;
    if (calibration_ != nullptr && probes_of(groups_[g]).empty()) {
      return invalid_argument(
          "%s, layers from %u: no sensitivity in the calibration file; calibrate again with "
          "--target-size",
          std::string(tensor_kind_name(groups_[g].kind)).c_str(), groups_[g].first_layer);
    }
    for (const SourcePlace& place : groups_[g].members) add_place(place, g);
  }
  ranges::stable_sort(matrices_, {}, [](const Matrix& m) {
    return std::pair(m.places.front().section.kind, m.places.front().section.layer);
  });
  for (Matrix& matrix : matrices_) QSF_RETURN_IF_ERROR(take_choices(matrix));
  return ok_status();
}

// Those of experts and of residual streams stand side by side and have one type.
void Planner::add_place(const SourcePlace& place, std::size_t group) {
  const bool several = is_expert(place.source->kind) || is_of_stream(place.source->kind);
  if (several && !matrices_.empty()) {
    Matrix& last = matrices_.back();
    const SourcePlace& first = last.places.front();
    if (first.source->kind == place.source->kind && first.section.layer == place.section.layer) {
      last.places.push_back(place);
      return;
    }
  }
  Matrix matrix;
  matrix.places.push_back(place);
  matrix.group = group;
  matrices_.push_back(std::move(matrix));
}

// The format in which the source holds all matrices of a list.
std::optional<BlockFormat> own_format(const ModelSource& source,
                                      std::span<const SourcePlace> places) {
  std::optional<BlockFormat> own;
  for (const SourcePlace& t : places) {
    const auto format = source.kept_format(t.section.kind, t.section.layer, t.index);
    if (!format || (own && *own != *format)) return std::nullopt;
    own = format;
  }
  return own;
}

Status Planner::take_choices(Matrix& matrix) {
  matrix.formats.assign(std::begin(kCandidates), std::end(kCandidates));
  const auto own = own_format(source_, matrix.places);
  matrix.keeps_codes = own && !is_float_type(own->type);
  if (matrix.keeps_codes && ranges::find(matrix.formats, *own) == matrix.formats.end()) {
    matrix.formats.push_back(*own);
  }
  for (const BlockFormat format : matrix.formats) {
    AllocationChoice choice;
    QSF_ASSIGN_OR_RETURN(choice.bytes, tensor_bytes(matrix.places.front(), format));
    choice.bytes *= matrix.places.size();
    matrix.choices.push_back(choice);
  }
  return ok_status();
}

Status Planner::measure_all() {
  TranscodeProgress progress;
  progress.stage = "measuring";
  for (const Matrix& matrix : matrices_) progress.total_weights += n_weights(matrix);
  for (Matrix& matrix : matrices_) {
    progress.section = std::string(tensor_kind_name(matrix.places.front().source->kind));
    if (on_progress_) on_progress_(progress);
    QSF_RETURN_IF_ERROR(measure(matrix));
    progress.done_weights += n_weights(matrix);
  }
  if (calibration_ == nullptr) {
    estimate_costs_by_error();
  } else {
    estimate_costs();
  }
  return ok_status();
}

Result<ErrorSums> Planner::sums_of(const SourcePlace& place, BlockFormat format,
                                   std::uint32_t max_rows) const {
  const RowEncoding encoding = {
      format, quant_options(options_.rounding, options_.importance, place), nullptr};
  return measure_errors(
      source_, place, encoding,
      {.n_threads = options_.n_threads, .max_rows = max_rows, .cancel = options_.cancel});
}

// Of experts: the squared error of all their outputs over the squared outputs, so an expert counts
// by the rows that chose it and by the size of what it adds to them.
Result<double> Planner::error_of(const Matrix& matrix, BlockFormat format) const {
  const auto n_places = static_cast<std::uint32_t>(matrix.places.size());
  const std::uint32_t max_rows = std::max(kExpertRows / n_places, kLeastMeasuredRows);
  double squares = 0.0;
  double errors = 0.0;
  for (const SourcePlace& place : matrix.places) {
    QSF_ASSIGN_OR_RETURN(
        const ErrorSums sums,
        sums_of(place, format,
                is_trellis_type(format.type) ? std::min(max_rows, kTrellisMeasuredRows)
                : n_places == 1              ? kMeasuredRows
                                             : max_rows));
    const double weight = uses_of(place);
    squares += weight * sums.weighted_ww;
    errors += weight * sums.weighted_dd;
  }
  return squares > 0.0 ? errors / squares : 0.0;
}

// How many rows of the calibration set a matrix multiplied, if that is known.
double Planner::uses_of(const SourcePlace& place) const {
  if (calibration_ == nullptr || !is_expert(place.source->kind)) return 1.0;
  const ExpertCalibration& expert =
      calibration_->layers[place.section.layer].experts[place.source->expert];
  return static_cast<double>(expert.n_rows);
}

Status Planner::measure(Matrix& matrix) {
  const auto own = own_format(source_, matrix.places);
  for (const BlockFormat format : matrix.formats) {
    double error = 0.0;
    if (!matrix.keeps_codes || format != *own) {
      QSF_ASSIGN_OR_RETURN(error, error_of(matrix, format));
    }
    matrix.errors.push_back(error);
  }
  for (const Probe* probe : probes_of(groups_[matrix.group])) {
    const auto known = ranges::find(matrix.formats, probe->format);
    if (known != matrix.formats.end()) {
      matrix.probed.push_back(
          matrix.errors[static_cast<std::size_t>(known - matrix.formats.begin())]);
    } else {
      QSF_ASSIGN_OR_RETURN(const double error, error_of(matrix, probe->format));
      matrix.probed.push_back(error);
    }
  }
  return ok_status();
}

// The squared error of all weights relative to their energy, as if every matrix had the same mean
// square: what a matrix adds is its own relative squared error times its share of the weights.
void Planner::estimate_costs_by_error() {
  double n_all = 0.0;
  for (const Matrix& matrix : matrices_) n_all += static_cast<double>(n_weights(matrix));
  for (Matrix& matrix : matrices_) {
    const double share = static_cast<double>(n_weights(matrix)) / n_all;
    for (std::size_t i = 0; i < matrix.choices.size(); ++i) {
      matrix.choices[i].cost = share * matrix.errors[i];
    }
  }
}

// The divergence of a group belongs to its members in equal parts, each at its own error.
void Planner::estimate_costs() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<const Probe*> probes = probes_of(groups_[g]);
    const auto n_members = static_cast<double>(ranges::count(matrices_, g, &Matrix::group));
    std::vector<double> divergences;
    std::vector<double> errors(probes.size());
    for (const Probe* probe : probes) divergences.push_back(probe->divergence / n_members);
    for (const Matrix& matrix : matrices_) {
      if (matrix.group != g) continue;
      for (std::size_t p = 0; p < probes.size(); ++p) errors[p] += matrix.probed[p] / n_members;
    }
    for (Matrix& matrix : matrices_) {
      if (matrix.group != g) continue;
      for (std::size_t i = 0; i < matrix.choices.size(); ++i) {
        matrix.choices[i].cost = interpolate_divergence(errors, divergences, matrix.errors[i]);
      }
    }
  }
}

// Bytes of a matrix's tiles; the directory of its section is counted with the file.
Result<std::uint64_t> Planner::tensor_bytes(const SourcePlace& t, BlockFormat format) const {
  const TensorInfo info = {t.source->kind, t.source->rows,  t.source->cols,
                           format,         options_.layout, 0};
  return section_file_bytes({&info, 1}, options_.tile_bytes);
}

Result<TargetPlan> Planner::plan_of(const Allocation& allocation) {
  TargetPlan plan;
  for (const SourcePlace& t : tensors_of(source_)) {
    if (t.source->kind == TensorKind::kPositionEmbedding) {
      QSF_RETURN_IF_ERROR(
          plan.formats.set(t.source->kind, 0, preset_format(QuantType::kQ4, t.source->kind, 0)));
    }
  }
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const Matrix& matrix = matrices_[i];
    const std::size_t choice = allocation.choices[i];
    const AllocationChoice& chosen = matrix.choices[choice];
    const SourcePlace& first = matrix.places.front();
    plan.tensors.push_back({first, matrix.formats[choice], chosen.bytes, chosen.cost,
                            static_cast<std::uint32_t>(matrix.places.size())});
    QSF_RETURN_IF_ERROR(
        plan.formats.set(first.source->kind, first.section.layer, matrix.formats[choice]));
  }
  plan.divergence = allocation.cost;
  options_.formats = &plan.formats;
  auto bytes = transcoded_bytes(source_, options_);
  options_.formats = nullptr;
  if (!bytes) return std::move(bytes).error();
  plan.file_bytes = *bytes;
  return plan;
}

std::vector<std::vector<AllocationChoice>> Planner::items() const {
  std::vector<std::vector<AllocationChoice>> items;
  for (const Matrix& matrix : matrices_) items.push_back(matrix.choices);
  return items;
}

Result<TargetPlan> Planner::smallest() {
  QSF_RETURN_IF_ERROR(take_matrices());
  const std::vector<std::vector<AllocationChoice>> choices = items();
  QSF_ASSIGN_OR_RETURN(const Allocation allocation, allocate(choices, fewest_bytes(choices)));
  return plan_of(allocation);
}

Result<TargetPlan> Planner::plan(std::uint64_t max_bytes) {
  // The rest of the file depends on the number of tiles, by pages of directories. So its bytes are
  // taken from the smallest file, and corrected by the bytes of each plan.
  QSF_ASSIGN_OR_RETURN(const TargetPlan least, smallest());
  if (least.file_bytes > max_bytes) {
    return invalid_argument(
        "--target-size: got %llu bytes, expected at least %llu, the smallest file of this model",
        static_cast<unsigned long long>(max_bytes),
        static_cast<unsigned long long>(least.file_bytes));
  }
  const std::uint64_t fewest = fewest_bytes(items());
  QSF_RETURN_IF_ERROR(measure_all());
  const std::vector<std::vector<AllocationChoice>> choices = items();
  const auto others =
      static_cast<std::int64_t>(least.file_bytes) - static_cast<std::int64_t>(fewest);
  std::int64_t room = static_cast<std::int64_t>(max_bytes) - others;
  while (room >= static_cast<std::int64_t>(fewest)) {
    QSF_ASSIGN_OR_RETURN(const Allocation allocation,
                         allocate(choices, static_cast<std::uint64_t>(room)));
    QSF_ASSIGN_OR_RETURN(TargetPlan plan, plan_of(allocation));
    if (plan.file_bytes <= max_bytes) return plan;
    room = static_cast<std::int64_t>(allocation.bytes) -
           static_cast<std::int64_t>(plan.file_bytes - max_bytes);
  }
  // Corrections have used up the room: the smallest file fits, as was checked.
  QSF_ASSIGN_OR_RETURN(const Allocation allocation, allocate(choices, fewest));
  return plan_of(allocation);
}

}  // namespace

double interpolate_divergence(std::span<const double> errors, std::span<const double> divergences,
                              double error) {
  QSF_CHECK(!errors.empty() && errors.size() == divergences.size());
  // Smaller measurements are rounding noise, and logarithms need positive numbers.
  constexpr double kLeast = 1e-12;
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    points.emplace_back(std::max(errors[i], kLeast), std::max(divergences[i], kLeast));
  }
  ranges::sort(points);
  if (error <= points.front().first) return points.front().second * error / points.front().first;
  if (error >= points.back().first) return points.back().second * error / points.back().first;
  std::size_t next = 1;
  while (points[next].first < error) ++next;
  const auto [e0, d0] = points[next - 1];
  const auto [e1, d1] = points[next];
  const double share = portable::log(error / e0) / portable::log(e1 / e0);
  return d0 * portable::pow(d1 / d0, share);
}

Result<TargetPlan> plan_target_size(const ModelSource& source, const Calibration& calibration,
                                    const TranscodeOptions& options, std::uint64_t max_bytes) {
  return Planner(source, &calibration, options).plan(max_bytes);
}

Result<TargetPlan> plan_target_size_by_error(const ModelSource& source,
                                             const TranscodeOptions& options,
                                             std::uint64_t max_bytes) {
  return Planner(source, nullptr, options).plan(max_bytes);
}

Result<std::uint64_t> smallest_target_size(const ModelSource& source,
                                           const TranscodeOptions& options) {
  QSF_ASSIGN_OR_RETURN(const TargetPlan plan, Planner(source, nullptr, options).smallest());
  return plan.file_bytes;
}

}  // namespace qsf
