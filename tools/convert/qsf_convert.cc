// SPDX-License-Identifier: MIT
//
// qsf-convert: makes a .qsf file from a Hugging Face model folder or a GGUF file, or one of random
// weights.

#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "convert/encode/rotated_model.h"
#include "convert/encode/transcode.h"
#include "convert/random/random_model.h"
#include "import/gguf/gguf_model.h"
#include "import/hf/hf_model.h"
#include "import/hf/hf_tokenizer.h"
#include "import/vocabulary.h"
#include "io/atomic_file.h"
#include "tokenizer/tokenizer_data.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"
#include "tools/convert/qsf_convert_calibrate.h"
#include "tools/convert/qsf_convert_files.h"
#include "tools/convert/qsf_convert_memory.h"
#include "tools/convert/qsf_convert_options.h"
#include "tools/convert/qsf_convert_progress.h"
#include "tools/convert/qsf_convert_report.h"
#include "tools/convert/qsf_convert_work.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTool = "qsf-convert";
constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::uint64_t kMaxTokenizerFileBytes = 256U << 20;

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void on_signal(int /*number*/) {
  g_interrupted.store(true);
}

// An interrupted conversion removes its temporary file; a file-size limit is an error like a full
// disk, not the end of the process.
void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

// Refuses an output that is one of the files of the input: of a folder any but older .qsf files, of
// a GGUF file itself and, since it may be in parts, any GGUF file beside it.
qsf::Status check_output(const ConvertOptions& options, const std::string& output) {
  std::error_code failure;
  if (!fs::exists(output, failure)) return qsf::ok_status();
  const bool is_folder = fs::is_directory(options.input, failure);
  const fs::path folder =
      is_folder ? fs::path(options.input) : fs::absolute(options.input, failure).parent_path();
  const auto is_input = [&](const fs::path& path) {
    std::error_code ignored;
    if (is_folder) return path.extension() != ".qsf";
    return path.extension() == ".gguf" || fs::equivalent(path, options.input, ignored);
  };
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code ignored;
    if (is_input(entry->path()) && fs::equivalent(entry->path(), output, ignored)) {
      return qsf::invalid_argument("%s: this is a file of the input; choose another output",
                                   output.c_str());
    }
  }
  return qsf::ok_status();
}

// Tells a GGUF file by its name or its first bytes.
qsf::Result<bool> is_gguf(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  if (path.ends_with(".gguf")) return true;
  QSF_ASSIGN_OR_RETURN(const qsf::File file, qsf::File::open(path));
  std::byte start[kMagic.size()];
  if (file.size_bytes() < sizeof start) return false;
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, start));
  return qsf::as_text(start) == kMagic;
}

qsf::Status check_input(const std::string& input) {
  std::error_code failure;
  const fs::file_status status = fs::status(input, failure);
  if (status.type() == fs::file_type::not_found) {
    return qsf::not_found("%s: no such file or folder", input.c_str());
  }
  if (status.type() == fs::file_type::directory) return qsf::ok_status();
  QSF_ASSIGN_OR_RETURN(const bool gguf, is_gguf(input));
  if (gguf) return qsf::ok_status();
  return qsf::invalid_argument(
      "%s: not a folder and no GGUF file; expected a folder with config.json and safetensors or "
      "pytorch_model.bin",
      input.c_str());
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
  print_error(kTool, "warning: the model's embedding has " + std::to_string(n_vocab) +
                         " rows; left out of the tokenizer: " + names);
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
  std::uint64_t added_weights = 0;  // of a head that was the embedding
};

qsf::Result<Input> open_folder(const std::string& folder) {
  QSF_ASSIGN_OR_RETURN(auto model, qsf::HfModel::open(folder));
  for (const std::string& warning : model->warnings()) print_error(kTool, "warning: " + warning);
  QSF_ASSIGN_OR_RETURN(std::vector<std::byte> tokenizer,
                       read_tokenizer(folder, model->spec().n_vocab));
  // Layers that are ternary already would lose by any other type.
  const bool ternary = model->spec().int8_rows;
  return Input{std::move(model), std::move(tokenizer),
               ternary ? qsf::QuantPreset::kKeep : qsf::QuantPreset(qsf::QuantType::kQ4)};
}

qsf::Result<Input> open_gguf(const std::string& path, qsf::I2sLayout i2s_layout) {
  QSF_ASSIGN_OR_RETURN(auto model, qsf::GgufModel::open(path, i2s_layout));
  for (const std::string& warning : model->warnings()) print_error(kTool, "warning: " + warning);
  const auto& data = model->tokenizer();
  if (!data) return qsf::Status(data.error()).with_context(path);
  std::vector<std::byte> tokenizer;
  if (data->has_value()) {
    QSF_ASSIGN_OR_RETURN(tokenizer, qsf::write_tokenizer_section(**data));
  }
  return Input{std::move(model), std::move(tokenizer), qsf::QuantPreset::kKeep};
}

