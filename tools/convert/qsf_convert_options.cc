// SPDX-License-Identifier: MIT

#include "tools/convert/qsf_convert_options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "convert/encode/transcode_types.h"
#include "convert/random/random_model.h"
#include "import/gguf/i2s_flavor.h"
#include "quant/types.h"
#include "tools/common/command_line.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

constexpr const char* kTypeHelp =
    "Weight type, by default keep for a GGUF file and for ternary layers, 4bit otherwise. f32, "
    "f16, bf16, 8bit, 4bit, "
    "3bit, 4bit-super, 3bit-super: every matrix. 2bit, "
    "2bit-sym, 2bit-super, ternary, ternary-row: the layers, with embedding and head at 4 bits. "
    "-super: 256 columns share two numbers that scale the blocks in them; fewer bytes. 4bit-table: "
    "every matrix, 3bit-table, 2bit-table: the layers, with 4bit-table beside: codes stand for "
    "levels that are close where weights are many; the smallest errors for their bytes. q6_k, "
    "q5_k, q3_k, q2_k: GGUF's types of these names, the last two for the layers, with q6_k beside. "
    "mixed: q2_k for Q, K, V, gate and up, 4bit-super of 32 columns for the rest, each widened "
    "(3bit-table, 4bit-super, q5_k, q6_k, 8bit) until its cosine with the original reaches 0.99. "
    "keep: the weights as they are, bit for bit, where a type can hold them exactly, and 8bit "
    "where none can";

std::string type_names() {
  std::string names;
  for (const qsf::QuantType type : qsf::kAllQuantTypes) {
    names += (names.empty() ? "" : ", ") + std::string(qsf::quant_type_name(type));
  }
  return names;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const qsf::QuantPreset preset : qsf::all_quant_presets()) {
    names.emplace_back(qsf::quant_preset_name(preset));
  }
  return names;
}

// Whether --head-type accepts the type, or no type is named.
bool is_vocabulary_type(const std::string& name) {
  const qsf::TypeTraits* const traits = qsf::find_type_traits(name);
  return traits == nullptr || qsf::is_vocabulary_type(traits->type);
}

CLI::Validator weight_type() {
  return CLI::Validator(
      [](const std::string& value) {
        if (qsf::find_type_traits(value) != nullptr) return std::string();
        return value + ": expected one of " + type_names();
      },
      "");
}

CLI::Validator shape_name() {
  return CLI::Validator(
      [](const std::string& value) {
        const auto shape = qsf::find_random_shape(value);
        return shape ? std::string() : std::string(shape.error().message());
      },
      "");
}

// Returns the exit code for a problem of the command line, nothing where there is none.
std::optional<int> report_problem(const std::string& problem) {
  if (problem.empty()) return std::nullopt;
  print_error("qsf-convert", problem + "; see qsf-convert --help");
  return kUsage;
}

// Random weights have no input: the one path is the output.
std::optional<int> check_paths(const CLI::App& app, ConvertOptions& options) {
  std::string problem;
  if (!options.random.empty()) {
    if (options.output.empty()) {
      options.output = std::move(options.input);
      options.input.clear();
    }
    if (options.output.empty()) {
      problem = "OUT is required";
    } else if (!options.input.empty()) {
      problem = options.input + ": --random reads no input, expected OUT alone";
    } else if (options.quant_type == "keep") {
      problem = "--random has no weights to keep; expected another --quant-type";
    } else if (!options.report.empty()) {
      problem = "--random has no weights that the result could differ from; leave out --report";
    } else if (!options.work_folder.empty()) {
      problem = "--random keeps nothing to go on from; leave out --work-folder";
    }
  } else if (options.output.empty()) {
    problem = options.input.empty() ? "IN and OUT are required" : "OUT is required";
  } else if (app.count("--seed") > 0) {
    problem = "--seed goes with --random alone";
  } else if (!is_vocabulary_type(options.head_type)) {
    problem = "--head-type " + options.head_type +
              ": embedding and head of a model cannot be ternary; expected a type such as 8bit, "
              "q6_k or 4bit";
  }
  return report_problem(problem);
}

// What was trained as it is stored cannot be rotated, nor weights that there are none of.
std::optional<int> check_rotation(const ConvertOptions& options) {
  std::string problem;
  if (options.rotate == "none") return std::nullopt;
  if (!options.random.empty()) {
    problem = "--random has no outliers; leave out --rotate";
  } else if (options.int8_rows) {
    problem =
        "--rotate: a model for --int8-rows was trained with rows of the columns it has; "
        "leave out one of the two";
  } else if (options.quant_type == "keep") {
    problem =
        "--rotate changes weights, so none can be kept as they are; expected another "
        "--quant-type than keep";
  }
  return report_problem(problem);
}

