// SPDX-License-Identifier: MIT

#include "convert/calibrate/collect_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/engine_plan.h"
#include "format/qsf_reader.h"

namespace qsf {
namespace {

bool is_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// How often a run writes its state while it sums columns.
constexpr std::size_t kStatesPerPass = 16;

// Fills in what the sums of all windows say.
void fill_means(const RunState& state, Calibration& calibration) {
  for (const double loss : state.losses) calibration.loss += loss;
  calibration.loss /= static_cast<double>(calibration.n_rows);
  calibration.layers.resize(state.skip_losses.size());
  for (std::uint32_t layer = 0; layer < calibration.layers.size(); ++layer) {
    LayerCalibration& to = calibration.layers[layer];
    to.cosine = state.sums.mean_cosine(layer);
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      const auto input = static_cast<ProductInput>(i);
      QSF_CHECK(state.sums.n_rows(input, layer) == calibration.n_rows);
      to.mean_squares[i] = state.sums.mean_squares(input, layer);
    }
  }
  QSF_CHECK(state.sums.n_rows(ProductInput::kHead, 0) == calibration.n_rows);
  calibration.head_mean_squares = state.sums.mean_squares(ProductInput::kHead, 0);
}

// Tells the least budget, in whole MB, in which the model runs beside other bytes.
Status too_small(const std::string& path, EngineOptions engine, std::uint64_t other_bytes) {
  constexpr std::uint64_t kMegabyte = 1'000'000;
  // With more memory there are more threads, and each leaves something in the heap.
  constexpr std::uint64_t kHeapMegabytes = 2;
  const auto fits = [&](std::uint64_t n_megabytes) {
    engine.ram_budget_bytes = n_megabytes * kMegabyte;
    return Engine::plan_file(path, engine).has_value();
  };
  std::uint64_t least = engine.ram_budget_bytes / kMegabyte;  // too little, as it was found
  std::uint64_t most = least + 1;
  while (!fits(most)) {
    least = most;
    most *= 2;
    if (most > UINT64_MAX / kMegabyte / 2) return Engine::plan_file(path, engine).error();
  }
  while (most - least > 1) {
    const std::uint64_t middle = least + (most - least) / 2;
    (fits(middle) ? most : least) = middle;
  }
  return out_of_budget(
      "calibration in windows of %u tokens needs %llu MB; raise the budget, or take shorter "
      "windows",
      engine.max_context,
      static_cast<unsigned long long>(most + ceil_div(other_bytes, kMegabyte) + kHeapMegabytes));
}

// Squares can leave the range of f32 where the values themselves do not, and so can differences of
// logits, which are finite where score() gives losses at all.
Status check_finite(const Calibration& calibration) {
  bool finite = is_finite(calibration.head_mean_squares) && is_loss(calibration.loss);
  for (const LayerCalibration& layer : calibration.layers) {
    for (const std::vector<float>& means : layer.mean_squares) finite = finite && is_finite(means);
    finite = finite && is_loss(layer.skip_loss);
  }
  if (finite) return ok_status();
  return corrupt(
      "the model's activations exceed 1e19, or its losses 3e38; its weights are damaged");
}

}  // namespace