// Puts the rotation that the options ask for between the model and its conversion.
qsf::Status rotate(const ConvertOptions& options, Input& input) {
  if (options.rotate == "none") return qsf::ok_status();
  if (options.quant_type.empty() && input.default_preset == qsf::QuantPreset::kKeep) {
    return qsf::invalid_argument(
        "%s: rotated weights cannot be kept as they are; expected a --quant-type with --rotate",
        options.input.c_str());
  }
  const bool all = options.rotate == "all";
  auto rotated = qsf::RotatedModel::create(
      std::move(input.model),
      {.values = all || options.rotate == "values", .stream = all || options.rotate == "stream"});
  if (!rotated) return std::move(rotated).error().with_context("--rotate " + options.rotate);
  input.added_weights = (*rotated)->added_weights();
  input.model = std::move(*rotated);
  return qsf::ok_status();
}

qsf::Compression compression_of(const std::string& name) {
  for (const qsf::Compression compression :
       {qsf::Compression::kLz4, qsf::Compression::kLz4Hc, qsf::Compression::kZstd}) {
    if (qsf::compression_name(compression) == name) return compression;
  }
  return qsf::Compression::kNone;
}

// Refuses to begin what cannot end: a disk that has less room than the file will take.
qsf::Status check_room(const std::string& output, std::uint64_t file_bytes) {
  std::error_code failure;
  fs::path folder = fs::absolute(output, failure).parent_path();
  struct statvfs about = {};
  // What cannot be asked, or counts no blocks at all, is found out by writing.
  if (failure || ::statvfs(folder.c_str(), &about) != 0 || about.f_blocks == 0) {
    return qsf::ok_status();
  }
  const std::uint64_t free_bytes = std::uint64_t{about.f_bavail} * about.f_frsize;
  if (free_bytes >= file_bytes) return qsf::ok_status();
  return qsf::io_error(
      "%s: the file takes %s, and %s has %s free; make room there, or write to "
      "another disk",
      output.c_str(), megabytes(file_bytes).c_str(), folder.c_str(), megabytes(free_bytes).c_str());
}

std::optional<qsf::QuantType> find_type(const std::string& name) {
  const qsf::TypeTraits* const traits = qsf::find_type_traits(name);
  if (traits == nullptr) return std::nullopt;
  return traits->type;
}

qsf::Status check_report_file(const ConvertOptions& options) {
  if (options.report.empty()) return qsf::ok_status();
  QSF_RETURN_IF_ERROR(check_output(options, options.report).with_context("--report"));
  for (const std::string& other : {options.output, options.calibration, options.calibration_out}) {
    if (!other.empty() && is_same_file(options.report, other)) {
      return qsf::invalid_argument("--report %s: this is %s; choose another name",
                                   options.report.c_str(), other.c_str());
    }
  }
  return check_writable(options.report).with_context("--report");
}

qsf::TranscodeOptions transcode_options(const ConvertOptions& options, const Input& input) {
  qsf::TranscodeOptions transcode;
  transcode.preset = qsf::find_quant_preset(options.quant_type).value_or(input.default_preset);
  transcode.native_ternary =
      options.purpose == "ram" ? qsf::QuantType::kTernaryRow : qsf::QuantType::kTernaryBase3;
  transcode.vocabulary_type = find_type(options.head_type);
  transcode.int8_rows = options.int8_rows;
  transcode.block = options.block;
  transcode.rounding =
      options.rounding == "nearest" ? qsf::Rounding::kNearest : qsf::Rounding::kSearch;
  transcode.layout = static_cast<qsf::Layout>(options.layout);
  transcode.compression = compression_of(options.compression);
  transcode.tile_bytes = options.tile_bytes;
  transcode.n_threads = threads_of(options);
  transcode.program = "qsf-convert " QSF_VERSION;
  transcode.tokenizer = input.tokenizer;
  transcode.cancel = &g_interrupted;
  transcode.on_size = [&options](std::uint64_t bytes) { return check_room(options.output, bytes); };
  return transcode;
}

