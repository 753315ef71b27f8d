// SPDX-License-Identifier: MIT
//
// The command line of qsf-convert, parsed and checked.

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_OPTIONS_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace qsf_tools {

struct ConvertOptions {
  std::string input;  // empty with `random`
  std::string output;
  std::string random;               // name of a shape whose weights are made up; empty: none
  std::uint64_t seed = 1;           // of random weights
  std::string head_type;            // of embedding and head; empty: as quant_type says
  std::string quant_type;           // empty: what suits the input
  std::string rounding = "search";  // of weights that are rounded: nearest or search
  std::string purpose = "disk";     // of natively ternary matrices: disk or ram
  std::string i2s_layout = "auto";  // of a GGUF file's tensors of type I2_S
  bool int8_rows = false;           // the model was trained with activations of 8 bits
  std::string rotate = "none";      // what of the model: none, values, stream or all
  std::string compression = "none";
  std::uint32_t block = 64;
  std::uint32_t layout = 1;
  std::uint64_t tile_bytes = 1U << 20;
  std::string calibration;      // a text or a calibration file; empty: none
  std::string calibration_out;  // file to save to; empty: none
  std::uint64_t calibration_tokens = 65536;
  std::uint32_t calibration_context = 512;
  bool gptq = false;               // feed errors back
  std::uint64_t target_bytes = 0;  // of the file at most, by choosing types; 0: as quant_type
  std::uint64_t ram_budget_mb = 1000;
  // One of these last that was given and of which only a text has use; empty: none.
  std::string text_option;
  std::string work_folder;      // where what is done is kept for the next start; empty: nowhere
  std::string report;           // file for JSON about the result; empty: none
  std::uint32_t n_threads = 0;  // 0: as many as the machine has
  bool quiet = false;
  bool verbose = false;
};

// Returns how many threads a conversion takes where there is memory for them.
unsigned threads_of(const ConvertOptions& options) noexcept;

// Fills in `options`. Returns the exit code when the program is to end here; what was wrong is one
// line on stderr then.
std::optional<int> parse_convert_options(int argc, const char* const* argv,
                                         ConvertOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_OPTIONS_H_
