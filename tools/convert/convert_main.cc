// SPDX-License-Identifier: MIT
//
// qsf convert: makes a .qsf file from a Hugging Face model folder or a GGUF file, or one of random
// weights, and an adapter file from a LoRA adapter.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "convert/calibrate/model_copy.h"
#include "convert/encode/merged_model.h"
#include "convert/encode/rotated_model.h"
#include "convert/encode/transcode.h"
#include "convert/head/make_head_sketch.h"
#include "convert/random/random_model.h"
#include "format/qsf_reader.h"
#include "import/gguf/gguf_model.h"
#include "import/hf/hf_model.h"
#include "import/hf/hf_tokenizer.h"
#include "import/vocabulary.h"
#include "io/atomic_file.h"
#include "tokenizer/tokenizer_data.h"
#include "tools/common/console.h"
#include "tools/common/file_path.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/convert/convert_adapter.h"
#include "tools/convert/convert_calibrate.h"
#include "tools/convert/convert_checks.h"
#include "tools/convert/convert_options.h"
#include "tools/convert/convert_report.h"
#include "tools/convert/convert_tune.h"
#include "tools/convert/convert_work.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "qsf-convert " QSF_VERSION;  // in the file's provenance
constexpr std::uint64_t kMaxTokenizerFileBytes = 256U << 20;

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void on_interrupted() {
  g_interrupted.store(true);
}

// An interrupted conversion removes its temporary file; a file-size limit is an error like a full
// disk, not the end of the process.
void handle_signals() {
  on_interrupt(Interrupts::kAll, on_interrupted);
  ignore_write_signals();
}

void warn_of_dropped(const std::vector<std::string>& tokens, std::uint32_t n_vocab) {
  constexpr std::size_t kMaxNamed = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(tokens.size(), kMaxNamed); ++i) {
    names += (i == 0 ? "" : ", ") + tokens[i];
  }
  if (tokens.size() > kMaxNamed) {
    names += " and " + std::to_string(tokens.size() - kMaxNamed) + " more";
  }
  print_error(program_name(), "warning: the embedding has " + std::to_string(n_vocab) +
                                  " rows; tokens beyond them are left out: " + names);
}

// Returns the tokenizer section, empty when the folder has no tokenizer.
qsf::Result<std::vector<std::byte>> read_tokenizer(const std::string& folder,
                                                   std::uint32_t n_vocab) {
  qsf::HfTokenizerFiles files;
  for (const qsf::HfTokenizerFileName& file : qsf::hf_tokenizer_file_names()) {
    const std::string path = folder + "/" + file.name;
    auto opened = qsf::File::open(path);
    if (!opened && opened.error().code() == qsf::StatusCode::kNotFound) continue;
    if (!opened) return std::move(opened).error();
    QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                         opened->read_all(kMaxTokenizerFileBytes));
    files.*file.content = std::string(qsf::as_text(bytes));
  }
  auto data = qsf::tokenizer_from_hf(files);
  if (!data && data.error().code() == qsf::StatusCode::kNotFound) return std::vector<std::byte>();
  if (!data) return std::move(data).error().with_context(folder);
  auto dropped = qsf::limit_vocabulary(*data, n_vocab);
  if (!dropped) return std::move(dropped).error().with_context(folder);
  if (!dropped->empty()) warn_of_dropped(*dropped, n_vocab);
  return qsf::write_tokenizer_section(*data);
}

// A model to convert, with what of it stands in the tokenizer section.
struct Input {
  std::unique_ptr<qsf::ModelSource> model;
  std::vector<std::byte> tokenizer;  // empty: none
  qsf::QuantPreset default_preset;
  std::uint64_t added_weights = 0;     // of a head that was the embedding
  qsf::MergedModel* merged = nullptr;  // what of `model` has adapters; null: nothing
};

qsf::ModelPart part_of(const ConvertOptions& options) {
  return options.mtp ? qsf::ModelPart::kMtpBlock : qsf::ModelPart::kModel;
}

qsf::Result<Input> open_folder(const ConvertOptions& options) {
  const std::string& folder = options.input;
  QSF_ASSIGN_OR_RETURN(auto model,
                       qsf::HfModel::open(folder, qsf::system_file_ops(), part_of(options)));
  for (const std::string& warning : model->warnings())
    print_error(program_name(), "warning: " + warning);
  QSF_ASSIGN_OR_RETURN(std::vector<std::byte> tokenizer,
                       read_tokenizer(folder, model->spec().n_vocab));
  // Layers that are ternary already would lose by any other type.
  const bool ternary = model->spec().int8_rows;
  return Input{std::move(model), std::move(tokenizer),
               ternary ? qsf::QuantPreset::kKeep : qsf::QuantPreset(qsf::QuantType::kQ4)};
}

