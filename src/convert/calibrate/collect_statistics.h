// SPDX-License-Identifier: MIT
//
// Collects the statistics of a calibration: runs a model over a calibration set, window by window,
// and sums the squares of the inputs of its matrices; then skips each layer in turn and measures
// the rise of the loss.
//
// The engine runs on its exact path with an f32 KV cache and streams weights when the budget does
// not hold them. The same file, tokens and window length give the same bits at any number of
// threads and in any budget.

#ifndef QSF_CONVERT_CALIBRATE_COLLECT_STATISTICS_H_
#define QSF_CONVERT_CALIBRATE_COLLECT_STATISTICS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "base/result.h"
#include "base/status.h"
#include "convert/calibrate/calibration.h"
#include "convert/calibrate/expert_choices.h"
#include "convert/calibrate/pass_observer.h"
#include "convert/calibrate/saved_hidden_rows.h"
#include "engine/engine.h"
#include "format/model_spec.h"
#include "io/file_ops.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Sums of squares of the input columns of every matrix product, and of cosines between the input
// and output of every layer. Sums are f64 and added in the order of positions, so their bits depend
// on neither threads nor budget; 65,536 rows round a sum by at most 7e-12 of its value.
class ColumnSums final : public RowConsumer {
 public:
  explicit ColumnSums(const ModelSpec& spec);
  static std::uint64_t memory_bytes(const ModelSpec& spec) noexcept;

  void take_input(const InputPlace& place, std::span<const float> row) override;
  void take_layer(std::uint32_t layer, std::span<const float> in,
                  std::span<const float> out) override;

  // All sums in a fixed order, for saving to a file and loading.
  std::vector<MutableByteSpan> parts();

  // Returns the number of summed rows.
  std::uint64_t n_rows(const InputPlace& place) const noexcept {
    return sums_[index(place)].n_rows;
  }
  // Returns the largest magnitude of a value; 0 without rows.
  float largest(const InputPlace& place) const noexcept { return sums_[index(place)].largest; }
  // Returns the mean square of each column; zeros without rows.
  std::vector<float> mean_squares(const InputPlace& place) const;
  // Returns the mean cosine of a layer's input and output; 1 without rows.
  double mean_cosine(std::uint32_t layer) const noexcept;

 private:
  struct Sums {
    std::vector<double> squares;  // [input_cols]
    std::uint64_t n_rows = 0;
    float largest = 0.0F;
  };
  struct Cosines {
    double sum = 0.0;
    std::uint64_t n_rows = 0;
  };
  // The head comes first; the places of a layer as for_each_place() visits them.
  std::size_t index(const InputPlace& place) const noexcept {
    if (place.input == ProductInput::kHead) return 0;
    const std::size_t layer = 1 + std::size_t{place.layer} * places_per_layer_;
    if (place.expert == InputPlace::kNoExpert) {
      return layer + static_cast<std::size_t>(place.input);
    }
    const std::size_t down = place.input == ProductInput::kDown ? 1 : 0;
    return layer + kInputsPerLayer + 2 * std::size_t{place.expert} + down;
  }

  std::size_t places_per_layer_;
  std::vector<Sums> sums_;
  std::vector<Cosines> cosines_;  // by layer
};

// The progress and sums of StatisticsCollector::run(), saved to a file so that an interrupted run
// can resume (decision 033).
struct RunState {
  RunState(const ModelSpec& spec, std::size_t n_windows, std::uint64_t n_rows)
      : losses(n_windows), skip_losses(spec.n_layers), sums(spec), choices(spec, n_rows) {}

  // Reads the state that write() saved for a run of the same model and number of windows. Without a
  // file the state does not change.
  // Fails  kCorrupt on a damaged file or one of another run; kIo. The state is then invalid
  Status read(const std::string& path, FileOps& ops = system_file_ops());
  // Fails  kIo; an older file is kept
  Status write(const std::string& path, FileOps& ops = system_file_ops());

  std::uint64_t n_summed = 0;   // windows
  std::uint64_t n_skipped = 0;  // windows without a layer: all layers of one window, then the next
  std::vector<double> losses;   // of the windows, in nats
  std::vector<double> skip_losses;  // rise of the loss by skipped layer
  ColumnSums sums;
  ExpertChoices choices;

 private:
  std::vector<MutableByteSpan> parts();
};