qsf::Status convert(const ConvertOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  QSF_RETURN_IF_ERROR(check_input(options.input));
  QSF_RETURN_IF_ERROR(check_output(options, options.output));
  QSF_RETURN_IF_ERROR(check_output(options, options.calibration_out));
  QSF_RETURN_IF_ERROR(check_calibration_files(options));
  QSF_RETURN_IF_ERROR(check_report_file(options));
  std::error_code ignored;
  const qsf::I2sLayout i2s_layout = *qsf::find_i2s_layout(options.i2s_layout);
  QSF_ASSIGN_OR_RETURN(Input input, fs::is_directory(options.input, ignored)
                                        ? open_folder(options.input)
                                        : open_gguf(options.input, i2s_layout));
  if (input.tokenizer.empty()) {
    print_error(kTool, "warning: " + options.input +
                           ": no tokenizer; the file will take and give token ids alone");
  }
  QSF_RETURN_IF_ERROR(rotate(options, input));
  qsf::TranscodeOptions transcode = transcode_options(options, input);
  QSF_RETURN_IF_ERROR(
      fit_budget(*input.model, options.ram_budget_mb * kMegabyte, options.gptq, transcode));
  std::unique_ptr<WorkFolder> work;
  if (!options.work_folder.empty()) {
    QSF_ASSIGN_OR_RETURN(work, WorkFolder::open(options, *input.model, input.tokenizer));
    if (!options.quiet && work->goes_on()) {
      print_error(kTool, "going on where " + work->path() +
                             " was left: " + std::to_string(work->n_done()) + " of " +
                             std::to_string(input.model->spec().n_layers + 2) +
                             " sections are done");
    }
  }
  ConvertProgress progress(kTool, !options.quiet);
  ConvertCalibration calibration;
  if (!options.calibration.empty()) {
    QSF_ASSIGN_OR_RETURN(calibration, calibrate(options, *input.model, transcode, progress));
    transcode.importance = &calibration.columns;
    transcode.layer_importance = calibration.layers;
    transcode.compensation = calibration.compensation.get();
    if (options.target_bytes != 0) {
      transcode.preset = qsf::QuantPreset::kKeep;  // of natively ternary matrices
      transcode.formats = &calibration.target.formats;
    }
  }
  if (work) transcode.saved = &work->sections();  // not those of what calibration runs
  // Compressed, the file takes less, and nobody knows how much.
  if (transcode.compression != qsf::Compression::kNone) transcode.on_size = nullptr;
  transcode.on_progress = [&](const qsf::TranscodeProgress& done) {
    progress.show(done.stage, done.section, done.done_weights, done.total_weights);
  };
  auto report = qsf::transcode(*input.model, options.output, transcode);
  progress.clear();
  if (!report) return std::move(report).error();
  if (work) work->remove();
  print_convert_warnings(*report);
  const ConvertedFile file{options.output, fs::file_size(options.output, ignored),
                           std::chrono::duration<double>(Clock::now() - start).count()};
  if (options.verbose) print_tensor_table(*report);
  if (!options.quiet) {
    print_kept_summary(*report);
    print_verification(*report);
    if (input.added_weights != 0) {
      std::printf("the head, which was the embedding, takes %llu weights of its own\n",
                  static_cast<unsigned long long>(input.added_weights));
    }
    print_convert_summary(*report, file);
  }
  if (options.report.empty()) return qsf::ok_status();
  return qsf::write_file(options.report, qsf::as_bytes(report_json(*report, file)));
}

qsf::Status make_random(const ConvertOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  QSF_ASSIGN_OR_RETURN(const qsf::RandomShape shape, qsf::find_random_shape(options.random));
  qsf::RandomModelOptions random;
  random.preset = qsf::find_quant_preset(options.quant_type).value_or(qsf::QuantType::kQ4);
  random.head_type = find_type(options.head_type);
  random.block = options.block;
  random.layout = static_cast<qsf::Layout>(options.layout);
  random.compression = compression_of(options.compression);
  random.tile_bytes = options.tile_bytes;
  random.seed = options.seed;
  random.program = "qsf-convert " QSF_VERSION;
  random.cancel = &g_interrupted;
  ProgressLine line(kTool, !options.quiet);
  random.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    if (line.due()) line.show("writing: " + std::to_string(100 * done / total) + " %");
  };
  auto report = qsf::write_random_model(shape, options.output, random);
  line.clear();
  if (!report) return std::move(report).error();
  if (options.quiet) return qsf::ok_status();
  qsf::TranscodeReport sizes;
  sizes.n_weights = report->n_weights;
  sizes.raw_bytes = report->raw_bytes;
  sizes.stored_bytes = report->stored_bytes;
  std::error_code ignored;
  print_convert_summary(sizes, {options.output, fs::file_size(options.output, ignored),
                                std::chrono::duration<double>(Clock::now() - start).count()});
  return qsf::ok_status();
}

}  // namespace
}  // namespace qsf_tools

int qsf_tools::convert_main(int argc, char** argv) {
  qsf_tools::ConvertOptions options;
  if (const auto code = qsf_tools::parse_convert_options(argc, argv, options)) return *code;
  qsf_tools::handle_signals();
  qsf::Status status;
  try {
    status = options.random.empty() ? qsf_tools::convert(options) : qsf_tools::make_random(options);
  } catch (const std::bad_alloc&) {
    // Caught, so that leaving convert() has removed the temporary file.
    status = qsf::out_of_budget("not enough memory for this conversion");
  }
  if (status.ok()) return qsf_tools::kSuccess;
  std::error_code ignored;
  if (status.code() == qsf::StatusCode::kCancelled &&
      std::filesystem::exists(options.work_folder, ignored)) {
    status =
        qsf::cancelled("interrupted; %s keeps what is done: the same command goes on from there",
                       options.work_folder.c_str());
  }
  qsf_tools::print_error(qsf_tools::kTool, status.message());
  return qsf_tools::kFailure;
}