qsf::Result<Input> open_gguf(const ConvertOptions& options) {
  const std::string& path = options.input;
  QSF_ASSIGN_OR_RETURN(auto model, qsf::GgufModel::open(path, options.i2s_layout,
                                                        qsf::system_file_ops(), part_of(options)));
  for (const std::string& warning : model->warnings())
    print_error(program_name(), "warning: " + warning);
  const auto& data = model->tokenizer();
  if (!data) return qsf::Status(data.error()).with_context(path);
  std::vector<std::byte> tokenizer;
  if (data->has_value()) {
    QSF_ASSIGN_OR_RETURN(tokenizer, qsf::write_tokenizer_section(**data));
  }
  return Input{std::move(model), std::move(tokenizer), qsf::QuantPreset::kKeep};
}

// Replaces the model by one with adapters, where the options name some.
qsf::Status merge(const ConvertOptions& options, Input& input) {
  if (options.merge.empty()) return qsf::ok_status();
  const bool keeps = input.default_preset == qsf::QuantPreset::kKeep;
  QSF_ASSIGN_OR_RETURN(auto merged, merge_adapters(options, keeps, std::move(input.model)));
  input.added_weights = merged->added_weights();
  input.merged = merged.get();
  input.model = std::move(merged);
  return qsf::ok_status();
}

// Replaces the model by its rotated form, where the options ask for one.
qsf::Status rotate(const ConvertOptions& options, Input& input) {
  if (options.rotation == Rotation::kNone) return qsf::ok_status();
  if (!options.preset && input.default_preset == qsf::QuantPreset::kKeep) {
    return qsf::invalid_argument(
        "%s: --rotate changes the weights, so they cannot be kept; give a --quant-type",
        options.input.c_str());
  }
  const bool all = options.rotation == Rotation::kAll;
  auto rotated = qsf::RotatedModel::create(
      std::move(input.model), {.values = all || options.rotation == Rotation::kValues,
                               .stream = all || options.rotation == Rotation::kStream});
  if (!rotated) {
    return std::move(rotated).error().with_context("--rotate " +
                                                   std::string(rotation_name(options.rotation)));
  }
  input.added_weights += (*rotated)->added_weights();
  input.model = std::move(*rotated);
  return qsf::ok_status();
}

qsf::TranscodeOptions transcode_options(const ConvertOptions& options, const Input& input) {
  qsf::TranscodeOptions transcode;
  transcode.preset = options.preset.value_or(input.default_preset);
  transcode.native_ternary = options.native_ternary;
  transcode.vocabulary_type = options.head_type;
  transcode.int8_rows = options.int8_rows;
  transcode.block = options.block;
  transcode.rounding = options.rounding;
  transcode.layout = options.layout;
  transcode.compression = options.compression;
  transcode.tile_bytes = options.tile_bytes;
  transcode.n_threads = threads_of(options);
  transcode.program = kProgram;
  transcode.tokenizer = input.tokenizer;
  transcode.cancel = &g_interrupted;
  transcode.on_size = [&options](std::uint64_t bytes) { return check_room(options.output, bytes); };
  return transcode;
}

qsf::Status check_files(const ConvertOptions& options) {
  QSF_RETURN_IF_ERROR(check_input(options.input));
  if (!options.base.empty()) {
    return qsf::invalid_argument(
        "%s: no adapter; --base is for adapters: a PEFT folder with adapter_config.json, or a GGUF "
        "adapter",
        options.input.c_str());
  }
  QSF_RETURN_IF_ERROR(check_output(options.input, options.output));
  QSF_RETURN_IF_ERROR(check_output(options.input, options.calibration_out));
  QSF_RETURN_IF_ERROR(check_calibration_files(options));
  return check_report_file(options);
}

qsf::Result<Input> open_input(const ConvertOptions& options) {
  std::error_code ignored;
  QSF_ASSIGN_OR_RETURN(Input input, fs::is_directory(file_path(options.input), ignored)
                                        ? open_folder(options)
                                        : open_gguf(options));
  if (input.tokenizer.empty()) {
    print_error(program_name(), "warning: " + options.input +
                                    ": no tokenizer; the file will take and give token ids only");
  }
  QSF_RETURN_IF_ERROR(merge(options, input));
  QSF_RETURN_IF_ERROR(rotate(options, input));
  return input;
}

