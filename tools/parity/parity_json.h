// SPDX-License-Identifier: MIT
//
// All JSON of qsf parity, written from structs and parsed into structs: receipts, traces, kernel
// records, the hello of a child, the source of recorded logits.
//
// JSON from outside that nests deeper than 32 levels is refused, because walking a value recurses
// once a level.

#ifndef QSF_TOOLS_PARITY_PARITY_JSON_H_
#define QSF_TOOLS_PARITY_PARITY_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/parity/parity_receipt.h"
#include "tools/parity/parity_trace.h"

namespace qsf_tools {

// Returns the text of a receipt, whose sha256 is ignored: the digest of the text is put in.
std::string receipt_text(const Receipt& receipt);

struct ParsedReceipt {
  Receipt receipt;
  std::string digest;  // SHA-256 that the text has, without receipt_sha256
};
// Parses a receipt into its struct. Every field of the struct must be there, of its type and within
// its range; where the schema says so, no other field may be there.
// Fails  kCorrupt, naming the first wrong field: "rows/3/cosine: ..."
qsf::Result<ParsedReceipt> parse_receipt(std::string_view text);

// Return the differences between a part of a receipt and the same part as computed again, a line
// each. Numbers may differ by the rounding of their text.
std::vector<std::string> differing_measurements(const Receipt& receipt, const Receipt& computed);
std::vector<std::string> differing_verdict(const Receipt& receipt, const Receipt& computed);

// Traces: a head line, then a line a point.
std::string trace_text(const Trace& trace);
// Fails  kCorrupt; `path` is for the message
qsf::Result<Trace> parse_trace(const std::string& text, const std::string& path);

// Returns one line of kernel records.
std::string kernel_call_line(const KernelCall& call);

// Returns the description of the source of recorded logits, and whether a text is a description.
std::string source_text(const SourceDescription& source, const std::string& model_path,
                        const std::string& model_sha256);
bool is_source_text(std::string_view text);

struct ChildHello {
  std::uint64_t protocol = 0;  // 0: not given, and so below
  std::uint64_t n_vocab = 0;
  bool trace = false;
  std::string name = "unknown";
  std::string commit = "unknown";
  std::string system = "unknown";
  std::string kv_type = "unknown";
};
// Returns nothing for a text that is not a JSON object.
std::optional<ChildHello> parse_hello(std::string_view text);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_JSON_H_
