// SPDX-License-Identifier: MIT
//
// The command line of qsf convert, parsed and checked.

#ifndef QSF_TOOLS_CONVERT_CONVERT_OPTIONS_H_
#define QSF_TOOLS_CONVERT_CONVERT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/choose/tensor_type_rules.h"
#include "convert/encode/transcode_types.h"
#include "format/qsf_layout.h"
#include "import/gguf/i2s_flavor.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf_tools {

// The weights that Hadamard matrices rotate before rounding.
enum class Rotation : std::uint8_t { kNone, kValues, kStream, kAll };

// An adapter whose products are added to the weights.
struct MergedAdapter {
  std::string path;
  float scale = 1.0F;
};

struct ConvertOptions {
  std::string input;  // empty with `random`
  std::string output;
  std::string base;                               // .qsf model that an adapter is for; empty: none
  bool any_base = false;                          // the adapter fits other models of that shape too
  std::vector<MergedAdapter> merge;               // in this order
  std::vector<std::string> model_options;         // names of given options that no adapter takes
  bool mtp = false;                               // the block for multi-token prediction alone
  std::string random;                             // name of a shape of random weights; empty: none
  std::uint64_t seed = 1;                         // of random weights
  std::optional<qsf::QuantType> head_type;        // of embedding and head; none: by the preset
  std::vector<qsf::TensorTypeRule> tensor_types;  // before head_type and preset
  std::optional<qsf::QuantPreset> preset;         // none: the default of the input
  qsf::Rounding rounding = qsf::Rounding::kSearch;
  qsf::QuantType native_ternary = qsf::QuantType::kTernaryBase3;  // or kTernaryRow: 2 bits
  qsf::I2sLayout i2s_layout = qsf::I2sLayout::kAuto;
  bool int8_rows = false;  // the model was trained with activations of 8 bits
  Rotation rotation = Rotation::kNone;
  qsf::Compression compression = qsf::Compression::kNone;
  std::uint32_t block = 64;
  qsf::Layout layout = qsf::Layout::kInterleaved;
  std::uint64_t tile_bytes = 1U << 20;
  std::string calibration;      // a text or a calibration file; empty: none
  std::string calibration_out;  // file to save the calibration to; empty: none
  std::uint64_t calibration_tokens = 65536;
  std::uint32_t calibration_context = 512;
  bool gptq = false;
  bool tune = false;                 // fit scales and norms after rounding
  std::uint32_t tune_passes = 1;     // over the text
  std::string head_sketch;           // a text to make a sketch of the output head by; or empty
  double head_sketch_percent = 0.0;  // of the head's bytes; 0: no sketch
  std::uint64_t target_bytes = 0;    // largest file, types chosen by matrix; 0: types by the preset
  std::uint64_t ram_budget_bytes = 1'000'000'000;
  // --calibration-tokens or --calibration-context, the last one given: of use with a text only.
  std::string text_option;
  std::string work_folder;      // for resuming; empty: none
  std::string report;           // file for the JSON report; empty: none
  std::uint32_t n_threads = 0;  // 0: as many as the machine has
  bool quiet = false;
  bool verbose = false;
};

// Returns the word of the command line for a choice: "none", "values", "stream" or "all"; "on" or
// "off" of --scale-search; "base3" or "2bit" of --ternary-packing.
std::string_view rotation_name(Rotation rotation) noexcept;
std::string_view scale_search_name(qsf::Rounding rounding) noexcept;
std::string_view ternary_packing_name(qsf::QuantType native_ternary) noexcept;

// Returns the number of threads of a conversion where there is memory for them.
unsigned threads_of(const ConvertOptions& options) noexcept;

// Fills in `options`. Returns the exit code where the program ends here: after --help, or after one
// line on stderr for a wrong command line.
std::optional<int> parse_convert_options(int argc, const char* const* argv,
                                         ConvertOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_OPTIONS_H_
