// SPDX-License-Identifier: MIT

#include "calibrate/gather.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "calibrate/column_sums.h"
#include "format/qsf_reader.h"

namespace qsf {
namespace {

bool is_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// Squares can leave the range of f32 where the values themselves do not.
Status check_finite(const Calibration& calibration) {
  bool finite = is_finite(calibration.head_mean_squares);
  for (const LayerCalibration& layer : calibration.layers) {
    for (const std::vector<float>& means : layer.mean_squares) finite = finite && is_finite(means);
  }
  if (finite) return ok_status();
  return corrupt("the model's activations exceed 1e19; its weights are damaged");
}

}  // namespace

Result<std::unique_ptr<Gatherer>> Gatherer::open(const std::string& path,
                                                 const GatherOptions& options) {
  if (options.context < 2) {
    return invalid_argument("windows of %u tokens, expected at least 2", options.context);
  }
  std::unique_ptr<Gatherer> gatherer(new Gatherer(options));
  std::uint64_t own_bytes = 0;
  {
    QSF_ASSIGN_OR_RETURN(const QsfReader reader, QsfReader::open(path));
    const ModelSpec& spec = reader.spec();
    // The means that become of sums, in f32, lie beside them in the end.
    own_bytes =
        2 * ColumnSums::memory_bytes(spec) + PassObserver::memory_bytes(spec, options.context);
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
    if (own_bytes >= options.ram_budget_bytes) {
      return out_of_budget("calibration needs %.1f MB for sums alone; raise the budget",
                           static_cast<double>(own_bytes) / 1e6);
    }
    engine.ram_budget_bytes = options.ram_budget_bytes - own_bytes;
  }
  auto opened = Engine::open(path, engine);
  if (!opened) {
    Status status = std::move(opened).error();
    if (status.code() != StatusCode::kOutOfBudget) return status;
    char context[120];
    std::snprintf(context, sizeof context,
                  "running the model for calibration, beside %.1f MB of sums",
                  static_cast<double>(own_bytes) / 1e6);
    return std::move(status).with_context(context);
  }
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
  return ok_status();
}

Result<Calibration> Gatherer::run(std::span<const TokenId> tokens) {
  const ModelSpec& spec = engine_->spec();
  const std::size_t n_windows = ceil_div(tokens.size(), options_.context);
  Calibration calibration;
  calibration.context = options_.context;
  calibration.layers.resize(spec.n_layers);
  std::vector<double> losses(n_windows);
  {
    ColumnSums sums(spec);
    observer_.set_consumer(&sums);
    Status status;
    for (std::size_t i = 0; i < n_windows && status.ok(); ++i) {
      status = score(window(tokens, i), losses[i]);
      calibration.n_rows += log_probs_.size();
      calibration.loss += losses[i];
      if (status.ok() && options_.on_progress) {
        options_.on_progress({.stage = "gathering",
                              .done_rows = calibration.n_rows,
                              .total_rows = tokens.size() - n_windows});
      }
    }
    observer_.set_consumer(nullptr);
    QSF_RETURN_IF_ERROR(std::move(status));
    calibration.loss /= static_cast<double>(calibration.n_rows);
    for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
      LayerCalibration& to = calibration.layers[layer];
      to.cosine = sums.mean_cosine(layer);
      for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
        to.mean_squares[i] = sums.mean_squares(static_cast<ProductInput>(i), layer);
      }
    }
    calibration.head_mean_squares = sums.mean_squares(ProductInput::kHead, 0);
  }
  QSF_RETURN_IF_ERROR(check_finite(calibration));
  QSF_RETURN_IF_ERROR(measure_skips(tokens, losses, calibration));
  return calibration;
}

// Leaving out every layer in turn takes as many windows together as gathering did, or one for each
// layer where those are fewer.
Status Gatherer::measure_skips(std::span<const TokenId> tokens, std::span<const double> losses,
                               Calibration& calibration) {
  const auto n_layers = static_cast<std::uint32_t>(calibration.layers.size());
  const std::size_t n_windows = std::max<std::size_t>(losses.size() / n_layers, 1);
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < n_windows; ++i) {
    calibration.n_skip_rows += window(tokens, i).size() - 1;
  }
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    observer_.set_skipped(layer);
    double cost = 0.0;
    Status status;
    for (std::size_t i = 0; i < n_windows && status.ok(); ++i) {
      cost -= losses[i];
      status = score(window(tokens, i), cost);
      done += log_probs_.size();
      if (status.ok() && options_.on_progress) {
        options_.on_progress({.stage = "leaving out",
                              .layer = layer,
                              .done_rows = done,
                              .total_rows = calibration.n_skip_rows * n_layers});
      }
    }
    observer_.set_skipped(std::nullopt);
    QSF_RETURN_IF_ERROR(std::move(status));
    calibration.layers[layer].skip_loss = cost / static_cast<double>(calibration.n_skip_rows);
  }
  return ok_status();
}

}  // namespace qsf
