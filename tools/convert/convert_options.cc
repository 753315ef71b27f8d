// SPDX-License-Identifier: MIT

#include "tools/convert/convert_options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "convert/random/random_model.h"
#include "tools/common/file_path.h"
#include "tools/common/option_parser.h"

namespace qsf_tools {
namespace {

constexpr const char* kTypeHelp =
    "Weight type. Default: keep for a GGUF file and for a ternary model, else 4bit. For every "
    "matrix: f32, f16, bf16, 8bit, 4bit, 3bit, 4bit-super, 3bit-super, 4bit-table, q6_k, q5_k. For "
    "the matrices of the layers, with embedding and head in a wider type of the same kind: 2bit, "
    "2bit-sym, 2bit-super, 3bit-table, 2bit-table, 3bit-trellis, 2bit-trellis, q3_k, q2_k, "
    "ternary, ternary-row. -super: super-blocks of 256 columns, whose block scales are coded too. "
    "-table: non-uniform codebooks, "
    "small errors at their size. -trellis: codes that depend on those before them, the smallest "
    "errors at 2 bits and slow to convert. q*_k: the K-quants of GGUF. mixed: types by matrix, "
    "widened until the cosine with the original reaches 0.99. keep: the weights of the input bit "
    "for bit, "
    "8bit where no type can hold them";

constexpr std::string_view kRotationNames[] = {"none", "values", "stream", "all"};
constexpr qsf::Compression kCompressions[] = {qsf::Compression::kNone, qsf::Compression::kLz4,
                                              qsf::Compression::kLz4Hc, qsf::Compression::kZstd};

// Choices as words of the command line; empty: not given.
struct Words {
  std::string quant_type;
  std::string head_type;
  std::string scale_search = "on";
  std::string rounding;  // the older name of scale_search
  std::string ternary_packing = "base3";
  std::string purpose;  // the older name of ternary_packing
  std::string i2s_layout = "auto";
  std::string rotation = "none";
  std::string compression = "none";
  std::uint32_t layout = 1;
  std::vector<std::string> merge;         // ADAPTER or ADAPTER:SCALE
  std::vector<std::string> tensor_types;  // PATTERN=TYPE
};

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const qsf::QuantPreset preset : qsf::all_quant_presets()) {
    names.emplace_back(qsf::quant_preset_name(preset));
  }
  return names;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const qsf::QuantType type : qsf::kAllQuantTypes) {
    names.emplace_back(qsf::quant_type_name(type));
  }
  return names;
}

std::vector<std::string> compression_names() {
  std::vector<std::string> names;
  for (const qsf::Compression c : kCompressions) names.emplace_back(qsf::compression_name(c));
  return names;
}

// Turns words that the parser has checked into the choices they name.
void set_choices(const Words& words, ConvertOptions& options) {
  options.preset = qsf::find_quant_preset(words.quant_type);
  if (const qsf::TypeTraits* const traits = qsf::find_type_traits(words.head_type)) {
    options.head_type = traits->type;
  }
  const bool nearest =
      words.rounding.empty() ? words.scale_search == "off" : words.rounding == "nearest";
  options.rounding = nearest ? qsf::Rounding::kNearest : qsf::Rounding::kSearch;
  const bool two_bits =
      words.purpose.empty() ? words.ternary_packing == "2bit" : words.purpose == "ram";
  options.native_ternary = two_bits ? qsf::QuantType::kTernaryRow : qsf::QuantType::kTernaryBase3;
  options.i2s_layout = qsf::find_i2s_layout(words.i2s_layout).value_or(qsf::I2sLayout::kAuto);
  for (std::size_t i = 0; i < std::size(kRotationNames); ++i) {
    if (kRotationNames[i] == words.rotation) options.rotation = static_cast<Rotation>(i);
  }
  for (const qsf::Compression compression : kCompressions) {
    if (qsf::compression_name(compression) == words.compression) options.compression = compression;
  }
  options.layout = static_cast<qsf::Layout>(words.layout);
}

// The checks return the problem of a command line, empty for none.

