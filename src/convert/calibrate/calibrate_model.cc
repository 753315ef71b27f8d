// SPDX-License-Identifier: MIT

#include "convert/calibrate/calibrate_model.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "convert/calibrate/calibration_file.h"
#include "convert/calibrate/model_copy.h"
#include "convert/calibrate/saved_hidden_rows.h"
#include "convert/choose/sensitivity.h"
#include "convert/gptq/layerwise_gptq.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

namespace {

// The tokenizer goes before the engine comes, which has its own.
Result<std::vector<TokenId>> tokens_of(ByteSpan section, std::string_view text,
                                       std::uint32_t context, std::uint64_t max_tokens) {
  if (section.empty()) {
    return unsupported("the model has no tokenizer, which calibration needs to read a text");
  }
  QSF_ASSIGN_OR_RETURN(const std::size_t index_bytes, Tokenizer::index_bytes(section));
  std::vector<std::byte> index(index_bytes);
  QSF_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::open(section, index));
  return calibration_tokens(tokenizer, text, context, max_tokens);
}

// Opens with room for the Hessians of `layers_at_once` layers, or of as many fewer, one at least,
// as the engine leaves room for.
Result<std::unique_ptr<StatisticsCollector>> open_collector(const ModelSpec& spec,
                                                            const std::string& path,
                                                            CollectOptions options,
                                                            std::uint32_t& layers_at_once) {
  for (;; layers_at_once /= 2) {
    options.consumer_bytes = layers_at_once == 0 ? 0
                                                 : layers_at_once * HessianSums::layer_bytes(spec) +
                                                       HessianSums::head_bytes(spec) +
                                                       HessianSums::gathered_bytes(spec);
    auto collector = StatisticsCollector::open(path, options);
    if (collector || layers_at_once <= 1) return collector;
    if (collector.error().code() != StatusCode::kOutOfBudget) return collector;
  }
}

// Opens an unrounded copy of the model, which is unlinked by then. `options` are those of the copy,
// not of the output.
Result<std::unique_ptr<StatisticsCollector>> open_copy(const ModelSource& source,
                                                       const std::string& output,
                                                       const TranscodeOptions& options,
                                                       const CollectOptions& collect,
                                                       std::uint32_t& layers_at_once) {
  const TemporaryName file(output);
  QSF_RETURN_IF_ERROR(write_copy(source, file.path(), options));
  return open_collector(source.spec(), file.path(), collect, layers_at_once);
}

// Rows for a later resume are saved after every eighth of the layers at least.
constexpr std::uint32_t kShare = 8;

// The file in the folder with the state of the run.
constexpr const char* kRunName = "calibrating";

// The file in the folder with the calibration so far.
class SeenFile {
 public:
  static constexpr const char* kName = "calibration";

  explicit SeenFile(const std::string& folder)
      : path_(folder.empty() ? std::string() : folder + "/" + kName) {}

  // Returns what was seen of `model` before, if anything was.
  Result<std::optional<Calibration>> read(const CalibratedModel& model) const {
    if (path_.empty()) return std::optional<Calibration>();
    auto seen = read_calibration_file(path_);
    if (!seen && seen.error().code() == StatusCode::kNotFound) return std::optional<Calibration>();
    if (!seen && seen.error().code() == StatusCode::kCorrupt) {
      return corrupt("%s; remove this file and run again", seen.error().message().c_str());
    }
    if (!seen) return std::move(seen).error();
    QSF_RETURN_IF_ERROR(check_calibrated(*seen, model).with_context(path_));
    return std::optional<Calibration>(std::move(*seen));
  }
  Status write(const Calibration& seen) const {
    return path_.empty() ? ok_status() : write_calibration_file(path_, seen);
  }

 private:
  std::string path_;
};

}  // namespace

std::vector<std::string> calibration_folder_names() {
  std::vector<std::string> names = SavedHiddenRows::file_names();
  names.emplace_back(SeenFile::kName);
  names.emplace_back(kRunName);
  return names;
}

