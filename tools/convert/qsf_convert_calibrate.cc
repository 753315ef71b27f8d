// SPDX-License-Identifier: MIT

#include "tools/convert/qsf_convert_calibrate.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "convert/calibrate/calibrate_model.h"
#include "convert/calibrate/calibration_file.h"
#include "io/file.h"
#include "tools/convert/qsf_convert_files.h"
#include "tools/convert/qsf_convert_memory.h"
#include "tools/convert/qsf_convert_report.h"

namespace qsf_tools {
namespace {

constexpr const char* kTool = "qsf-convert";
constexpr std::uint64_t kMegabyte = 1'000'000;

void print_warning(qsf::LogLevel level, std::string_view line, void*) {
  if (level == qsf::LogLevel::kWarning) {
    print_error(kTool, "warning: calibration: " + std::string(line));
  }
}

// Reads as much of a text as can be needed.
qsf::Result<std::string> read_text_start(const ConvertOptions& options) {
  QSF_ASSIGN_OR_RETURN(const qsf::File file, qsf::File::open(options.calibration));
  const std::uint64_t most = qsf::calibration_text_bytes(
      std::max<std::uint64_t>(options.calibration_tokens, options.calibration_context));
  std::string text(std::min(most, file.size_bytes()), '\0');
  QSF_RETURN_IF_ERROR(
      file.read_exact_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

// What of the budget a conversion takes beside what runs the model and feeds it.
std::uint64_t beside_bytes(const ConvertOptions& options, const qsf::ModelSource& source,
                           const qsf::TranscodeOptions& transcode) {
  return options.gptq ? conversion_bytes(source, transcode, true) : 0;
}

qsf::Result<qsf::CalibratedText> gather(const ConvertOptions& options,
                                        const qsf::ModelSource& source,
                                        const qsf::TranscodeOptions& transcode,
                                        ConvertProgress& progress) {
  QSF_ASSIGN_OR_RETURN(std::string text, read_text_start(options));
  qsf::CalibrateOptions calibrate;
  calibrate.transcode = transcode;
  calibrate.transcode.on_progress = [&](const qsf::TranscodeProgress& done) {
    progress.show("writing a copy to run", done.section, done.done_weights, done.total_weights);
  };
  calibrate.text_name = options.calibration;
  calibrate.max_tokens = options.calibration_tokens;
  calibrate.compensation = options.gptq;
  calibrate.sensitivities = options.target_bytes != 0;
  calibrate.folder = options.work_folder;
  calibrate.on_probe = [&](std::size_t done, std::size_t total) {
    progress.show("measuring what rounding costs", std::to_string(done) + " matrices", done, total);
  };
  calibrate.collect.context = options.calibration_context;
  calibrate.collect.n_threads = options.n_threads;
  // What runs the model stays beside the conversion that it feeds.
  const std::uint64_t budget = options.ram_budget_mb * kMegabyte;
  const std::uint64_t converting = beside_bytes(options, source, transcode);
  calibrate.collect.ram_budget_bytes = budget > converting ? budget - converting : 1;
  // A larger budget may have room for more threads of the conversion, so a refusal counts them all.
  qsf::TranscodeOptions widest = transcode;
  widest.n_threads = threads_of(options);
  calibrate.collect.other_bytes = beside_bytes(options, source, widest);
  calibrate.collect.cancel = transcode.cancel;
  calibrate.collect.log = {print_warning, nullptr};
  calibrate.collect.on_progress = [&](const qsf::CollectProgress& done) {
    std::string at_hand = std::to_string(done.done_rows) + " tokens";
    if (done.skipped_layer) at_hand = "without layer " + std::to_string(*done.skipped_layer);
    if (done.first_layer) at_hand = "from layer " + std::to_string(*done.first_layer);
    progress.show("calibrating", at_hand, done.done_rows, done.total_rows);
  };
  auto calibrated = qsf::calibrate_model(source, std::move(text), options.output, calibrate);
  progress.clear();
  if (!calibrated && calibrated.error().code() == qsf::StatusCode::kOutOfBudget) {
    return std::move(calibrated).error().with_context("--ram-budget " + megabytes(budget));
  }
  if (!calibrated) return std::move(calibrated).error();
  if (!calibrated->whole_window) {
    print_error(kTool, "warning: " + options.calibration + ": " +
                           std::to_string(calibrated->n_tokens) +
                           " tokens are little to calibrate on; expected " +
                           std::to_string(options.calibration_tokens));
  }
  return calibrated;
}

qsf::Result<qsf::Calibration> read_saved(const ConvertOptions& options,
                                         const qsf::ModelSource& source) {
  QSF_ASSIGN_OR_RETURN(qsf::Calibration saved, qsf::read_calibration_file(options.calibration));
  QSF_ASSIGN_OR_RETURN(const qsf::CalibratedModel model, qsf::identify_model(source));
  qsf::Status same = qsf::check_calibrated(saved, model);
  if (!same.ok()) return std::move(same).with_context(options.calibration);
  if (options.target_bytes != 0 && saved.probes.empty()) {
    return qsf::invalid_argument(
        "%s: saved without --target-size, so it does not say what rounding costs; calibrate with a "
        "text, --target-size and --calibration-out",
        options.calibration.c_str());
  }
  return saved;
}

// Refuses what only a text can be asked for.
qsf::Status check_saved(const ConvertOptions& options) {
  if (options.gptq) {
    return qsf::invalid_argument(
        "%s: a saved calibration does not say which columns go together; expected a text with "
        "--gptq",
        options.calibration.c_str());
  }
  if (!options.calibration_out.empty()) {
    return qsf::invalid_argument(
        "%s: this is saved already; expected a text with --calibration-out",
        options.calibration.c_str());
  }
  if (!options.text_option.empty()) {
    return qsf::invalid_argument(
        "%s: a saved calibration runs no model; expected a text with %s, or none of it",
        options.calibration.c_str(), options.text_option.c_str());
  }
  return qsf::ok_status();
}

void print_summary(const qsf::Calibration& calibration, bool verbose) {
  const auto cost = [](const qsf::LayerCalibration& layer) { return layer.skip_loss; };
  const auto [least, most] = std::ranges::minmax_element(calibration.layers, {}, cost);
  std::printf(
      "calibrated on %llu tokens: %.4f nats a token; without layer %zu %+.4f, without layer %zu "
      "%+.4f\n",
      static_cast<unsigned long long>(calibration.n_rows), calibration.loss,
      static_cast<std::size_t>(least - calibration.layers.begin()), cost(*least),
      static_cast<std::size_t>(most - calibration.layers.begin()), cost(*most));
  if (!verbose) return;
  std::printf("%-8s %9s %14s\n", "layer", "cosine", "nats without");
  for (std::size_t i = 0; i < calibration.layers.size(); ++i) {
    std::printf("%-8zu %9.6f %+14.6f\n", i, calibration.layers[i].cosine,
                calibration.layers[i].skip_loss);
  }
}

}  // namespace

qsf::Status check_calibration_files(const ConvertOptions& options) {
  if (options.calibration.empty()) return qsf::ok_status();
  if (is_same_file(options.calibration, options.output)) {
    return qsf::invalid_argument("%s: this is the file of --calibration; choose another output",
                                 options.output.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const bool saved, qsf::is_calibration_file(options.calibration));
  if (saved) QSF_RETURN_IF_ERROR(check_saved(options));
  for (const std::string& other : {options.calibration, options.output}) {
    if (!options.calibration_out.empty() && is_same_file(options.calibration_out, other)) {
      return qsf::invalid_argument("--calibration-out %s: this is %s; choose another name",
                                   options.calibration_out.c_str(), other.c_str());
    }
  }
  // What would be found out when the model has run, which can take hours.
  if (!options.calibration_out.empty()) {
    QSF_RETURN_IF_ERROR(check_writable(options.calibration_out).with_context("--calibration-out"));
  }
  return check_writable(options.output);
}

qsf::Result<ConvertCalibration> calibrate(const ConvertOptions& options,
                                          const qsf::ModelSource& source,
                                          const qsf::TranscodeOptions& transcode,
                                          ConvertProgress& progress) {
  QSF_ASSIGN_OR_RETURN(const bool saved, qsf::is_calibration_file(options.calibration));
  qsf::CalibratedText seen;
  if (saved) {
    QSF_ASSIGN_OR_RETURN(seen.calibration, read_saved(options, source));
  } else {
    QSF_ASSIGN_OR_RETURN(seen, gather(options, source, transcode, progress));
  }
  const qsf::Calibration& calibration = seen.calibration;
  if (!options.calibration_out.empty()) {
    QSF_RETURN_IF_ERROR(qsf::write_calibration_file(options.calibration_out, calibration));
  }
  ConvertCalibration result;
  QSF_ASSIGN_OR_RETURN(result.columns, qsf::column_importance(calibration));
  result.layers = qsf::layer_importance(calibration);
  result.compensation = std::move(seen.compensation);
  if (options.target_bytes != 0) {
    qsf::TranscodeOptions planned = transcode;
    planned.importance = &result.columns;
    auto plan = qsf::plan_target_size(source, calibration, planned, options.target_bytes);
    if (!plan) return std::move(plan).error().with_context("--target-size");
    result.target = std::move(*plan);
  }
  if (!options.quiet) print_summary(calibration, options.verbose);
  if (!options.quiet && options.target_bytes != 0) {
    print_target_table(result.target, options.target_bytes, options.verbose);
  }
  return result;
}

}  // namespace qsf_tools