qsf::Result<std::unique_ptr<WorkFolder>> open_work_folder(const ConvertOptions& options,
                                                          const Input& input) {
  if (options.work_folder.empty()) return std::unique_ptr<WorkFolder>();
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<WorkFolder> work,
                       WorkFolder::open(options, *input.model, input.merged, input.tokenizer));
  if (!options.quiet && work->goes_on()) {
    print_error(program_name(),
                "resuming from " + work->path() + ": " + std::to_string(work->n_done()) + " of " +
                    std::to_string(input.model->spec().n_layers + 2) + " sections are complete");
  }
  return work;
}

// Adds the sketch of the output head to a finished file. Random weights have no text to run: any
// tokens do.
qsf::Status add_sketch(const ConvertOptions& options, qsf::ByteSpan tokenizer) {
  if (options.head_sketch_percent == 0.0) return qsf::ok_status();
  std::vector<qsf::TokenId> tokens;
  if (options.random.empty()) {
    QSF_ASSIGN_OR_RETURN(tokens, read_sketch_tokens(options, tokenizer));
  } else {
    QSF_ASSIGN_OR_RETURN(const qsf::QsfReader reader, qsf::QsfReader::open(options.output));
    constexpr std::size_t kRandomTokens = 2048;
    qsf::Rng rng(options.seed);
    while (tokens.size() < kRandomTokens) tokens.push_back(rng.below(reader.spec().n_vocab));
  }
  ProgressLine line(program_name(), !options.quiet);
  if (!options.quiet) line.show("making a sketch of the output head");
  const qsf::Status status = qsf::add_head_sketch(
      options.output, tokens,
      {.share = options.head_sketch_percent / 100.0,
       .context = options.calibration_context,
       .n_threads = threads_of(options),
       .ram_budget_bytes = options.random.empty() ? options.ram_budget_bytes : 0,
       .tile_bytes = options.tile_bytes,
       .cancel = &g_interrupted});
  line.clear();
  return status;
}

void print_result(const ConvertOptions& options, const Input& input,
                  const qsf::TranscodeReport& report, const ConvertedFile& file) {
  print_convert_warnings(report);
  if (options.verbose) print_tensor_table(report);
  if (options.quiet) return;
  print_kept_summary(report);
  print_verification(report);
  if (input.merged != nullptr) {
    std::printf("merged adapters into %zu matrices\n", input.merged->n_changed());
  }
  if (input.added_weights != 0) {
    std::printf("the tied head is now a matrix of its own: %llu more weights\n",
                static_cast<unsigned long long>(input.added_weights));
  }
  print_convert_summary(report, file);
}

// Converts to a file beside the output, which tuning reads.
qsf::Result<qsf::TranscodeReport> transcode_and_tune(
    const ConvertOptions& options, const qsf::ModelSource& source, const TuneWindows& windows,
    ConvertCalibration& calibration, qsf::TranscodeOptions transcode, ConvertProgress& progress) {
  const qsf::TemporaryName name(options.output);
  transcode.compression = qsf::Compression::kNone;
  transcode.on_size = [&](std::uint64_t bytes) { return check_room(options.output, 2 * bytes); };
  QSF_ASSIGN_OR_RETURN(qsf::TranscodeReport report, qsf::transcode(source, name.path(), transcode));
  progress.clear();
  QSF_ASSIGN_OR_RETURN(const qsf::QsfReader converted, qsf::QsfReader::open(name.path()));
  name.remove();                     // a killed process leaves nothing behind
  calibration.compensation.reset();  // its memory is for tuning now
  QSF_ASSIGN_OR_RETURN(const qsf::TuneReport tuned,
                       tune(options, source, windows, converted, transcode, progress));
  report.stored_bytes = tuned.bytes.stored;
  return report;
}

