// SPDX-License-Identifier: MIT

#include "convert/choose/sensitivity.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/ranges.h"
#include "convert/calibrate/model_copy.h"
#include "convert/calibrate/pass_observer.h"
#include "convert/choose/divergence.h"
#include "convert/choose/format_choice.h"
#include "convert/encode/transcode_types.h"
#include "engine/engine.h"
#include "engine/process_memory.h"

namespace qsf {
namespace {

// An engine and what observes it, for cancellations alone.
struct Probed {
  explicit Probed(const std::atomic<bool>* cancel) : observer(cancel) {}
  PassObserver observer;
  std::unique_ptr<Engine> engine;  // behind the observer, which outlives it
};

// Writes files and opens them.
class Prober {
 public:
  Prober(const ModelSource& source, const std::string& output, const SensitivityOptions& options)
      : source_(source), options_(options), file_(output) {}

  // Opens the model with matrices in the formats given, the others as they are. `budget` as
  // EngineOptions::ram_budget_bytes.
  Result<std::unique_ptr<Probed>> open(const TensorFormats& formats, std::uint64_t budget);

 private:
  const ModelSource& source_;
  const SensitivityOptions& options_;
  TemporaryName file_;
};

Result<std::unique_ptr<Probed>> Prober::open(const TensorFormats& formats, std::uint64_t budget) {
  TranscodeOptions transcode_options = options_.transcode;
  transcode_options.formats = &formats;
  transcode_options.on_progress = nullptr;
  QSF_RETURN_IF_ERROR(write_copy(source_, file_.path(), transcode_options));
  const CollectOptions& collect = options_.collect;
  auto probed = std::make_unique<Probed>(collect.cancel);
  EngineOptions engine;
  engine.n_threads = collect.n_threads;
  engine.max_context = collect.context;
  engine.k_type = KvType::kF32;
  engine.v_type = KvType::kF32;
  engine.exact = true;
  engine.preload = false;
  engine.observer = &probed->observer;
  engine.log = collect.log;
  engine.ram_budget_bytes = budget;
  auto opened = Engine::open(file_.path(), engine);
  file_.remove();
  if (!opened) return std::move(opened).error().with_context("measuring sensitivities");
  probed->engine = std::move(*opened);
  probed->observer.attach(*probed->engine);
  return probed;
}

// What is measured, in this order: by kind of matrix, by format, by layer.
struct Measurement {
  const TensorGroup* group;
  BlockFormat format;

  Probe probe(double divergence) const {
    return {group->kind, group->first_layer, group->n_layers, format, divergence};
  }
  bool in_layers() const { return group->members.front().section.kind == SectionKind::kLayer; }
  std::uint32_t end() const { return group->first_layer + group->n_layers; }
};

std::vector<Measurement> measurements_of(const std::vector<TensorGroup>& groups) {
  std::vector<TensorKind> kinds;
  for (const TensorGroup& group : groups) {
    if (ranges::find(kinds, group.kind) == kinds.end()) kinds.push_back(group.kind);
  }
  std::vector<Measurement> measurements;
  for (const TensorKind kind : kinds) {
    for (const BlockFormat format : kProbeFormats) {
      for (const TensorGroup& group : groups) {
        if (group.kind == kind) measurements.push_back({&group, format});
      }
    }
  }
  return measurements;
}

// Runs all measurements. Where layers can be run apart from others, a file has all matrices of a
// kind in a format. Of it only the layers of a group run, on rows that the model itself has in
// front of them, and the model runs the rest. Otherwise every group has a file of its own.
class Series {
 public:
  Series(const ModelSource& source, std::span<const TokenId> tokens, const std::string& output,
         const SensitivityOptions& options, std::vector<Measurement> measurements)
      : spec_(source.spec()),
        options_(options),
        measurements_(std::move(measurements)),
        prober_(source, output, options),
        meter_(tokens, options.collect.context, spec_.n_vocab),
        n_rows_(tokens.size()) {}

  Status take_reference();
  Result<double> measure(std::size_t index);

 private:
  std::uint64_t reference_budget() const;
  void plan_stops();
  Status open_changed(const Measurement& next);
  std::span<float> rows_at(std::size_t stop, std::size_t first, std::size_t n);
  Status run_in_parts(const Measurement& of, std::size_t first, std::span<const TokenId> window,
                      LogitsSink& sink);

