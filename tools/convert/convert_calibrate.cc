// SPDX-License-Identifier: MIT

#include "tools/convert/convert_calibrate.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "convert/calibrate/calibrate_model.h"
#include "convert/calibrate/calibration_file.h"
#include "format/expert_hits.h"
#include "io/file.h"
#include "tools/common/option_parser.h"
#include "tools/convert/convert_checks.h"
#include "tools/convert/convert_report.h"

namespace qsf_tools {
namespace {

void print_warning(qsf::LogLevel level, std::string_view line, void*) {
  if (level == qsf::LogLevel::kWarning) {
    print_error(program_name(), "warning: calibration: " + std::string(line));
  }
}

// Reads as much of a text as can be needed.
qsf::Result<std::string> read_text_start(const ConvertOptions& options, const std::string& path) {
  QSF_ASSIGN_OR_RETURN(const qsf::File file, qsf::File::open(path));
  const std::uint64_t most = qsf::calibration_text_bytes(
      std::max<std::uint64_t>(options.calibration_tokens, options.calibration_context));
  std::string text(std::min(most, file.size_bytes()), '\0');
  QSF_RETURN_IF_ERROR(
      file.read_exact_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

// Returns the part of the budget that a conversion takes while GPTQ runs the model beside it.
std::uint64_t beside_bytes(const ConvertOptions& options, const qsf::ModelSource& source,
                           const qsf::TranscodeOptions& transcode) {
  return options.gptq ? conversion_bytes(source, transcode, true) : 0;
}

qsf::Result<qsf::CalibratedText> gather(const ConvertOptions& options,
                                        const qsf::ModelSource& source,
                                        const qsf::TranscodeOptions& transcode,
                                        ConvertProgress& progress) {
  QSF_ASSIGN_OR_RETURN(std::string text, read_text_start(options, options.calibration));
  qsf::CalibrateOptions calibrate;
  calibrate.transcode = transcode;
  calibrate.transcode.formats = nullptr;  // the model as it is, not as it is going to be
  calibrate.transcode.on_progress = [&](const qsf::TranscodeProgress& done) {
    progress.show("writing a copy to run", done.section, done.done_weights, done.total_weights);
  };
  calibrate.text_name = options.calibration;
  calibrate.max_tokens = options.calibration_tokens;
  calibrate.compensation = options.gptq;
  calibrate.sensitivities = options.target_bytes != 0;
  calibrate.folder = options.work_folder;
  calibrate.on_probe = [&](std::size_t done, std::size_t total) {
    progress.show("measuring sensitivities", std::to_string(done) + " matrices", done, total);
  };
  calibrate.collect.context = options.calibration_context;
  calibrate.collect.n_threads = options.n_threads;
  // With --gptq the model stays in memory beside the conversion.
  const std::uint64_t budget = options.ram_budget_bytes;
  const std::uint64_t converting = beside_bytes(options, source, transcode);
  calibrate.collect.ram_budget_bytes = budget > converting ? budget - converting : 1;
  // A larger budget may have room for more threads of the conversion, so a refusal counts them all.
  qsf::TranscodeOptions widest = transcode;
  widest.n_threads = threads_of(options);
  calibrate.collect.other_bytes = beside_bytes(options, source, widest);
  calibrate.collect.cancel = transcode.cancel;
  calibrate.collect.log = {print_warning, nullptr};
  calibrate.collect.on_progress = [&](const qsf::CollectProgress& done) {
    std::string item = std::to_string(done.done_rows) + " tokens";
    if (done.skipped_layer) item = "without layer " + std::to_string(*done.skipped_layer);
    if (done.first_layer) item = "from layer " + std::to_string(*done.first_layer);
    progress.show("calibrating", item, done.done_rows, done.total_rows);
  };
  auto calibrated = qsf::calibrate_model(source, std::move(text), options.output, calibrate);
  progress.clear();
  if (!calibrated && calibrated.error().code() == qsf::StatusCode::kOutOfBudget) {
    return std::move(calibrated).error().with_context("--ram-budget " + megabytes(budget));
  }
  if (!calibrated) return std::move(calibrated).error();
  if (!calibrated->whole_window) {
    print_error(program_name(), "warning: " + options.calibration + ": " +
                                    std::to_string(calibrated->n_tokens) +
                                    " tokens are few for a calibration; expected " +
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
        "%s: has no sensitivities, because it was saved without --target-size; calibrate with a "
        "text, --target-size and --calibration-out",
        options.calibration.c_str());
  }
  return saved;
}

// Refuses options that need a text where a saved calibration is given.
qsf::Status check_saved(const ConvertOptions& options) {
  if (options.gptq) {
    return qsf::invalid_argument("%s: a saved calibration has no Hessians; --gptq needs a text",
                                 options.calibration.c_str());
  }
  if (options.tune) {
    return qsf::invalid_argument("%s: a saved calibration has no text; --tune needs one",
                                 options.calibration.c_str());
  }
  if (!options.calibration_out.empty()) {
    return qsf::invalid_argument(
        "%s: this calibration is saved already; --calibration-out needs a text",
        options.calibration.c_str());
  }
  if (!options.text_option.empty()) {
    return qsf::invalid_argument("%s: a saved calibration runs no model; %s needs a text",
                                 options.calibration.c_str(), options.text_option.c_str());
  }
  return qsf::ok_status();
}

// How many experts of a layer were used, by how many rows the first of them, and the largest
// magnitude among the inputs of down projections, with its expert.
void print_experts(std::span<const qsf::ExpertCalibration> experts) {
  if (experts.empty()) return;
  const auto n_used = static_cast<std::size_t>(
      std::ranges::count_if(experts, [](const auto& e) { return e.n_rows != 0; }));
  const auto most = std::ranges::max_element(experts, {}, &qsf::ExpertCalibration::n_rows);
  const auto largest = std::ranges::max_element(experts, {}, &qsf::ExpertCalibration::largest);
  std::printf("  %6zu of %3zu %10llu %10.3g of expert %td", n_used, experts.size(),
              static_cast<unsigned long long>(most->n_rows), static_cast<double>(largest->largest),
              largest - experts.begin());
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
  if (!calibration.expert_hits.empty()) {
    const auto found = [&](double cached) {
      return 100 * qsf::expected_hits(calibration.expert_hits, cached);
    };
    std::printf(
        "experts: a tenth of them in memory serves %.0f %% of their uses, a quarter %.0f %%, "
        "half %.0f %%\n",
        found(0.1), found(0.25), found(0.5));
  }
  if (!verbose) return;
  const bool mixture = calibration.model.n_experts != 0;
  std::printf("%-8s %9s %14s%s\n", "layer", "cosine", "nats without",
              mixture ? "  experts used  most used  largest activation" : "");
  for (std::size_t i = 0; i < calibration.layers.size(); ++i) {
    std::printf("%-8zu %9.6f %+14.6f", i, calibration.layers[i].cosine,
                calibration.layers[i].skip_loss);
    if (mixture) print_experts(calibration.layers[i].experts);
    std::printf("\n");
  }
}

// An expert that no row chose is rounded by the mean of its layer, which says little about it.
void warn_of_unused_experts(const ConvertOptions& options, const qsf::Calibration& calibration) {
  const qsf::ExpertCoverage coverage = qsf::expert_coverage(calibration);
  if (coverage.n_unused == 0) return;
  print_error(program_name(),
              "warning: " + options.calibration + ": no token chose " +
                  std::to_string(coverage.n_unused) + " of " + std::to_string(coverage.n_experts) +
                  " experts, so they are rounded by the mean of their layer; calibrate on a longer "
                  "and more varied text");
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
  // Checked now, not after the hours that the model can run.
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
  result.expert_hits = calibration.expert_hits;
  result.compensation = std::move(seen.compensation);
  if (!options.quiet) print_summary(calibration, options.verbose);
  warn_of_unused_experts(options, calibration);
  result.measured = std::move(seen.calibration);
  return result;
}

qsf::Status check_target_size(const ConvertOptions& options, const qsf::ModelSource& source,
                              const qsf::TranscodeOptions& transcode) {
  if (options.target_bytes == 0) return qsf::ok_status();
  qsf::TranscodeOptions calibrated = transcode;
  const std::array<float, qsf::kExpertHitSizes> hits{};  // the file will have as many
  if (!options.calibration.empty() && source.spec().n_experts != 0) calibrated.expert_hits = hits;
  auto smallest = qsf::smallest_target_size(source, calibrated);
  if (!smallest) return std::move(smallest).error();
  if (*smallest <= options.target_bytes) return qsf::ok_status();
  // Rounded up to what the option can express in three digits.
  const std::uint64_t kilobytes = qsf::ceil_div(*smallest, std::uint64_t{1000});
  return qsf::invalid_argument(
      "--target-size: got %llu bytes, expected at least %llu, the smallest file of this model; "
      "give "
      "%llu.%03llu or more",
      static_cast<unsigned long long>(options.target_bytes),
      static_cast<unsigned long long>(*smallest), static_cast<unsigned long long>(kilobytes / 1000),
      static_cast<unsigned long long>(kilobytes % 1000));
}

qsf::Result<qsf::TargetPlan> plan_target(const ConvertOptions& options,
                                         const qsf::ModelSource& source,
                                         const qsf::TranscodeOptions& transcode,
                                         const qsf::Calibration& measured,
                                         ConvertProgress& progress) {
  const bool calibrated = !options.calibration.empty();
  qsf::TranscodeOptions planned = transcode;
  planned.compensation = nullptr;
  planned.layer_importance = {};
  planned.on_progress = [&](const qsf::TranscodeProgress& done) {
    progress.show("measuring errors", done.section, done.done_weights, done.total_weights);
  };
  auto plan = calibrated ? qsf::plan_target_size(source, measured, planned, options.target_bytes)
                         : qsf::plan_target_size_by_error(source, planned, options.target_bytes);
  progress.clear();
  if (!plan) return std::move(plan).error();
  if (!options.quiet) {
    print_target_table(*plan, options.target_bytes, options.verbose, calibrated);
  }
  return plan;
}

qsf::Result<std::vector<qsf::TokenId>> read_windows(const ConvertOptions& options,
                                                    const std::string& path, std::uint32_t context,
                                                    std::uint64_t max_tokens,
                                                    qsf::ByteSpan tokenizer) {
  QSF_ASSIGN_OR_RETURN(const std::string text, read_text_start(options, path));
  QSF_ASSIGN_OR_RETURN(const std::size_t index_bytes, qsf::Tokenizer::index_bytes(tokenizer));
  std::vector<std::byte> index(index_bytes);
  QSF_ASSIGN_OR_RETURN(const qsf::Tokenizer opened, qsf::Tokenizer::open(tokenizer, index));
  auto tokens = qsf::calibration_tokens(opened, text, context, max_tokens);
  if (!tokens) return qsf::Status(tokens.error()).with_context(path);
  return tokens;
}

qsf::Result<std::vector<qsf::TokenId>> read_sketch_tokens(const ConvertOptions& options,
                                                          qsf::ByteSpan tokenizer) {
  if (tokenizer.empty()) {
    return qsf::unsupported("--head-sketch: the model has no tokenizer to read a text with");
  }
  // A basis needs no more rows; the budget has to hold them.
  constexpr std::uint64_t kMostTokens = 8192;
  return read_windows(options, options.head_sketch, options.calibration_context,
                      std::min(options.calibration_tokens, kMostTokens), tokenizer);
}

}  // namespace qsf_tools
