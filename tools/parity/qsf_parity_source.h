// SPDX-License-Identifier: MIT
//
// LogitsSource: whoever turns tokens into logits: our engine, a program in a child process, a file.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_SOURCE_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_SOURCE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/parity/qsf_parity_trace.h"

namespace qsf_tools {

inline constexpr const char* kParityTool = "qsf-parity";
inline constexpr const char* kParitySchemaVersion = "1.0.0";

class LogitsSource {
 public:
  virtual ~LogitsSource() = default;

  virtual std::uint32_t n_vocab() const = 0;
  // Returns the ids of a text as the model begins texts.
  virtual qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                           bool parse_special) = 0;
  // Appends tokens to what was computed so far, as a prompt or as one generated token, and gives
  // the logits after each. Shapes    logits [tokens.size(), n_vocab] Requires  1 token or more; 1
  // with `generated`
  virtual qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                               std::span<float> logits) = 0;
  // The points of the graph, where it was asked to trace and can.
  virtual std::span<const TracePoint> points() const { return {}; }
  // What the receipt says of it.
  virtual nlohmann::json describe() const = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_SOURCE_H_