Result<std::unique_ptr<Gatherer>> Gatherer::open(const std::string& path,
                                                 const GatherOptions& options) {
  if (options.context < 2) {
    return invalid_argument("windows of %u tokens, expected at least 2", options.context);
  }
  std::unique_ptr<Gatherer> gatherer(new Gatherer(path, options));
  std::uint64_t own_bytes = 0;
  {
    QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
    const ModelSpec& spec = reader.spec();
    // The means that become of sums, in f32, lie beside them in the end.
    own_bytes =
        2 * ColumnSums::memory_bytes(spec) + PassObserver::memory_bytes(spec, options.context);
    if (options.feed_bytes != 0) {
      own_bytes += options.feed_bytes +
                   SavedHiddenRows::memory_bytes(std::uint64_t{options.context} * spec.hidden);
    }
  }
  EngineOptions engine;
  engine.n_threads = options.n_threads;
  engine.max_context = options.context;
  engine.k_type = KvType::kF32;
  engine.v_type = KvType::kF32;
  engine.exact = true;
  engine.preload = false;  // so that a cancellation does not wait for all weights
  engine.observer = &gatherer->observer_;
  engine.log = options.log;
  if (options.ram_budget_bytes != 0) {
    engine.ram_budget_bytes = options.ram_budget_bytes > own_bytes
                                  ? options.ram_budget_bytes - own_bytes
                                  : std::uint64_t{1};
  }
  auto opened = Engine::open(path, engine);
  if (!opened && opened.error().code() == StatusCode::kOutOfBudget) {
    return too_small(path, engine, own_bytes + options.other_bytes);
  }
  if (!opened) return std::move(opened).error();
  gatherer->engine_ = std::move(*opened);
  gatherer->observer_.attach(*gatherer->engine_);
  return gatherer;
}

std::span<const TokenId> Gatherer::window(std::span<const TokenId> tokens,
                                          std::size_t index) const {
  const std::size_t first = index * options_.context;
  return tokens.subspan(first, std::min<std::size_t>(options_.context, tokens.size() - first));
}

Status Gatherer::score(std::span<const TokenId> window, double& loss) {
  log_probs_.resize(window.size() - 1);
  QSF_RETURN_IF_ERROR(engine_->score(window, 1, log_probs_));
  for (const double log_prob : log_probs_) loss -= log_prob;
  report(log_probs_.size());
  return ok_status();
}

void Gatherer::report(std::size_t n_rows) {
  done_rows_ += n_rows;
  if (!options_.on_progress) return;
  options_.on_progress({.skipped_layer = skipped_,
                        .fed_layer = fed_,
                        .done_rows = done_rows_,
                        .total_rows = total_rows_});
}

Result<Calibration> Gatherer::run(std::span<const TokenId> tokens, const std::string& state_path) {
  QSF_CHECK(tokens.size() >= 2);
  const auto n_layers = engine_->spec().n_layers;
  const std::size_t n_windows = ceil_div(tokens.size(), options_.context);
  // Leaving out every layer in turn takes as many windows together as gathering does, or one for
  // each layer where those are fewer.
  const std::size_t n_skip_windows = std::max<std::size_t>(n_windows / n_layers, 1);
  RunState state(engine_->spec(), n_windows);
  if (!state_path.empty()) QSF_RETURN_IF_ERROR(state.read(state_path));
  Calibration calibration;
  calibration.context = options_.context;
  done_rows_ = 0;
  for (std::size_t i = 0; i < n_windows; ++i) {
    const std::size_t n_rows = window(tokens, i).size() - 1;
    calibration.n_rows += n_rows;
    if (i < n_skip_windows) calibration.n_skip_rows += n_rows;
    if (i < state.n_summed) done_rows_ += n_rows;
  }
  done_rows_ += state.n_skipped * calibration.n_skip_rows;
  total_rows_ = calibration.n_rows + n_layers * calibration.n_skip_rows;
  QSF_RETURN_IF_ERROR(sum_columns(tokens, state, state_path));
  fill_means(state, calibration);
  QSF_RETURN_IF_ERROR(check_finite(calibration));
  QSF_RETURN_IF_ERROR(leave_out_layers(tokens, n_skip_windows, state, state_path));
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    calibration.layers[layer].skip_loss =
        state.skip_losses[layer] / static_cast<double>(calibration.n_skip_rows);
  }
  QSF_RETURN_IF_ERROR(check_finite(calibration));
  return calibration;
}

Status Gatherer::keep_rows(std::size_t n_tokens, const std::string& folder) {
  const std::size_t n_windows = ceil_div(n_tokens, options_.context);
  const std::size_t window_floats = std::size_t{options_.context} * spec().hidden;
  QSF_ASSIGN_OR_RETURN(
      kept_, folder.empty() ? SavedHiddenRows::create(path_ + ".rows", n_windows, window_floats)
                            : SavedHiddenRows::open_in(folder, n_windows, window_floats));
  return ok_status();
}

