// SPDX-License-Identifier: MIT

#include "convert/choose/sensitivity.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "convert/calibrate/model_copy.h"
#include "convert/calibrate/pass_observer.h"
#include "convert/choose/divergence.h"
#include "convert/choose/format_choice.h"
#include "convert/encode/transcode_types.h"
#include "engine/engine.h"

namespace qsf {
namespace {

// Writes files and runs them.
class Prober {
 public:
  Prober(const ModelSource& source, const std::string& output, const SensitivityOptions& options)
      : source_(source), options_(options), file_(output), observer_(options.collect.cancel) {}

  // Opens the model with matrices in the formats given, the others as they are.
  Result<std::unique_ptr<Engine>> open(const TensorFormats& formats, std::uint64_t own_bytes);

 private:
  const ModelSource& source_;
  const SensitivityOptions& options_;
  TemporaryName file_;
  PassObserver observer_;  // for cancellations alone
};

Result<std::unique_ptr<Engine>> Prober::open(const TensorFormats& formats,
                                             std::uint64_t own_bytes) {
  TranscodeOptions transcode_options = options_.transcode;
  transcode_options.formats = &formats;
  transcode_options.on_progress = nullptr;
  QSF_RETURN_IF_ERROR(write_copy(source_, file_.path(), transcode_options));
  const CollectOptions& collect = options_.collect;
  EngineOptions engine;
  engine.n_threads = collect.n_threads;
  engine.max_context = collect.context;
  engine.k_type = KvType::kF32;
  engine.v_type = KvType::kF32;
  engine.exact = true;
  engine.preload = false;
  engine.observer = &observer_;
  engine.log = collect.log;
  if (collect.ram_budget_bytes != 0) {
    if (own_bytes >= collect.ram_budget_bytes) {
      return out_of_budget("logits of the sensitivity measurement need %.1f MB; raise the budget",
                           static_cast<double>(own_bytes) / 1e6);
    }
    engine.ram_budget_bytes = collect.ram_budget_bytes - own_bytes;
  }
  auto opened = Engine::open(file_.path(), engine);
  file_.remove();
  if (!opened) return std::move(opened).error().with_context("measuring sensitivities");
  observer_.attach(**opened);
  return opened;
}

Status set_formats(TensorFormats& formats, const TensorGroup& group, BlockFormat format) {
  for (const SourcePlace& member : group.members) {
    QSF_RETURN_IF_ERROR(formats.set(group.kind, member.section.layer, format));
  }
  return ok_status();
}

// Returns what is to be measured at a place of the list: every group in each format.
Probe probe_at(const std::vector<TensorGroup>& groups, std::size_t index) {
  const TensorGroup& group = groups[index / std::size(kProbeFormats)];
  return {group.kind, group.first_layer, group.n_layers,
          kProbeFormats[index % std::size(kProbeFormats)], 0.0};
}

// Returns how many of the list, from its start, were measured before with as many rows.
std::size_t n_known_probes(const Calibration& calibration, std::uint64_t n_rows,
                           const std::vector<TensorGroup>& groups) {
  if (calibration.n_probe_rows != n_rows) return 0;
  const std::size_t n =
      std::min(calibration.probes.size(), groups.size() * std::size(kProbeFormats));
  for (std::size_t i = 0; i < n; ++i) {
    Probe probe = probe_at(groups, i);
    probe.divergence = calibration.probes[i].divergence;
    if (!(probe == calibration.probes[i])) return i;
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
  const std::size_t n_probes = groups.size() * std::size(kProbeFormats);
  std::uint64_t n_weights = 0;
  for (const SourcePlace& t : tensors_of(source)) n_weights += t.n_weights();
  const std::uint64_t n_rows = std::min<std::uint64_t>(
      probe_rows(source.spec(), n_weights, n_probes, options.collect.ram_budget_bytes),
      tokens.size());
  calibration.probes.resize(n_known_probes(calibration, n_rows, groups));
  calibration.n_probe_rows = n_rows;
  if (calibration.probes.size() == n_probes) return ok_status();
  const std::uint32_t n_vocab = source.spec().n_vocab;
  const std::uint64_t own_bytes = DivergenceMeter::memory_bytes(n_rows, n_vocab);
  DivergenceMeter meter(tokens.first(n_rows), options.collect.context, n_vocab);
  Prober prober(source, output, options);
  {
    QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, prober.open({}, own_bytes));
    QSF_RETURN_IF_ERROR(meter.take_reference(*engine));
  }
  while (calibration.probes.size() < n_probes) {
    Probe probe = probe_at(groups, calibration.probes.size());
    TensorFormats formats;
    QSF_RETURN_IF_ERROR(set_formats(
        formats, groups[calibration.probes.size() / std::size(kProbeFormats)], probe.format));
    QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, prober.open(formats, own_bytes));
    QSF_ASSIGN_OR_RETURN(probe.divergence, meter.measure(*engine));
    calibration.probes.push_back(probe);
    if (options.on_probe) {
      QSF_RETURN_IF_ERROR(options.on_probe(calibration.probes.size(), n_probes));
    }
  }
  return ok_status();
}

}  // namespace qsf