// Random weights have no input: the one path is the output.
std::string check_paths(const OptionParser& parser, ConvertOptions& options) {
  if (!options.random.empty()) {
    if (options.output.empty()) {
      options.output = std::move(options.input);
      options.input.clear();
    }
    if (options.output.empty()) return "OUT is required";
    if (!options.input.empty()) return options.input + ": --random reads no input; give OUT alone";
    if (options.preset == qsf::QuantPreset::kKeep) {
      return "--random excludes --quant-type keep: random weights have no type of their own";
    }
    for (const char* option :
         {"--report", "--work-folder", "--rotate", "--calibration", "--target-size", "--ram-budget",
          "--tensor-type", "--merge-lora", "--base", "--head-sketch"}) {
      if (parser.count(option) > 0) return std::string("--random excludes ") + option;
    }
    return {};
  }
  if (options.output.empty()) {
    return options.input.empty() ? "IN and OUT are required" : "OUT is required";
  }
  if (parser.count("--seed") > 0) return "--seed needs --random";
  if (options.head_type && !qsf::is_vocabulary_type(*options.head_type)) {
    return "--head-type " + std::string(qsf::quant_type_name(*options.head_type)) +
           ": embedding and head cannot be ternary; expected a type such as 8bit, q6_k or 4bit";
  }
  return {};
}

// Notes what was given of the options that are for models alone: whether the input is an adapter is
// not known before it is opened.
void note_model_options(const OptionParser& parser, ConvertOptions& options) {
  for (const char* option : {"--quant-type",
                             "--target-size",
                             "--head-type",
                             "--tensor-type",
                             "--block-size",
                             "--scale-search",
                             "--rounding",
                             "--rotate",
                             "--ternary-packing",
                             "--for",
                             "--int8-rows",
                             "--mtp",
                             "--i2s-layout",
                             "--calibration",
                             "--calibration-out",
                             "--gptq",
                             "--tune",
                             "--tune-passes",
                             "--calibration-tokens",
                             "--calibration-context",
                             "--compress",
                             "--threads",
                             "--ram-budget",
                             "--layout",
                             "--tile-bytes",
                             "--work-folder",
                             "--report",
                             "--verbose"}) {
    if (parser.count(option) > 0) options.model_options.emplace_back(option);
  }
}

// Takes ADAPTER[:SCALE] apart. A path with a colon may stand for itself.
std::string read_merged(const std::string& word, MergedAdapter& adapter) {
  adapter.path = word;
  const std::size_t colon = word.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::exists(file_path(word), ignored)) return {};
  const std::string scale = word.substr(colon + 1);
  char* end = nullptr;
  adapter.scale = std::strtof(scale.c_str(), &end);
  adapter.path = word.substr(0, colon);
  const bool is_number = !scale.empty() && end == scale.c_str() + scale.size();
  if (is_number && std::isfinite(adapter.scale) && !adapter.path.empty()) return {};
  return "--merge-lora " + word + ": expected ADAPTER or ADAPTER:SCALE with a finite number";
}

std::string check_adapter_options(const Words& words, ConvertOptions& options) {
  if (options.any_base && options.base.empty()) return "--any-base needs --base";
  for (const std::string& word : words.merge) {
    if (std::string problem = read_merged(word, options.merge.emplace_back()); !problem.empty()) {
      return problem;
    }
  }
  if (!options.merge.empty() && options.preset == qsf::QuantPreset::kKeep) {
    return "--merge-lora excludes --quant-type keep: adapters change the weights";
  }
  if (!options.base.empty() && !options.merge.empty()) {
    return "--base excludes --merge-lora: it is for an adapter that becomes a file of its own";
  }
  return {};
}

std::string check_tensor_types(const Words& words, ConvertOptions& options) {
  for (const std::string& word : words.tensor_types) {
    auto rule = qsf::parse_tensor_type_rule(word);
    if (!rule) return "--tensor-type " + std::string(rule.error().message());
    options.tensor_types.push_back(*std::move(rule));
  }
  return {};
}

std::string check_rotation(const ConvertOptions& options) {
  if (options.rotation == Rotation::kNone) return {};
  if (options.int8_rows) {
    return "--rotate excludes --int8-rows: such a model was trained with unrotated activations";
  }
  if (options.preset == qsf::QuantPreset::kKeep) {
    return "--rotate excludes --quant-type keep: rotation changes the weights";
  }
  return {};
}

// The size of a sketch, where there is to be one.
std::string check_sketch(const OptionParser& parser, ConvertOptions& options) {
  constexpr double kDefaultPercent = 32.0;
  const bool has_size = parser.count("--head-sketch-size") > 0;
  if (has_size && options.head_sketch.empty() && options.random.empty()) {
    return "--head-sketch-size needs --head-sketch";
  }
  if (!has_size && !options.head_sketch.empty()) options.head_sketch_percent = kDefaultPercent;
  return {};
}