std::optional<int> check_calibration(const CLI::App& app, ConvertOptions& options) {
  std::string problem;
  if (!options.random.empty() && !options.calibration.empty()) {
    problem = "--random has no weights that a text could tell anything of; leave out --calibration";
  }
  if (!options.random.empty() && app.count("--ram-budget") > 0) {
    problem = "--random makes its tiles one by one, in a few MB; leave out --ram-budget";
  }
  for (const char* option : {"--calibration-tokens", "--calibration-context"}) {
    if (app.count(option) > 0) options.text_option = option;
  }
  for (const char* option :
       {"--gptq", "--calibration-out", "--calibration-tokens", "--calibration-context"}) {
    if (app.count(option) > 0 && options.calibration.empty()) {
      problem = std::string(option) + " goes with --calibration alone";
    }
  }
  return report_problem(problem);
}

// Returns the bytes of "2600000", "2.6M" or "4G"; 0 for anything else.
std::uint64_t parse_size(const std::string& text) {
  char* end = nullptr;
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) == 0) return 0;
  const double number = std::strtod(text.c_str(), &end);
  const std::string suffix = end;
  double unit = 1.0;
  if (suffix == "k" || suffix == "K") unit = 1e3;
  if (suffix == "m" || suffix == "M") unit = 1e6;
  if (suffix == "g" || suffix == "G") unit = 1e9;
  if (suffix.size() > 1 || (!suffix.empty() && unit == 1.0)) return 0;
  constexpr double kMost = 1e15;
  const double bytes = number * unit;
  return bytes >= 1.0 && bytes <= kMost ? static_cast<std::uint64_t>(bytes) : 0;
}

std::optional<int> check_target_size(const CLI::App& app, const std::string& text,
                                     ConvertOptions& options) {
  if (app.count("--target-size") == 0) return std::nullopt;
  std::string problem;
  options.target_bytes = parse_size(text);
  if (options.target_bytes == 0) {
    problem = "--target-size " + text + ": expected bytes, such as 2600000, 2.6M or 4G";
  } else if (!options.random.empty()) {
    problem = "--random has no weights that lose by rounding; leave out --target-size";
  } else if (options.calibration.empty()) {
    problem = "--target-size goes with --calibration alone, which measures what rounding costs";
  }
  for (const char* option : {"--quant-type", "--block-size"}) {
    if (problem.empty() && app.count(option) > 0) {
      problem = std::string("--target-size chooses types and blocks itself; leave out ") + option;
    }
  }
  return report_problem(problem);
}

void add_calibration_options(CLI::App& app, ConvertOptions& options) {
  app.add_option("--calibration", options.calibration,
                 "Spend bits where they matter: run the model over this text first and see which "
                 "columns of its matrices are used most, and what each layer is missed for. Or a "
                 "file that --calibration-out has saved")
      ->type_name("FILE");
  app.add_option("--calibration-out", options.calibration_out,
                 "Save what --calibration has seen, for other conversions of the same model")
      ->type_name("FILE");
  app.add_flag("--gptq", options.gptq,
               "Let the codes of a row make up for each other's errors, as GPTQ does, by what the "
               "text of --calibration shows of each matrix's inputs. The model runs over the text "
               "again during the conversion, once for as many layers as half the --ram-budget has "
               "room for");
  app.add_option("--calibration-tokens", options.calibration_tokens,
                 "Tokens of the text that are taken at most, in whole windows")
      ->type_name("N")
      ->check(integer_in(2, 1 << 30))
      ->capture_default_str();
  app.add_option("--calibration-context", options.calibration_context, "Tokens of a window")
      ->type_name("N")
      ->check(integer_in(2, 1 << 20))
      ->capture_default_str();
}

void add_ternary_options(CLI::App& app, ConvertOptions& options) {
  app.add_option(
         "--for", options.purpose,
         "Natively ternary matrices, with ternary, mixed and keep: disk, 1.6 bits a weight, "
         "or ram, 2 bits as kernels read them. Both are exact")
      ->check(CLI::IsMember({"disk", "ram"}))
      ->capture_default_str();
  app.add_flag(
      "--int8-rows", options.int8_rows,
      "The model was trained with activations rounded to 8 bits by token, as BitNet models "
      "are, and its file does not say so: a GGUF file of architecture llama with TQ1_0, "
      "TQ2_0, IQ1_BN or IQ2_BN");
  app.add_option("--i2s-layout", options.i2s_layout,
                 "How a GGUF file stores tensors of type I2_S, where auto, by their sizes and dead "
                 "channels, cannot tell: Microsoft's ms128, ms64 (quantised on ARM) or ms4row; "
                 "inline32, split32, qk256; seed: qk256 first, within 128 bytes")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(qsf::kI2sLayoutNames),
                                                     std::end(qsf::kI2sLayoutNames))))
      ->capture_default_str();
}

void add_work_option(CLI::App& app, ConvertOptions& options) {
  app.add_option("--work-folder", options.work_folder,
                 "Keep what is done in FOLDER, so that the same command goes on where it was "
                 "interrupted: what --calibration has seen, its runs between layers, and finished "
                 "layers. Made if there is none, and removed when OUT is whole")
      ->type_name("FOLDER");
}

