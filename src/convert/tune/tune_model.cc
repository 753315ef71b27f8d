// SPDX-License-Identifier: MIT

#include "convert/tune/tune_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "base/rng.h"
#include "convert/encode/encode_rows.h"
#include "convert/tune/layer_graph.h"
#include "convert/tune/tune_gradients.h"
#include "convert/tune/tune_state.h"

namespace qsf {
namespace {

constexpr const char* kStateName = "tuning";
constexpr std::size_t kHeldOutShare = 10;
constexpr std::uint64_t kStepsPerState = 16;  // from one saved state to the next

class Tuner {
 public:
  Tuner(const ModelSource& original, TunedModel& tuned, std::span<const TokenId> tokens,
        const TuneOptions& options)
      : source_(original),
        options_(options),
        tuned_(tuned),
        gradients_(original, tuned, tokens,
                   {options.context, options.n_threads, options.cache_bytes, options.cancel}) {
    // The end of the text, which has least in common with the rest.
    const std::size_t n = gradients_.n_windows();
    const std::size_t n_trained = n - std::max<std::size_t>(n / kHeldOutShare, 1);
    for (std::size_t i = 0; i < n; ++i) (i < n_trained ? trained_ : held_out_).push_back(i);
  }

  Status run(TuneState& state);
  std::size_t n_trained() const noexcept { return trained_.size(); }
  std::size_t n_held_out() const noexcept { return held_out_.size(); }

 private:
  Status measure(TuneState& state);
  std::vector<std::size_t> order_of(std::uint64_t epoch) const;
  void report(const TuneState& state) const;
  void drop_cached() const;

  const ModelSource& source_;
  const TuneOptions& options_;
  TunedModel& tuned_;
  TuneGradients gradients_;
  std::vector<std::size_t> trained_, held_out_;  // windows
};

void Tuner::drop_cached() const {
  if (options_.drops_cached) {
    source_.drop_cached();
    tuned_.drop_cached();
  }
}

void Tuner::report(const TuneState& state) const {
  if (options_.on_progress) options_.on_progress({state.n_done, state.n_steps, state.least});
}

// Keeps the factors where no others were better.
Status Tuner::measure(TuneState& state) {
  double sum = 0.0;
  for (const std::size_t window : held_out_) {
    QSF_ASSIGN_OR_RETURN(const double divergence, gradients_.divergence(window));
    sum += divergence;
    drop_cached();
  }
  const double mean = sum / static_cast<double>(held_out_.size());
  if (state.is_measured == 0) state.before = mean;
  if (state.is_measured == 0 || mean < state.least) {
    state.least = mean;
    state.best = state.factors;
  }
  state.is_measured = 1;
  return ok_status();
}

std::vector<std::size_t> Tuner::order_of(std::uint64_t epoch) const {
  std::vector<std::size_t> order = trained_;
  Rng rng(1 + epoch);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
  }
  return order;
}

Status Tuner::run(TuneState& state) {
  const std::string path =
      options_.folder.empty() ? std::string() : options_.folder + "/" + kStateName;
  if (!path.empty()) QSF_RETURN_IF_ERROR(state.read(path));
  const auto save = [&] { return path.empty() ? ok_status() : state.write(path); };
  ranges::copy(state.factors, tuned_.factors().begin());
  if (state.is_measured == 0) {
    report(state);
    QSF_RETURN_IF_ERROR(measure(state));
    QSF_RETURN_IF_ERROR(save());
  }
  std::vector<std::size_t> order;
  while (state.n_done < state.n_steps) {
    report(state);
    const std::uint64_t at = state.n_done % trained_.size();
    if (order.empty() || at == 0) order = order_of(state.n_done / trained_.size());
    QSF_ASSIGN_OR_RETURN(const double divergence, gradients_.find(order[at]));
    if (!std::isfinite(divergence)) {
      return internal_error("tuning: the divergence of a window is not finite");
    }
    drop_cached();
    const float left = 1.0F - static_cast<float>(state.n_done) / static_cast<float>(state.n_steps);
    state.step(tuned_.gradients(), options_.learning_rate * left);
    ranges::copy(state.factors, tuned_.factors().begin());
    const bool epoch_ends = at + 1 == trained_.size();
    if (epoch_ends) QSF_RETURN_IF_ERROR(measure(state));
    if (epoch_ends || state.n_done % kStepsPerState == 0) QSF_RETURN_IF_ERROR(save());
  }
  report(state);
  ranges::copy(state.best, tuned_.factors().begin());
  return ok_status();
}

}  // namespace

Status check_tunable(const ModelSpec& spec) {
  return LayerGraph::check(spec);
}

std::vector<std::string> tune_folder_names() {
  return {kStateName};
}

std::uint64_t tune_memory_bytes(const ModelSource& original, const QsfReader& converted,
                                std::uint32_t context, unsigned n_threads) {
  std::uint64_t n_factors = 0;
  for (const SectionDirectory& section : converted.directories()) {
    for (const TensorInfo& info : section.tensors) n_factors += tuned_tensor(info, 0).n_factors();
  }
  constexpr std::uint64_t kStateCopies = 4;
  return TunedModel::memory_bytes(converted) + kStateCopies * n_factors * sizeof(float) +
         TuneGradients::memory_bytes(original.spec(), context, n_threads) +
         n_threads * (TunedModel::thread_bytes(converted) + original.read_buffer_bytes()) +
         original.resident_bytes();
}

Result<TuneReport> tune_model(const ModelSource& original, const QsfReader& converted,
                              std::span<const TokenId> tokens, const std::string& path,
                              const TuneOptions& options, FileOps& ops) {
  QSF_RETURN_IF_ERROR(check_tunable(original.spec()));
  if (tokens.size() < 2 * std::size_t{options.context}) {
    return invalid_argument("%zu tokens to tune with, expected at least two windows of %u",
                            tokens.size(), options.context);
  }
  QSF_CHECK(tokens.size() % options.context == 0 && options.n_epochs > 0);
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<TunedModel> tuned,
                       TunedModel::open(converted, options.n_threads));
  if (tuned->factors().empty()) {
    return invalid_argument("no tensor has a scale or a norm to tune");
  }
  Tuner tuner(original, *tuned, tokens, options);
  TuneState state(tuned->factors().size(), options.n_epochs * tuner.n_trained());
  QSF_RETURN_IF_ERROR(tuner.run(state));
  TuneReport report = {.before = state.before,
                       .after = state.least,
                       .n_windows = tuner.n_trained(),
                       .n_held_out = tuner.n_held_out(),
                       .n_factors = state.factors.size(),
                       .bytes = {}};
  QSF_ASSIGN_OR_RETURN(report.bytes,
                       tuned->write(path, options.compression, options.tile_bytes, ops));
  return report;
}

}  // namespace qsf