// A block alone has no text to be measured on, and what is rotated is the stream of the model.
std::string check_mtp(const OptionParser& parser, const ConvertOptions& options) {
  if (!options.mtp) return {};
  for (const char* option : {"--calibration", "--target-size", "--rotate", "--merge-lora", "--base",
                             "--random", "--head-sketch"}) {
    if (parser.count(option) > 0) return std::string("--mtp excludes ") + option;
  }
  return {};
}

std::string check_calibration(const OptionParser& parser, ConvertOptions& options) {
  for (const char* option : {"--calibration-tokens", "--calibration-context"}) {
    if (parser.count(option) > 0) options.text_option = option;
  }
  if (parser.count("--tune-passes") > 0 && !options.tune) return "--tune-passes needs --tune";
  if (options.tune && options.int8_rows) {
    return "--tune excludes --int8-rows: it has no gradients of such activations";
  }
  if (options.tune && options.preset == qsf::QuantPreset::kKeep) {
    return "--tune excludes --quant-type keep: it changes scales and norms";
  }
  for (const char* option :
       {"--gptq", "--tune", "--calibration-out", "--calibration-tokens", "--calibration-context"}) {
    const bool has_text = !options.calibration.empty() || !options.head_sketch.empty();
    const bool of_text = std::string_view(option).starts_with("--calibration-") &&
                         option != std::string_view("--calibration-out");
    if (parser.count(option) > 0 && !(of_text ? has_text : !options.calibration.empty())) {
      return std::string(option) + " needs --calibration";
    }
  }
  return {};
}

std::string check_choices(const OptionParser& parser, const Words& words,
                          const ConvertOptions& options) {
  if (!words.rounding.empty() && parser.count("--scale-search") > 0) {
    return "--scale-search excludes --rounding, its older name";
  }
  if (!words.purpose.empty() && parser.count("--ternary-packing") > 0) {
    return "--ternary-packing excludes --for, its older name";
  }
  if (options.target_bytes == 0) return {};
  for (const char* option : {"--quant-type", "--tensor-type", "--block-size"}) {
    if (parser.count(option) > 0) {
      return std::string("--target-size excludes ") + option + ": it chooses types and blocks";
    }
  }
  return {};
}

void add_type_options(OptionParser& parser, ConvertOptions& options, Words& words) {
  parser.choice("--quant-type", words.quant_type, preset_names(), kTypeHelp).type_name("TYPE");
  parser
      .size_in_mb(
          "--target-size", options.target_bytes,
          "Largest size of the file in MB, before --compress. The type of every matrix is "
          "chosen so that the file fits and loses as little as possible. With --calibration "
          "the loss is the measured rise of the divergence from the original; without, the "
          "error of the weights")
      .type_name("N");
  parser
      .choice("--head-type", words.head_type, type_names(),
              "Type of embedding and head; default: by --quant-type")
      .type_name("TYPE");
  parser
      .value("--tensor-type", words.tensor_types,
             "Type of the matrices in whose name the regular expression PATTERN is found, before "
             "--head-type and --quant-type; of several the first counts. Names are those of GGUF: "
             "'blk\\.[0-3]\\.ffn_down=q6_k', attn_v=8bit, token_embd=q6_k. May be given several "
             "times")
      .type_name("PATTERN=TYPE");
  parser
      .value("--block-size", options.block,
             "Columns that share a scale: 32, 64, 128 or 256; 32 or 64 in super-blocks")
      .one_of({"32", "64", "128", "256"})
      .show_default();
  parser
      .choice("--scale-search", words.scale_search, {"on", "off"},
              "Search for the scales with the smallest error, or take the scale that covers the "
              "range of each block, which is faster")
      .show_default();
  parser.choice("--rounding", words.rounding, {"search", "nearest"}, "Same as --scale-search")
      .hidden();
  parser
      .choice("--rotate", words.rotation, {std::begin(kRotationNames), std::end(kRotationNames)},
              "Rotate by Hadamard matrices before rounding: outputs stay, outliers spread. values: "
              "the values of every attention head; stream: the residual stream, of models with "
              "RMSNorm (a tied head becomes a matrix of its own); all: both")
      .show_default();
  parser
      .choice(
          "--ternary-packing", words.ternary_packing, {"base3", "2bit"},
          "Ternary matrices, with ternary, mixed and keep: base3 takes 1.6 bits a weight in the "
          "file; 2bit is the layout in memory, which loads faster. Both are exact")
      .show_default();
  parser.choice("--for", words.purpose, {"disk", "ram"}, "Same as --ternary-packing").hidden();
  parser.flag("--int8-rows", options.int8_rows,
              "The model was trained with activations rounded to 8 bits by token, like BitNet, and "
              "its file does not say so: a GGUF file of architecture llama with TQ1_0, TQ2_0, "
              "IQ1_BN or IQ2_BN");
  parser.flag("--mtp", options.mtp,
              "Write the block for multi-token prediction of IN alone, with embedding and head: a "
              "draft model for IN itself (--draft of qsf run)");
  parser
      .choice("--i2s-layout", words.i2s_layout,
              {std::begin(qsf::kI2sLayoutNames), std::end(qsf::kI2sLayoutNames)},
              "Layout of the tensors of type I2_S in a GGUF file. auto detects it from sizes and "
              "dead channels; if the output is garbage, try ms64 (quantised on ARM) or another")
      .show_default();
}