qsf::Status convert(const ConvertOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  QSF_RETURN_IF_ERROR(check_files(options));
  QSF_ASSIGN_OR_RETURN(Input input, open_input(options));
  qsf::TranscodeOptions transcode = transcode_options(options, input);
  QSF_ASSIGN_OR_RETURN(const qsf::TensorFormats by_name,
                       qsf::formats_by_rules(*input.model, options.tensor_types, options.block));
  if (!options.tensor_types.empty()) transcode.formats = &by_name;
  QSF_RETURN_IF_ERROR(fit_budget(*input.model, options.ram_budget_bytes, options.gptq, transcode));
  if (input.merged != nullptr) QSF_RETURN_IF_ERROR(input.merged->load());
  QSF_RETURN_IF_ERROR(check_target_size(options, *input.model, transcode));
  TuneWindows windows;
  if (options.tune) {
    QSF_ASSIGN_OR_RETURN(windows, read_tune_windows(options, *input.model, transcode));
  }
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<WorkFolder> work, open_work_folder(options, input));
  ConvertProgress progress(program_name(), !options.quiet);
  ConvertCalibration calibration;
  if (!options.calibration.empty()) {
    QSF_ASSIGN_OR_RETURN(calibration, calibrate(options, *input.model, transcode, progress));
    transcode.importance = &calibration.columns;
    transcode.layer_importance = calibration.layers;
    transcode.expert_hits = calibration.expert_hits;
    transcode.compensation = calibration.compensation.get();
  }
  qsf::TargetPlan target;
  if (options.target_bytes != 0) {
    QSF_ASSIGN_OR_RETURN(
        target, plan_target(options, *input.model, transcode, calibration.measured, progress));
    transcode.preset = qsf::QuantPreset::kKeep;  // of natively ternary matrices
    transcode.formats = &target.formats;
  }
  calibration.measured = {};                      // its memory is the conversion's now
  if (work) transcode.saved = &work->sections();  // not for the copy that calibration runs
  // The size of a compressed file is not known before it is written.
  if (transcode.compression != qsf::Compression::kNone) transcode.on_size = nullptr;
  transcode.on_progress = [&](const qsf::TranscodeProgress& done) {
    progress.show(done.stage, done.section, done.done_weights, done.total_weights);
  };
  auto report = options.tune ? transcode_and_tune(options, *input.model, windows, calibration,
                                                  transcode, progress)
                             : qsf::transcode(*input.model, options.output, transcode);
  progress.clear();
  if (!report) return std::move(report).error();
  QSF_RETURN_IF_ERROR(add_sketch(options, input.tokenizer));
  if (work) work->remove();
  std::error_code ignored;
  const ConvertedFile file{options.output, fs::file_size(file_path(options.output), ignored),
                           std::chrono::duration<double>(Clock::now() - start).count()};
  print_result(options, input, *report, file);
  if (options.report.empty()) return qsf::ok_status();
  return qsf::write_file(options.report, qsf::as_bytes(report_json(*report, file)));
}

qsf::Status make_random(const ConvertOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  QSF_ASSIGN_OR_RETURN(const qsf::RandomShape shape, qsf::find_random_shape(options.random));
  qsf::RandomModelOptions random;
  random.preset = options.preset.value_or(qsf::QuantPreset(qsf::QuantType::kQ4));
  random.head_type = options.head_type;
  random.block = options.block;
  random.layout = options.layout;
  random.compression = options.compression;
  random.tile_bytes = options.tile_bytes;
  random.seed = options.seed;
  random.program = kProgram;
  random.cancel = &g_interrupted;
  ProgressLine line(program_name(), !options.quiet);
  random.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    if (line.due()) line.show("writing: " + std::to_string(100 * done / total) + " %");
  };
  auto report = qsf::write_random_model(shape, options.output, random);
  line.clear();
  if (!report) return std::move(report).error();
  QSF_RETURN_IF_ERROR(add_sketch(options, {}));
  if (options.quiet) return qsf::ok_status();
  qsf::TranscodeReport sizes;
  sizes.n_weights = report->n_weights;
  sizes.raw_bytes = report->raw_bytes;
  sizes.stored_bytes = report->stored_bytes;
  std::error_code ignored;
  print_convert_summary(sizes, {options.output, fs::file_size(file_path(options.output), ignored),
                                std::chrono::duration<double>(Clock::now() - start).count()});
  return qsf::ok_status();
}

// Makes what the command line asks for.
qsf::Status make_output(const ConvertOptions& options) {
  if (!options.random.empty()) return make_random(options);
  return is_adapter_input(options) ? convert_adapter(options) : convert(options);
}

}  // namespace
}  // namespace qsf_tools

int qsf_tools::convert_main(int argc, char** argv) {
  qsf_tools::ConvertOptions options;
  if (const auto code = qsf_tools::parse_convert_options(argc, argv, options)) return *code;
  qsf_tools::handle_signals();
  qsf::Status status;
  try {
    status = qsf_tools::make_output(options);
  } catch (const std::bad_alloc&) {
    // Caught, so that leaving convert() has removed the temporary file.
    status = qsf::out_of_budget("not enough memory for this conversion");
  }
  if (status.ok()) return qsf_tools::kSuccess;
  std::error_code ignored;
  if (status.code() == qsf::StatusCode::kCancelled &&
      std::filesystem::exists(qsf_tools::file_path(options.work_folder), ignored)) {
    status = qsf::cancelled("interrupted; progress is saved in %s: run the same command to resume",
                            options.work_folder.c_str());
  }
  qsf_tools::print_error(qsf_tools::program_name(), status.message());
  return qsf_tools::kFailure;
}