  const ModelSpec& spec_;
  const SensitivityOptions& options_;
  const std::vector<Measurement> measurements_;
  Prober prober_;
  DivergenceMeter meter_;
  std::size_t n_rows_;
  std::unique_ptr<Probed> reference_;  // null where each measurement runs whole
  std::vector<std::uint32_t> stops_;   // first layers of groups, ascending
  std::vector<float> rows_;            // of the model, in front of them [stops, rows, hidden]
  std::unique_ptr<Probed> changed_;
  const Measurement* opened_ = nullptr;  // what changed_ is for
  std::vector<float> hidden_;            // of a window
};

Status run_whole(Engine& engine, std::span<const TokenId> window, LogitsSink& sink) {
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine.create_session());
  return session->prefill_rows(window, sink);
}

// The budget of the first of two engines, which has half of what the process leaves.
std::uint64_t Series::reference_budget() const {
  const std::uint64_t all = options_.collect.ram_budget_bytes;
  const std::uint64_t used = process_memory().resident_bytes;
  return used < all ? all - (all - used) / 2 : all;
}

// The layers in front of which rows are kept.
void Series::plan_stops() {
  for (const Measurement& m : measurements_) {
    if (m.in_layers()) stops_.push_back(m.group->first_layer);
  }
  ranges::sort(stops_);
  stops_.erase(std::unique(stops_.begin(), stops_.end()), stops_.end());
}

std::span<float> Series::rows_at(std::size_t stop, std::size_t first, std::size_t n) {
  return std::span(rows_).subspan((stop * n_rows_ + first) * spec_.hidden, n * spec_.hidden);
}

Status Series::take_reference() {
  if (Engine::runs_in_parts(spec_)) {
    plan_stops();
    rows_.resize(stops_.size() * n_rows_ * spec_.hidden);
    auto opened = prober_.open({}, reference_budget());
    if (!opened && opened.error().code() != StatusCode::kOutOfBudget) return opened.error();
    if (opened) reference_ = std::move(*opened);
  }
  if (reference_ == nullptr) {
    std::vector<float>().swap(rows_);
    QSF_ASSIGN_OR_RETURN(const auto whole, prober_.open({}, options_.collect.ram_budget_bytes));
    return meter_.take_reference(
        [&](std::size_t /*first*/, std::span<const TokenId> window, LogitsSink& sink) {
          return run_whole(*whole->engine, window, sink);
        });
  }
  return meter_.take_reference(
      [&](std::size_t first, std::span<const TokenId> window, LogitsSink& sink) -> Status {
        hidden_.resize(window.size() * spec_.hidden);
        std::uint32_t done = 0;
        for (std::size_t i = 0; i < stops_.size(); ++i) {
          if (stops_[i] > 0) {
            QSF_RETURN_IF_ERROR(reference_->engine->run_layers(window, done, stops_[i], hidden_));
          }
          done = stops_[i];
          ranges::copy(hidden_, rows_at(i, first, window.size()).begin());
        }
        return reference_->engine->run_layers(window, done, spec_.n_layers, hidden_, &sink);
      });
}

// Opens the file of a measurement, which may be that of the one before it.
Status Series::open_changed(const Measurement& next) {
  const bool whole = reference_ == nullptr || !next.in_layers();
  if (opened_ != nullptr && !whole && opened_->in_layers() &&
      opened_->group->kind == next.group->kind && opened_->format == next.format) {
    return ok_status();
  }
  changed_.reset();
  opened_ = nullptr;
  TensorFormats formats;
  for (const Measurement& m : measurements_) {
    const bool same = m.group->kind == next.group->kind && m.format == next.format;
    if (whole ? m.group != next.group : !same) continue;
    for (const SourcePlace& member : m.group->members) {
      QSF_RETURN_IF_ERROR(formats.set(next.group->kind, member.section.layer, next.format));
    }
  }
  QSF_ASSIGN_OR_RETURN(changed_, prober_.open(formats, options_.collect.ram_budget_bytes));
  opened_ = &next;
  return ok_status();
}

Status Series::run_in_parts(const Measurement& of, std::size_t first,
                            std::span<const TokenId> window, LogitsSink& sink) {
  const auto stop = ranges::find(stops_, of.group->first_layer) - stops_.begin();
  const std::span<const float> rows = rows_at(static_cast<std::size_t>(stop), first, window.size());
  hidden_.assign(rows.begin(), rows.end());
  const bool to_end = of.end() == spec_.n_layers;
  QSF_RETURN_IF_ERROR(changed_->engine->run_layers(window, of.group->first_layer, of.end(), hidden_,
                                                   to_end ? &sink : nullptr));
  if (to_end) return ok_status();
  return reference_->engine->run_layers(window, of.end(), spec_.n_layers, hidden_, &sink);
}

Result<double> Series::measure(std::size_t index) {
  const Measurement& of = measurements_[index];
  QSF_RETURN_IF_ERROR(open_changed(of));
  const bool in_parts = reference_ != nullptr && of.in_layers();
  return meter_.measure([&](std::size_t first, std::span<const TokenId> window, LogitsSink& sink) {
    return in_parts ? run_in_parts(of, first, window, sink)
                    : run_whole(*changed_->engine, window, sink);
  });
}

// Returns how many of the list, from its start, were measured before with as many rows.
std::size_t n_known_probes(const Calibration& calibration, std::uint64_t n_rows,
                           const std::vector<Measurement>& measurements) {
  if (calibration.n_probe_rows != n_rows) return 0;
  const std::size_t n = std::min(calibration.probes.size(), measurements.size());
  for (std::size_t i = 0; i < n; ++i) {
    const double divergence = calibration.probes[i].divergence;
    if (!(measurements[i].probe(divergence) == calibration.probes[i])) return i;
  }
  return n;
}

// Returns how many layers of one kind are probed together.
std::uint32_t layers_of_group(std::size_t n_kinds, std::size_t n_others, std::uint32_t n_layers) {
  const std::size_t room = kMaxGroups > n_others ? kMaxGroups - n_others : 0;
  const std::size_t bands = std::max<std::size_t>(room / std::max<std::size_t>(n_kinds, 1), 1);
  return ceil_div(n_layers, static_cast<std::uint32_t>(std::min<std::size_t>(bands, n_layers)));
}

}  // namespace