void add_calibration_options(OptionParser& parser, ConvertOptions& options) {
  constexpr const char* kGroup = "Calibration";
  parser
      .value("--calibration", options.calibration,
             "Text file to run the model on first. Columns with large inputs are then rounded more "
             "precisely, and the index gets the importance of each layer. Or a file that "
             "--calibration-out saved")
      .type_name("FILE")
      .group(kGroup);
  parser
      .value("--calibration-out", options.calibration_out,
             "Save the calibration for other conversions of the same model")
      .type_name("FILE")
      .group(kGroup);
  parser
      .flag(
          "--gptq", options.gptq,
          "Error compensation (GPTQ): round each column so that it makes up for the errors of the "
          "columns before, using the inputs measured on the --calibration text. Runs the text "
          "once per group of layers that fits half the --ram-budget")
      .group(kGroup);
  parser
      .flag("--tune", options.tune,
            "After rounding, fit scales and norms so that the distributions of the next token come "
            "closer to the original's: gradients through the whole model, on windows of the "
            "--calibration text of which a tenth is held out to measure by. The size stays. Gains "
            "most below 4 bits. Takes some 12 operations a weight and token on top of the other "
            "steps; for dense models of Llama's kind")
      .group(kGroup);
  parser.value("--tune-passes", options.tune_passes, "Times that --tune goes through the text")
      .integer_in(1, 1000)
      .show_default()
      .group(kGroup);
  parser
      .value("--head-sketch", options.head_sketch,
             "Add a sketch of the output head, in the principal directions of what the model makes "
             "of a text: a run then reads little of the head itself. For heads of 8 bits a weight "
             "or more")
      .type_name("TEXT")
      .group(kGroup);
  parser
      .value(
          "--head-sketch-size", options.head_sketch_percent,
          "Its size in percent of the head's bytes, at most: for --head certified of a run 32 of "
          "a head of 16 bits; for approx 12, and 20 of a head of 8 bits; default: 32. With "
          "--random it needs no text")
      .type_name("PERCENT")
      .number_in(1.0, 60.0)
      .group(kGroup);
  parser
      .value("--calibration-tokens", options.calibration_tokens,
             "Most tokens of the text that are used, in whole windows")
      .integer_in(2, 1 << 30)
      .show_default()
      .group(kGroup);
  parser.value("--calibration-context", options.calibration_context, "Window length in tokens")
      .integer_in(2, 1 << 20)
      .show_default()
      .group(kGroup);
}

void add_adapter_options(OptionParser& parser, ConvertOptions& options, Words& words) {
  constexpr const char* kGroup = "Adapters";
  parser
      .value("--base", options.base,
             "The .qsf model that the adapter IN was trained for; IN is a PEFT folder or a GGUF "
             "adapter, and OUT becomes an adapter file")
      .type_name("MODEL")
      .group(kGroup);
  parser
      .flag("--any-base", options.any_base,
            "Let the adapter be used with every model of the architecture and shapes of --base, "
            "such as its other quantisations; by default only with that very file")
      .group(kGroup);
  parser
      .value("--merge-lora", words.merge,
             "Add an adapter to the weights of the model IN: a PEFT folder, a GGUF adapter or an "
             "adapter file; ADAPTER:F adds F times as much. May be given several times")
      .type_name("ADAPTER")
      .group(kGroup);
}

