// SPDX-License-Identifier: MIT
//
// Gathering: a model runs over a text, window by window, and what its matrices multiply is summed;
// then each layer is left out in turn, and what that costs the text is measured.
//
// The passes are the engine's own, on its exact path with keys and values in f32, so weights are
// streamed where the budget does not hold them. The same file, text and window give the same bits
// at any number of threads and in any budget.

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
#include "convert/calibrate/pass_observer.h"
#include "convert/calibrate/saved_hidden_rows.h"
#include "engine/engine.h"
#include "format/model_spec.h"
#include "io/file_ops.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// ColumnSums: sums of the squares of what every matrix multiplies, column by column, and of the
// cosines between what goes into a layer and what comes out.
//
// Sums are f64 and added in the order of positions, so they have the same bits at any number of
// threads and in any budget. 65,536 rows round each sum by 7e-12 of itself at most.

class ColumnSums final : public RowConsumer {
 public:
  explicit ColumnSums(const ModelSpec& spec);
  static std::uint64_t memory_bytes(const ModelSpec& spec) noexcept;

  void take_input(ProductInput input, std::uint32_t layer, std::span<const float> row) override;
  void take_layer(std::uint32_t layer, std::span<const float> in,
                  std::span<const float> out) override;

  // All that it holds, in one order, to be written to a file and read back.
  std::vector<MutableByteSpan> parts();

  // Rows that were taken at a place; means are over them.
  std::uint64_t n_rows(ProductInput input, std::uint32_t layer) const noexcept {
    return sums_[index(input, layer)].n_rows;
  }
  // Returns the mean of the squares of each column; zeros where no row was taken.
  std::vector<float> mean_squares(ProductInput input, std::uint32_t layer) const;
  // Returns the mean cosine of a layer's input and output; 1 where no row was taken.
  double mean_cosine(std::uint32_t layer) const noexcept;

 private:
  struct Sums {
    std::vector<double> squares;  // [input_cols]
    std::uint64_t n_rows = 0;
  };
  struct Cosines {
    double sum = 0.0;
    std::uint64_t n_rows = 0;
  };
  static std::size_t index(ProductInput input, std::uint32_t layer) noexcept {
    // The head's come first.
    if (input == ProductInput::kHead) return 0;
    return 1 + layer * kInputsPerLayer + static_cast<std::size_t>(input);
  }

  std::vector<Sums> sums_;
  std::vector<Cosines> cosines_;  // by layer
};

// RunState: how far Gatherer::run() has come and what it has summed by then, which a file keeps for
// a run that is started again (decision 033).

struct RunState {
  RunState(const ModelSpec& spec, std::size_t n_windows)
      : losses(n_windows), skip_losses(spec.n_layers), sums(spec) {}

  // Reads what write() has written for a run of the same model and as many windows; leaves all as
  // it is where there is no file.
  // Fails  kCorrupt on a file of another run, or a damaged one; kIo. Useless then
  Status read(const std::string& path, FileOps& ops = system_file_ops());
  // Fails  kIo; an older file is left then
  Status write(const std::string& path, FileOps& ops = system_file_ops());

  std::uint64_t n_summed = 0;       // windows
  std::uint64_t n_skipped = 0;      // layers that were left out
  std::vector<double> losses;       // of the windows, in nats
  std::vector<double> skip_losses;  // of the windows that run without a layer, more than with it
  ColumnSums sums;

 private:
  std::vector<MutableByteSpan> parts();
};

struct GatherProgress {
  std::optional<std::uint32_t> skipped_layer;  // that is left out now; none: nothing is
  std::optional<std::uint32_t> fed_layer;      // of feed(): the first that runs
  std::uint64_t done_rows = 0;
  std::uint64_t total_rows = 0;  // of the whole run
};

struct GatherOptions {
  std::uint32_t context = 512;         // tokens of a window
  unsigned n_threads = 0;              // as EngineOptions
  std::uint64_t ram_budget_bytes = 0;  // the same, the sums included
  std::uint64_t feed_bytes = 0;        // of the budget that feed()'s consumers take
  std::uint64_t other_bytes = 0;       // that a refusal adds to what it says is needed
  // Called behind every window.
  std::function<void(const GatherProgress&)> on_progress;
  const std::atomic<bool>* cancel = nullptr;  // checked at every operator
  LogSink log;
};

class Gatherer {
 public:
  // Opens a .qsf file. It may be removed as soon as this returns.
  // Fails  as Engine::open; of too small a budget, naming the least that works
  static Result<std::unique_ptr<Gatherer>> open(const std::string& path,
                                                const GatherOptions& options);

  // Runs the windows that `tokens` consist of, of which only the last may be shorter; at least two
  // tokens. All but Calibration::model is filled in. With a file's name in `state_path`, goes on
  // where a run with these tokens was that has written it, and writes it again and again.
  // Fails  as Engine::score, RunState::read and RunState::write
  Result<Calibration> run(std::span<const TokenId> tokens, const std::string& state_path = {});

  // Lets feed() of some layers go on where another has ended: by a file beside the one that was
  // opened, which has a name for a moment alone, or by files in `folder`, where another process has
  // kept rows of these tokens perhaps.
  // Fails  as SavedHiddenRows::create and SavedHiddenRows::open_in
  Status keep_rows(std::size_t n_tokens, const std::string& folder = {});

  // Runs the windows through layers [first, last) for somebody else, who sees every row of theirs
  // that run() sees, and those of layers in front of them where no rows are kept that go into layer
  // `first`: of a call before with these tokens, up to that layer.
  // Requires  first < last <= layers; tokens and Fails  as run()
  Status feed(std::span<const TokenId> tokens, std::uint32_t first, std::uint32_t last,
              RowConsumer& consumer);

  const ModelSpec& spec() const noexcept { return engine_->spec(); }

 private:
  explicit Gatherer(const std::string& path, const GatherOptions& options)
      : path_(path), options_(options), observer_(options.cancel) {}
  std::span<const TokenId> window(std::span<const TokenId> tokens, std::size_t index) const;
  Status feed_window(std::span<const TokenId> tokens, std::size_t index, std::uint32_t first,
                     std::uint32_t last);
  void report(std::size_t n_rows);
  // Adds to `loss` that of a window.
  Status score(std::span<const TokenId> window, double& loss);
  Status sum_columns(std::span<const TokenId> tokens, RunState& state,
                     const std::string& state_path);
  Status leave_out_layers(std::span<const TokenId> tokens, std::size_t n_windows, RunState& state,
                          const std::string& state_path);

  std::string path_;
  GatherOptions options_;
  PassObserver observer_;
  std::unique_ptr<Engine> engine_;  // behind the observer, which outlives it
  std::vector<double> log_probs_;
  std::unique_ptr<SavedHiddenRows> kept_;
  std::vector<float> hidden_;  // of a window, where none are kept
  std::optional<std::uint32_t> skipped_;
  std::optional<std::uint32_t> fed_;
  std::uint64_t done_rows_ = 0;  // of run(), or of feed()
  std::uint64_t total_rows_ = 0;
};

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_COLLECT_STATISTICS_H_
