// SPDX-License-Identifier: MIT
//
// The receipt of a comparison, as a struct. docs/parity-receipt.schema.json publishes its form as
// JSON; parity_json.cc writes and parses it, parity_verify.cc checks what it claims.

#ifndef QSF_TOOLS_PARITY_PARITY_RECEIPT_H_
#define QSF_TOOLS_PARITY_PARITY_RECEIPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/parity/parity_result.h"
#include "tools/parity/parity_run.h"
#include "tools/parity/parity_source.h"

namespace qsf_tools {

inline constexpr const char* kReceiptVersion = "1.0.0";

// Null in the JSON where the file could not be read.
using HashOrNull = std::optional<std::string>;

struct ModelRecord {
  std::string path;
  HashOrNull sha256;
  std::uint64_t bytes = 0;
  std::optional<std::string> converted_path;  // the .qsf file of a GGUF model
  std::optional<HashOrNull> converted_sha256;
  std::optional<ModelDescription> description;  // none: the model was not opened
};

struct PromptRecord {
  std::optional<std::string> text;
  HashOrNull sha256;
  bool parse_special = false;
};

struct ReferenceRecord {
  SourceDescription source;
  std::optional<std::string> model_path;  // of a child, and its files
  std::optional<HashOrNull> model_sha256;
  std::optional<HashOrNull> program_sha256;
};

struct KernelRecord {
  std::string kernel_id;
  std::uint64_t calls = 0;
  double microseconds = 0.0;
};

struct KernelRecordsFile {
  std::string path;
  std::string sha256;
  std::uint64_t records = 0;
};

struct EnvironmentRecord {
  std::string system;
  std::string machine;
  std::string cpu;
  std::string cpu_features;
  std::uint64_t memory_bytes = 0;
  std::string compiler;
  std::string libc;
  std::map<std::string, std::string> variables;
};

struct Receipt {
  std::string tool_version;
  std::string timestamp;
  std::string status;
  std::string reason;
  std::string failure;
  ModelRecord model;
  PromptRecord prompt;
  std::optional<TokenizerDescription> tokenizer;
  TokenizationRecord tokenization;
  SourceDescription ours;
  ReferenceRecord reference;
  ParityThresholds thresholds;
  std::vector<RowRecord> rows;
  SummaryRecord summary;
  GreedyRecord greedy;
  std::vector<KernelRecord> kernels;
  std::optional<KernelRecordsFile> kernel_records;
  double ours_seconds = 0.0;
  double reference_seconds = 0.0;
  EnvironmentRecord environment;
  std::string sha256;  // of the receipt without this field
};

// Returns the receipt of a comparison, without its digest.
Receipt make_receipt(const ParityRun& run, const ParityVerdict& verdict);

// Returns the result that a receipt records, from which judge() computes the verdict.
ParityResult result_of(const Receipt& receipt);

struct ReceiptCheck {
  std::vector<std::string> problems;   // none: the receipt is correct
  std::vector<std::string> unchecked;  // files that could not be read
  ParityVerdict verdict;               // computed from the receipt's own numbers
};

// Checks the text of a receipt: form, digest, files, and every number that follows from others.
// Files are read at the paths in the receipt; the model at `model` where that is not empty.
ReceiptCheck check_receipt(const std::string& text, const std::string& model);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_RECEIPT_H_