void add_output_options(OptionParser& parser, ConvertOptions& options, Words& words) {
  parser
      .choice("--compress", words.compression, compression_names(),
              "Compression of the tiles in the file")
      .show_default();
  parser.value("-t,--threads", options.n_threads, "Threads; default: as many as the machine has")
      .integer_in(1, 1024);
  parser
      .size_in_mb("--ram-budget", options.ram_budget_bytes,
                  "Limit on total process memory in MB, page cache of the conversion included. "
                  "Lowers the number of threads where needed. While --calibration runs the model, "
                  "weights that do not fit are read from the disk in every pass")
      .show_default();
  parser.value("--layout", words.layout, "1: rows interleaved, as kernels read them; 0: row-major")
      .one_of({"0", "1"})
      .show_default();
  parser.value("--tile-bytes", options.tile_bytes, "Largest tile in bytes, before compression")
      .integer_in(4096, 4 << 20)
      .show_default();
  parser
      .value(
          "--work-folder", options.work_folder,
          "Save progress in FOLDER; if interrupted, the same command resumes from it. The folder "
          "is created where it does not exist, and removed when OUT is complete")
      .type_name("FOLDER");
  parser
      .value("--report", options.report,
             "Write the type, bits, error and cosine of every tensor to FILE, as JSON")
      .type_name("FILE");
  parser.flag("--quiet", options.quiet, "Print errors and warnings only");
  parser.flag("--verbose", options.verbose, "Print bits, error and cosine of every tensor");
  parser
      .value("--random", options.random,
             "Read no input; write random weights of a known shape, for measurements. One of " +
                 qsf::random_shape_names())
      .type_name("SHAPE")
      .check([](const std::string& name) {
        return qsf::find_random_shape(name) ? std::string()
                                            : "expected one of " + qsf::random_shape_names();
      });
  parser.value("--seed", options.seed, "Seed of the random weights").show_default();
}

}  // namespace

std::string_view rotation_name(Rotation rotation) noexcept {
  return kRotationNames[static_cast<std::size_t>(rotation)];
}

std::string_view scale_search_name(qsf::Rounding rounding) noexcept {
  return rounding == qsf::Rounding::kSearch ? "on" : "off";
}

std::string_view ternary_packing_name(qsf::QuantType native_ternary) noexcept {
  return native_ternary == qsf::QuantType::kTernaryRow ? "2bit" : "base3";
}

unsigned threads_of(const ConvertOptions& options) noexcept {
  return options.n_threads != 0 ? options.n_threads
                                : std::max(1U, std::thread::hardware_concurrency());
}

std::optional<int> parse_convert_options(int argc, const char* const* argv,
                                         ConvertOptions& options) {
  Words words;
  OptionParser parser(
      "Converts a model to a .qsf file.\n"
      "IN is a Hugging Face folder (config.json with safetensors or pytorch_model.bin) or a GGUF "
      "file, or a LoRA adapter of a model: a PEFT folder or a GGUF adapter.\n"
      "Example: qsf convert MODEL.gguf model.qsf --quant-type 4bit\n"
      "Example: qsf convert ADAPTER adapter.qsf --base model.qsf");
  parser.value("IN", options.input, "Model folder or GGUF file; of a model in parts, any part")
      .type_name("FILE");
  parser
      .value("OUT", options.output,
             "File to write; an existing file is replaced when it is complete")
      .type_name("FILE");
  add_type_options(parser, options, words);
  add_calibration_options(parser, options);
  add_adapter_options(parser, options, words);
  add_output_options(parser, options, words);
  if (const auto code = parser.parse(argc, argv)) return code;
  set_choices(words, options);
  note_model_options(parser, options);
  for (const std::string& problem :
       {check_paths(parser, options), check_rotation(options), check_mtp(parser, options),
        check_sketch(parser, options), check_calibration(parser, options),
        check_choices(parser, words, options), check_tensor_types(words, options),
        check_adapter_options(words, options)}) {
    if (!problem.empty()) return parser.usage_error(problem);
  }
  return std::nullopt;
}

}  // namespace qsf_tools
