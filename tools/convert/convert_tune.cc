// SPDX-License-Identifier: MIT

#include "tools/convert/convert_tune.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tools/common/tool_support.h"
#include "tools/convert/convert_calibrate.h"
#include "tools/convert/convert_checks.h"

namespace qsf_tools {

qsf::Result<TuneWindows> read_tune_windows(const ConvertOptions& options,
                                           const qsf::ModelSource& source,
                                           const qsf::TranscodeOptions& transcode) {
  const qsf::ModelSpec& spec = source.spec();
  QSF_RETURN_IF_ERROR(qsf::check_tunable(spec).with_context("--tune"));
  if (transcode.preset == qsf::QuantPreset::kKeep && options.target_bytes == 0) {
    return qsf::invalid_argument(
        "%s: --tune changes scales and norms, so weights cannot be kept; give a --quant-type",
        options.input.c_str());
  }
  if (transcode.tokenizer.empty()) {
    return qsf::unsupported("--tune: the model has no tokenizer to read a text with");
  }
  TuneWindows windows;
  windows.context = std::min(options.calibration_context, spec.max_positions);
  QSF_ASSIGN_OR_RETURN(windows.tokens,
                       read_windows(options, options.calibration, windows.context,
                                    options.calibration_tokens, transcode.tokenizer));
  if (windows.tokens.size() >= 2 * std::size_t{windows.context}) return windows;
  return qsf::invalid_argument(
      "%s: %zu tokens, expected at least two windows of %u for --tune; give a longer text, or a "
      "smaller --calibration-context",
      options.calibration.c_str(), windows.tokens.size(), windows.context);
}

qsf::Result<qsf::TuneReport> tune(const ConvertOptions& options, const qsf::ModelSource& source,
                                  const TuneWindows& windows, const qsf::QsfReader& converted,
                                  const qsf::TranscodeOptions& transcode,
                                  ConvertProgress& progress) {
  const std::uint64_t budget = options.ram_budget_bytes;
  const auto needed = [&](unsigned n_threads) {
    return program_bytes(n_threads) +
           qsf::tune_memory_bytes(source, converted, windows.context, n_threads);
  };
  qsf::TuneOptions tuning;
  tuning.n_threads = transcode.n_threads;
  while (tuning.n_threads > 1 && needed(tuning.n_threads) > budget) --tuning.n_threads;
  const std::uint64_t taken = needed(tuning.n_threads);
  if (taken > budget) {
    return qsf::out_of_budget(
        "--ram-budget %s: too small: --tune takes %s with one thread; raise the budget to %llu, or "
        "lower --calibration-context",
        megabytes(budget).c_str(), megabytes(taken).c_str(),
        static_cast<unsigned long long>(qsf::ceil_div(taken, std::uint64_t{1'000'000})));
  }
  // What is left is for the original's rows and, as far as files are small, for the page cache.
  const std::uint64_t left = budget - taken;
  tuning.drops_cached = left / 4 < converted.file().size_bytes();
  tuning.cache_bytes = left / 2;
  tuning.context = windows.context;
  tuning.n_epochs = options.tune_passes;
  tuning.folder = options.work_folder;
  tuning.compression = options.compression;
  tuning.tile_bytes = options.tile_bytes;
  tuning.cancel = transcode.cancel;
  tuning.on_progress = [&](const qsf::TuneProgress& done) {
    char item[64];
    std::snprintf(item, sizeof item, "divergence %.4f", done.divergence);
    progress.show("tuning", item, done.done_windows, done.total_windows);
  };
  auto report = qsf::tune_model(source, converted, windows.tokens, options.output, tuning);
  progress.clear();
  if (!report) return std::move(report).error();
  if (!options.quiet) {
    std::printf(
        "tuned %llu scales and norms on %llu windows: the divergence on %llu others fell from %.4f "
        "to %.4f nats\n",
        static_cast<unsigned long long>(report->n_factors),
        static_cast<unsigned long long>(report->n_windows),
        static_cast<unsigned long long>(report->n_held_out), report->before, report->after);
  }
  return report;
}

}  // namespace qsf_tools
