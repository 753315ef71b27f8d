// SPDX-License-Identifier: MIT

#include "calibrate/calibrate_model.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "calibrate/calibration_text.h"
#include "calibrate/hessian_sums.h"
#include "calibrate/model_feedback.h"
#include "calibrate/sensitivity.h"
#include "calibrate/temporary_name.h"
#include "tokenizer/tokenizer.h"

namespace qsf {
namespace {

// The tokenizer goes before the engine comes, which has its own.
Result<std::vector<TokenId>> tokens_of(ByteSpan section, std::string_view text,
                                       std::uint32_t context, std::uint64_t max_tokens) {
  if (section.empty()) {
    return unsupported("the model has no tokenizer, so no text can be turned into its tokens");
  }
  QSF_ASSIGN_OR_RETURN(const std::size_t index_bytes, Tokenizer::index_bytes(section));
  std::vector<std::byte> index(index_bytes);
  QSF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::open(section, index));
  return calibration_tokens(tokenizer, text, context, max_tokens);
}

// Opens with room for the Hessians of `layers_at_once` layers, or of as many fewer, one at least,
// as the engine leaves room for.
Result<std::unique_ptr<Gatherer>> open_gatherer(const ModelSpec& spec, const std::string& path,
                                                GatherOptions options,
                                                std::uint32_t& layers_at_once) {
  for (;; layers_at_once /= 2) {
    options.feed_bytes = layers_at_once * HessianSums::layer_bytes(spec);
    auto gatherer = Gatherer::open(path, options);
    if (gatherer || layers_at_once <= 1) return gatherer;
    if (gatherer.error().code() != StatusCode::kOutOfBudget) return gatherer;
  }
}

// Opens the model as it is, from a copy that has no name by then. What becomes of the output is no
// matter to the copy, which every pass reads.
Result<std::unique_ptr<Gatherer>> open_copy(const ModelSource& source, const std::string& output,
                                            TranscodeOptions options, const GatherOptions& gather,
                                            std::uint32_t& layers_at_once) {
  const TemporaryName file(output);
  options.preset = QuantPreset::kKeep;
  options.vocabulary_type.reset();
  options.compression = Compression::kNone;
  auto written = transcode(source, file.path(), options);
  if (!written) return std::move(written).error();
  return open_gatherer(source.spec(), file.path(), gather, layers_at_once);
}

}  // namespace

Result<CalibratedText> calibrate_model(const ModelSource& source, std::string text,
                                       const std::string& output, const CalibrateOptions& options) {
  GatherOptions gather = options.gather;
  gather.context = std::min(gather.context, source.spec().max_positions);
  if (gather.context < 2) {
    return invalid_argument("windows of %u tokens, expected at least 2", gather.context);
  }
  const auto tokens =
      tokens_of(options.transcode.tokenizer, text, gather.context, options.max_tokens);
  if (!tokens) return Status(tokens.error()).with_context(options.text_name);
  std::string().swap(text);
  QSF_ASSIGN_OR_RETURN(CalibratedModel model, identify_model(source));
  std::unique_ptr<Gatherer> gatherer;
  Calibration calibration;
  std::uint32_t layers_at_once =
      options.feedback ? ModelFeedback::layers_at_once(source.spec(), gather.ram_budget_bytes) : 0;
  if (options.sensitivities) {
    // By itself, since every probe's engine has the budget.
    std::uint32_t no_layers = 0;
    QSF_ASSIGN_OR_RETURN(gatherer, open_copy(source, output, options.transcode, gather, no_layers));
    QSF_ASSIGN_OR_RETURN(calibration, gatherer->run(*tokens));
    gatherer.reset();
    QSF_ASSIGN_OR_RETURN(const ColumnImportance columns, column_importance(calibration));
    SensitivityOptions sensitivity = {gather, options.transcode, options.on_probe};
    sensitivity.transcode.importance = &columns;
    QSF_RETURN_IF_ERROR(measure_sensitivities(source, *tokens, output, sensitivity, calibration));
  }
  if (options.feedback || !options.sensitivities) {
    QSF_ASSIGN_OR_RETURN(gatherer,
                         open_copy(source, output, options.transcode, gather, layers_at_once));
    // Before the passes, which can take hours, so that a full disk is told at once.
    if (options.feedback && layers_at_once < source.spec().n_layers) {
      QSF_RETURN_IF_ERROR(gatherer->keep_rows(tokens->size()));
    }
    QSF_ASSIGN_OR_RETURN(Calibration gathered, gatherer->run(*tokens));
    gathered.n_probe_rows = calibration.n_probe_rows;
    gathered.probes = std::move(calibration.probes);
    calibration = std::move(gathered);
  }
  calibration.model = std::move(model);
  CalibratedText text_seen{std::move(calibration), tokens->size(), tokens->size() >= gather.context,
                           nullptr};
  if (options.feedback) {
    text_seen.feedback = std::make_unique<ModelFeedback>(
        std::move(gatherer), *tokens, layers_at_once, options.transcode.n_threads);
  }
  return text_seen;
}

}  // namespace qsf