void add_random_options(CLI::App& app, ConvertOptions& options) {
  app.add_option("--random", options.random,
                 "Read no input: write random weights of a known shape, for measurements. One of " +
                     qsf::random_shape_names())
      ->type_name("SHAPE")
      ->check(shape_name());
  app.add_option("--seed", options.seed, "Seed of random weights")
      ->type_name("N")
      ->check(unsigned_integer())
      ->capture_default_str();
}

}  // namespace

unsigned threads_of(const ConvertOptions& options) noexcept {
  return options.n_threads != 0 ? options.n_threads
                                : std::max(1U, std::thread::hardware_concurrency());
}

std::optional<int> parse_convert_options(int argc, const char* const* argv,
                                         ConvertOptions& options) {
  std::string target_size;
  CLI::App app(
      "Convert a Hugging Face model folder (config.json with safetensors or pytorch_model.bin) or "
      "a GGUF file to a .qsf file, or with --random make a file of random weights.",
      "qsf-convert");
  app.set_version_flag("--version", "qsf-convert " QSF_VERSION);
  app.add_option("IN", options.input,
                 "Model folder or GGUF file; of a model in parts any of its files")
      ->type_name("FILE");
  app.add_option("OUT", options.output, "File to write; replaced as a whole if it exists")
      ->type_name("FILE");
  app.add_option("--quant-type", options.quant_type, kTypeHelp)
      ->check(CLI::IsMember(preset_names()));
  app.add_option(
         "--head-type", options.head_type,
         "Type of embedding and head, by default as --quant-type says. One of " + type_names())
      ->type_name("TYPE")
      ->check(weight_type());
  add_ternary_options(app, options);
  app.add_option("--block-size", options.block,
                 "Columns that share a scale: 32, 64, 128 or 256; 32 or 64 in super-blocks")
      ->check(CLI::IsMember({32U, 64U, 128U, 256U}))
      ->capture_default_str();
  app.add_option("--rounding", options.rounding,
                 "How weights become codes: search looks for the scales with the smallest error, "
                 "nearest takes those that reach every weight, which is faster")
      ->check(CLI::IsMember({"nearest", "search"}))
      ->capture_default_str();
  app.add_option("--rotate", options.rotate,
                 "Rotate by Hadamard matrices before rounding, which changes no output and spreads "
                 "outliers: values, those of every head; stream, the residual stream of a model "
                 "that normalises it by RMSNorm, for which a head that is the embedding becomes a "
                 "matrix of its own; all, both")
      ->check(CLI::IsMember({"none", "values", "stream", "all"}))
      ->capture_default_str();
  app.add_option("--compress", options.compression, "Tile compression: none, lz4, lz4hc or zstd")
      ->check(CLI::IsMember({"none", "lz4", "lz4hc", "zstd"}))
      ->capture_default_str();
  app.add_option("--threads", options.n_threads, "Threads; default: as many as the machine has")
      ->check(integer_in(1, 1024));
  app.add_option("--ram-budget", options.ram_budget_mb,
                 "Bound of all memory in MB (10^6 bytes), what the conversion leaves in the page "
                 "cache included; takes as many of the threads as fit. Weights that do not fit "
                 "while --calibration runs the model are read from the disk in every pass")
      ->type_name("N")
      ->check(integer_in(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--layout", options.layout,
                 "1: rows interleaved, as kernels read them; 0: row-major")
      ->check(CLI::IsMember({0U, 1U}))
      ->capture_default_str();
  app.add_option("--tile-bytes", options.tile_bytes, "Largest tile, before compression")
      ->check(integer_in(4096, 4 << 20))
      ->capture_default_str();
  add_calibration_options(app, options);
  app.add_option("--target-size", target_size,
                 "Choose the type of every matrix so that the file takes at most so many bytes, "
                 "before --compress, and loses as little as that allows, by what rounding each "
                 "matrix costs the text of --calibration. A number, or one with k, M or G (10^3, "
                 "10^6, 10^9). The first such conversion runs the model some hundred times; what "
                 "--calibration-out saves serves for other sizes")
      ->type_name("N");
  add_random_options(app, options);
  add_work_option(app, options);
  app.add_option("--report", options.report,
                 "Write what became of every tensor to FILE, as JSON: type, bits, error, cosine")
      ->type_name("FILE");
  app.add_flag("--quiet", options.quiet, "Print errors and warnings alone");
  app.add_flag("--verbose", options.verbose, "Print bits, error and cosine of every tensor");
  if (const auto code = parse_command_line(app, argc, argv)) return code;
  if (const auto code = check_paths(app, options)) return code;
  if (const auto code = check_rotation(options)) return code;
  if (const auto code = check_calibration(app, options)) return code;
  return check_target_size(app, target_size, options);
}

}  // namespace qsf_tools