Result<std::vector<TensorGroup>> sensitivity_groups(const ModelSource& source) {
  std::vector<SourcePlace> matrices;
  std::set<TensorKind> kinds;  // of layers
  std::size_t n_others = 0;
  for (const SourcePlace& t : tensors_of(source)) {
    if (t.source->rows == 1 || t.source->kind == TensorKind::kPositionEmbedding) continue;
    if (t.source->kind == TensorKind::kRouter) continue;  // stays f32
    const bool in_layer = t.section.kind == SectionKind::kLayer;
    if (in_layer) {
      QSF_ASSIGN_OR_RETURN(const bool ternary, is_natively_ternary(source, t));
      if (ternary) continue;
      kinds.insert(t.source->kind);
    }
    n_others += in_layer ? 0 : 1;
    matrices.push_back(t);
  }
  const std::uint32_t band = layers_of_group(kinds.size(), n_others, source.spec().n_layers);
  std::vector<TensorGroup> groups;
  std::map<std::pair<TensorKind, std::uint32_t>, std::size_t> known;
  for (const SourcePlace& t : matrices) {
    const std::uint32_t first = t.section.layer / band * band;
    const auto [at, is_new] = known.try_emplace({t.source->kind, first}, groups.size());
    if (is_new) {
      const bool in_layer = t.section.kind == SectionKind::kLayer;
      groups.push_back(
          {t.source->kind,
           first,
           in_layer ? std::min(band, source.spec().n_layers - first) : std::uint32_t{1},
           {}});
    }
    groups[at->second].members.push_back(t);
  }
  return groups;
}

std::uint64_t probe_rows(const ModelSpec& spec, std::uint64_t n_weights, std::size_t n_probes,
                         std::uint64_t budget_bytes) noexcept {
  constexpr std::uint64_t kMultiplications = 2'000'000'000'000;
  const std::uint64_t of_row = std::max<std::uint64_t>(n_weights * n_probes, 1);
  std::uint64_t n_rows = std::clamp<std::uint64_t>(kMultiplications / of_row, 256, 2048);
  if (budget_bytes != 0) {
    const std::uint64_t room = budget_bytes / 8 / DivergenceMeter::memory_bytes(1, spec.n_vocab);
    n_rows = std::clamp<std::uint64_t>(n_rows, 1, std::max<std::uint64_t>(room, 1));
  }
  return n_rows;
}

Status measure_sensitivities(const ModelSource& source, std::span<const TokenId> tokens,
                             const std::string& output, const SensitivityOptions& options,
                             Calibration& calibration) {
  QSF_ASSIGN_OR_RETURN(const std::vector<TensorGroup> groups, sensitivity_groups(source));
  const std::vector<Measurement> measurements = measurements_of(groups);
  const std::size_t n_probes = measurements.size();
  std::uint64_t n_weights = 0;
  for (const SourcePlace& t : tensors_of(source)) n_weights += t.n_weights();
  const std::uint64_t n_rows = std::min<std::uint64_t>(
      probe_rows(source.spec(), n_weights, n_probes, options.collect.ram_budget_bytes),
      tokens.size());
  calibration.probes.resize(n_known_probes(calibration, n_rows, measurements));
  calibration.n_probe_rows = n_rows;
  if (calibration.probes.size() == n_probes) return ok_status();
  Series series(source, tokens.first(n_rows), output, options, measurements);
  QSF_RETURN_IF_ERROR(series.take_reference());
  while (calibration.probes.size() < n_probes) {
    const std::size_t next = calibration.probes.size();
    QSF_ASSIGN_OR_RETURN(const double divergence, series.measure(next));
    calibration.probes.push_back(measurements[next].probe(divergence));
    if (options.on_probe) {
      QSF_RETURN_IF_ERROR(options.on_probe(calibration.probes.size(), n_probes));
    }
  }
  return ok_status();
}

}  // namespace qsf