struct CollectProgress {
  std::optional<std::uint32_t> skipped_layer;  // the layer skipped now, if any
  std::optional<std::uint32_t> first_layer;    // the first layer of run_layers()
  std::uint64_t done_rows = 0;
  std::uint64_t total_rows = 0;  // of the whole run
};

struct CollectOptions {
  std::uint32_t context = 512;  // tokens of a window
  unsigned n_threads = 0;       // as EngineOptions
  // As EngineOptions. Int8 rows take less than half of the time where weights are coded.
  bool exact = true;
  std::uint64_t ram_budget_bytes = 0;  // as EngineOptions, including the sums
  std::uint64_t consumer_bytes = 0;    // of the budget, for the consumers of run_layers()
  std::uint64_t other_bytes = 0;       // added to the budget that an error names
  // Called after every window.
  std::function<void(const CollectProgress&)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked at every operator
  LogSink log;
};

class StatisticsCollector {
 public:
  // Opens a .qsf file, which may be removed when this returns.
  // Fails  as Engine::open; on too small a budget, naming the smallest that works
  static Result<std::unique_ptr<StatisticsCollector>> open(const std::string& path,
                                                           const CollectOptions& options);

  // Runs the windows of `tokens`, of which only the last may be shorter, and returns a Calibration
  // without `model`. `state_path` names a file to resume from and to save the state to. The rows of
  // the windows that are summed are handed to `also` as well, if it is not null.
  // Requires  at least two tokens; a state or `also`, not both
  // Fails  as Engine::score, RunState::read and RunState::write
  Result<Calibration> run(std::span<const TokenId> tokens, const std::string& state_path = {},
                          RowConsumer* also = nullptr);

  // Lets a call of run_layers() continue where another ended, by saving the hidden rows between
  // layers: in an unlinked file beside the .qsf file, or in `folder`, where an earlier process may
  // have saved the rows of these tokens. Fails  as SavedHiddenRows::create and
  // SavedHiddenRows::open_in
  Status save_hidden_rows(std::size_t n_tokens, const std::string& folder = {});

  // Runs the windows through layers [first, last) and hands their rows to `consumer`. Without saved
  // rows for layer `first`, earlier layers run as well and their rows are handed over too.
  // Requires  first < last <= layers; tokens and Fails  as run()
  Status run_layers(std::span<const TokenId> tokens, std::uint32_t first, std::uint32_t last,
                    RowConsumer& consumer);

  // Runs the windows that run() runs through the head, and hands the rows of all matrices to
  // `consumer`, those of the head among them. Requires and Fails  as run()
  Status run_head(std::span<const TokenId> tokens, RowConsumer& consumer);

  const ModelSpec& spec() const noexcept { return engine_->spec(); }

 private:
  explicit StatisticsCollector(const std::string& path, const CollectOptions& options)
      : path_(path), options_(options), observer_(options.cancel) {}
  std::span<const TokenId> window(std::span<const TokenId> tokens, std::size_t index) const;
  Status run_window_layers(std::span<const TokenId> tokens, std::size_t index, std::uint32_t first,
                           std::uint32_t last);
  void report(std::size_t n_rows);
  // Adds to `loss` that of a window.
  Status score(std::span<const TokenId> window, double& loss);
  // The same without the skipped layer, from the rows in front of it.
  Status score_without(std::size_t index, std::span<const TokenId> window, double& loss);
  Status sum_columns(std::span<const TokenId> tokens, RunState& state,
                     const std::string& state_path, RowConsumer* also);
  Status leave_out_layers(std::span<const TokenId> tokens, std::size_t n_windows, RunState& state,
                          const std::string& state_path);

  std::string path_;
  CollectOptions options_;
  PassObserver observer_;
  std::unique_ptr<Engine> engine_;  // behind the observer, which outlives it
  std::vector<double> log_probs_;
  std::unique_ptr<SavedHiddenRows> kept_;
  std::vector<float> hidden_;  // of a window, where none are kept
  // The rows of a window in front of a layer, for score_without().
  struct {
    std::vector<float> rows;
    std::size_t window = 0;
    std::uint32_t layer = 0;
  } front_;
  std::optional<std::uint32_t> skipped_;
  std::optional<std::uint32_t> first_layer_;
  std::uint64_t done_rows_ = 0;  // of run(), or of run_layers()
  std::uint64_t total_rows_ = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_COLLECT_STATISTICS_H_