Result<CalibratedText> calibrate_model(const ModelSource& source, std::string text,
                                       const std::string& output, const CalibrateOptions& options) {
  const ModelSpec& spec = source.spec();
  CollectOptions collect = options.collect;
  collect.context = std::min(collect.context, spec.max_positions);
  collect.exact = false;
  if (collect.context < 2) {
    return invalid_argument("windows of %u tokens, expected at least 2", collect.context);
  }
  const auto tokens =
      tokens_of(options.transcode.tokenizer, text, collect.context, options.max_tokens);
  if (!tokens) return Status(tokens.error()).with_context(options.text_name);
  std::string().swap(text);
  QSF_ASSIGN_OR_RETURN(const CalibratedModel model, identify_model(source));
  const SeenFile file(options.folder);
  QSF_ASSIGN_OR_RETURN(std::optional<Calibration> seen, file.read(model));
  std::unique_ptr<StatisticsCollector> collector;
  std::uint32_t layers_at_once = 0;
  const auto open = [&](bool compensates) -> Status {
    layers_at_once =
        compensates ? LayerwiseGptq::layers_at_once(spec, collect.ram_budget_bytes) : 0;
    if (!options.folder.empty()) {
      layers_at_once = std::min(layers_at_once, (spec.n_layers + kShare - 1) / kShare);
    }
    QSF_ASSIGN_OR_RETURN(collector,
                         open_copy(source, output, options.transcode, collect, layers_at_once));
    if (!compensates || layers_at_once >= spec.n_layers) return ok_status();
    // Before the passes, which can take hours, so that a full disk is reported at once.
    return collector->save_hidden_rows(tokens->size(), options.folder);
  };
  std::optional<HessianSums> hessians;
  if (!seen) {
    // Where the Hessians of all layers fit into their half of the budget, one pass over the text
    // sums them too. They are in no file, so a run that can resume sums them in the end.
    const bool at_once =
        options.compensation && options.folder.empty() &&
        LayerwiseGptq::layers_at_once(spec, collect.ram_budget_bytes) >= spec.n_layers;
    // The engines of the sensitivity measurement share the budget, so error compensation is opened
    // afterwards.
    QSF_RETURN_IF_ERROR(open(options.compensation && (at_once || !options.sensitivities)));
    if (at_once && layers_at_once >= spec.n_layers) {
      hessians.emplace(spec, 0, spec.n_layers, options.transcode.n_threads);
      hessians->add_head(spec);
    }
    QSF_ASSIGN_OR_RETURN(
        seen, collector->run(
                  *tokens, options.folder.empty() ? std::string() : options.folder + "/" + kRunName,
                  hessians ? &*hessians : nullptr));
    if (hessians) hessians->finish();
    seen->model = model;
    QSF_RETURN_IF_ERROR(file.write(*seen));
  }
  if (options.sensitivities) {
    collector.reset();
    QSF_ASSIGN_OR_RETURN(const ColumnImportance columns, column_importance(*seen));
    SensitivityOptions sensitivity = {collect, options.transcode, {}};
    sensitivity.transcode.importance = &columns;
    sensitivity.on_probe = [&](std::size_t done, std::size_t total) -> Status {
      if (options.on_probe) options.on_probe(done, total);
      return file.write(*seen);
    };
    QSF_RETURN_IF_ERROR(measure_sensitivities(source, *tokens, output, sensitivity, *seen));
  }
  CalibratedText calibrated{std::move(*seen), tokens->size(), tokens->size() >= collect.context,
                            nullptr};
  if (hessians) {
    calibrated.compensation = std::make_unique<LayerwiseGptq>(
        spec, std::move(*hessians),
        [&source, output, transcode = options.transcode, collect](std::uint32_t& n_layers) {
          return open_copy(source, output, transcode, collect, n_layers);
        },
        *tokens, options.transcode.n_threads);
  } else if (options.compensation) {
    if (collector == nullptr) QSF_RETURN_IF_ERROR(open(true));
    calibrated.compensation = std::make_unique<LayerwiseGptq>(
        std::move(collector), *tokens, layers_at_once, options.transcode.n_threads);
  }
  return calibrated;
}

Result<std::vector<TokenId>> calibration_tokens(const Tokenizer& tokenizer, std::string_view text,
                                                std::uint32_t context, std::uint64_t max_tokens) {
  QSF_CHECK(context >= 2);
  max_tokens = std::max<std::uint64_t>(max_tokens, context);
  text = text.substr(0, calibration_text_bytes(max_tokens));
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    return invalid_argument("byte %zu is zero; expected text in UTF-8", zero);
  }
  if (text.empty()) return invalid_argument("the text is empty; expected some pages of text");
  std::vector<TokenId> tokens;
  QSF_RETURN_IF_ERROR(
      tokenizer.encode(text, {.add_bos = {}, .add_eos = false, .parse_special = false}, tokens));
  if (tokens.size() < 2) {
    return invalid_argument("the text is %zu tokens long, expected some pages of text",
                            tokens.size());
  }
  if (tokens.size() >= context) {
    const std::uint64_t n_windows =
        std::min<std::uint64_t>(tokens.size() / context, max_tokens / context);
    tokens.resize(n_windows * context);
  }
  if (tokenizer.adds_bos()) {
    for (std::size_t i = 0; i < tokens.size(); i += context) tokens[i] = tokenizer.bos();
  }
  return tokens;
}

}  // namespace qsf