Status Gatherer::feed(std::span<const TokenId> tokens, std::uint32_t first, std::uint32_t last,
                      RowConsumer& consumer) {
  QSF_CHECK(tokens.size() >= 2 && first < last && last <= spec().n_layers);
  const std::size_t n_windows = ceil_div(tokens.size(), options_.context);
  std::uint32_t begin = 0;
  if (kept_ != nullptr) {
    QSF_ASSIGN_OR_RETURN(begin, kept_->start(first));
  }
  done_rows_ = 0;
  total_rows_ = tokens.size() - n_windows;
  fed_ = first;
  observer_.set_consumer(&consumer);
  observer_.set_first_layer(begin);
  Status status;
  for (std::size_t i = 0; i < n_windows && status.ok(); ++i) {
    status = feed_window(tokens, i, begin, last);
  }
  observer_.set_first_layer(0);
  observer_.set_consumer(nullptr);
  fed_.reset();
  QSF_RETURN_IF_ERROR(std::move(status));
  if (kept_ != nullptr && last < spec().n_layers) return kept_->finish(last);
  return ok_status();
}

Status Gatherer::feed_window(std::span<const TokenId> tokens, std::size_t index,
                             std::uint32_t first, std::uint32_t last) {
  // The last token predicts nothing and is no row, as in run().
  const std::span<const TokenId> inputs = window(tokens, index);
  const std::size_t n_rows = inputs.size() - 1;
  if (kept_ == nullptr) hidden_.resize(n_rows * spec().hidden);
  const std::span<float> hidden =
      (kept_ == nullptr ? std::span(hidden_) : kept_->window()).first(n_rows * spec().hidden);
  if (first > 0) QSF_RETURN_IF_ERROR(kept_->read(index));
  QSF_RETURN_IF_ERROR(engine_->run_layers(inputs.first(n_rows), first, last, hidden));
  if (!is_finite(hidden)) {
    return corrupt("the model's activations are not finite; its weights are damaged");
  }
  if (kept_ != nullptr && last < spec().n_layers) QSF_RETURN_IF_ERROR(kept_->write(index));
  report(n_rows);
  return ok_status();
}

Status Gatherer::sum_columns(std::span<const TokenId> tokens, RunState& state,
                             const std::string& state_path) {
  const std::size_t n_windows = state.losses.size();
  const std::size_t n_between_writes = ceil_div(n_windows, kStatesPerPass);
  observer_.set_consumer(&state.sums);
  Status status;
  while (state.n_summed < n_windows && status.ok()) {
    status = score(window(tokens, state.n_summed), state.losses[state.n_summed]);
    if (!status.ok()) break;
    ++state.n_summed;
    if (state_path.empty() || state.n_summed % n_between_writes != 0) continue;
    status = state.write(state_path);
  }
  observer_.set_consumer(nullptr);
  return status;
}

Status Gatherer::leave_out_layers(std::span<const TokenId> tokens, std::size_t n_windows,
                                  RunState& state, const std::string& state_path) {
  Status status;
  while (state.n_skipped < state.skip_losses.size() && status.ok()) {
    const auto layer = static_cast<std::uint32_t>(state.n_skipped);
    skipped_ = layer;
    observer_.set_skipped(layer);
    double cost = 0.0;
    for (std::size_t i = 0; i < n_windows && status.ok(); ++i) {
      cost -= state.losses[i];
      status = score(window(tokens, i), cost);
    }
    if (!status.ok()) break;
    state.skip_losses[layer] = cost;
    ++state.n_skipped;
    if (!state_path.empty()) status = state.write(state_path);
  }
  skipped_.reset();
  observer_.set_skipped(std::nullopt);
  return status;
}

}  // namespace qsf
