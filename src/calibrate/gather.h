// SPDX-License-Identifier: MIT
//
// Gathering: a model runs over a text, window by window, and what its matrices multiply is summed;
// then each layer is left out in turn, and what that costs the text is measured.
//
// The passes are the engine's own, on its exact path with keys and values in f32, so weights are
// streamed where the budget does not hold them. The same file, text and window give the same bits
// at any number of threads and in any budget.

#ifndef QSF_CALIBRATE_GATHER_H_
#define QSF_CALIBRATE_GATHER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "calibrate/calibration.h"
#include "calibrate/pass_observer.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

struct GatherProgress {
  std::optional<std::uint32_t> skipped_layer;  // that is left out now; none: nothing is
  std::uint64_t done_rows = 0;
  std::uint64_t total_rows = 0;  // of the whole run
};

struct GatherOptions {
  std::uint32_t context = 512;         // tokens of a window
  unsigned n_threads = 0;              // as EngineOptions
  std::uint64_t ram_budget_bytes = 0;  // the same, the sums included
  std::uint64_t feed_bytes = 0;        // of the budget that feed()'s consumers take
  // Called behind every window.
  std::function<void(const GatherProgress&)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked at every operator
  LogSink log;
};

class Gatherer {
 public:
  // Opens a .qsf file. It may be removed as soon as this returns.
  // Fails  as Engine::open
  static Result<std::unique_ptr<Gatherer>> open(const std::string& path,
                                                const GatherOptions& options);

  // Runs the windows that `tokens` consist of, of which only the last may be shorter; at least two
  // tokens. All but Calibration::model is filled in.
  // Fails  as Engine::score
  Result<Calibration> run(std::span<const TokenId> tokens);

  // Runs the windows for somebody else, who sees every row that run() sees.
  // Requires  tokens and Fails  as run()
  Status feed(std::span<const TokenId> tokens, RowConsumer& consumer);

  const ModelSpec& spec() const noexcept { return engine_->spec(); }

 private:
  explicit Gatherer(const GatherOptions& options) : options_(options), observer_(options.cancel) {}
  std::span<const TokenId> window(std::span<const TokenId> tokens, std::size_t index) const;
  // Adds to `loss` that of a window.
  Status score(std::span<const TokenId> window, double& loss);
  // `losses` are those of the first windows.
  Status sum_columns(std::span<const TokenId> tokens, std::span<double> losses,
                     Calibration& calibration);
  Status leave_out_layers(std::span<const TokenId> tokens, std::span<const double> losses,
                          Calibration& calibration);

  GatherOptions options_;
  PassObserver observer_;
  std::unique_ptr<Engine> engine_;  // behind the observer, which outlives it
  std::vector<double> log_probs_;
  std::optional<std::uint32_t> skipped_;
  std::uint64_t done_rows_ = 0;  // of run()
  std::uint64_t total_rows_ = 0;
};

}  // namespace qsf

#endif  // QSF_CALIBRATE_GATHER_H_
