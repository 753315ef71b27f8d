// SPDX-License-Identifier: MIT
//
// The command lines of qsf parity, qsf parity verify and qsf parity diff, parsed and checked.

#ifndef QSF_TOOLS_PARITY_PARITY_OPTIONS_H_
#define QSF_TOOLS_PARITY_PARITY_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/engine_options.h"
#include "tools/parity/parity_result.h"

namespace qsf_tools {

struct ParityOptions {
  std::string model;
  std::string i2s_layout = "auto";    // of a GGUF model
  std::optional<std::string> prompt;  // from --prompt or --file
  std::vector<std::uint32_t> ids;     // instead of a prompt
  bool parse_special = false;
  std::uint32_t positions = 0;  // 0: all
  std::uint32_t steps = 4;
  std::string reference;        // "llama", "exact" or a file; empty: none, only --record
  std::string reference_model;  // for a child; the model itself where it is GGUF
  std::string child;            // program
  double timeout_seconds = 120.0;
  bool exact = false;
  KvTypeChoice kv_types;
  std::uint32_t context = 0;
  int n_threads = 0;  // 0: one for each physical core
  ParityThresholds thresholds;
  std::string receipt;
  std::string record;
  std::string trace;
  std::string trace_reference;
  std::string kernel_records;
};

// Returns the exit code when the program is to end here.
std::optional<int> parse_parity_options(int argc, const char* const* argv, ParityOptions& options);

struct VerifyOptions {
  std::string receipt;
  std::string model;  // instead of the path in the receipt
};
std::optional<int> parse_verify_options(int argc, const char* const* argv, VerifyOptions& options);

struct DiffOptions {
  std::string first;
  std::string second;
  double tolerance = 0.0;
  bool list = false;
};
std::optional<int> parse_diff_options(int argc, const char* const* argv, DiffOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_OPTIONS_H_
