// SPDX-License-Identifier: MIT
//
// adapter_config.json of a PEFT folder: rank and scale of every module. What changes more of a
// model than matrix products by a low rank is refused by name, unknown keys of that kind too.
//
// Based on: PEFT's documentation of LoraConfig; Kalajdzievski 2023, "A Rank Stabilization Scaling
// Factor for Fine-Tuning with LoRA" (use_rslora).

#ifndef QSF_IMPORT_HF_PEFT_CONFIG_H_
#define QSF_IMPORT_HF_PEFT_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf {

// A key of rank_pattern or alpha_pattern: PEFT takes it as a regular expression for the end of a
// module's name, from a point on. Those of letters, digits, '_', '-', '.' (any character), "\."
// and a '^' in front (the whole name) are read, which are those that PEFT itself writes.
struct PeftPattern {
  std::string text;  // without '^' and backslashes
  std::string any;   // of every character of `text`: '1' where any other may stand
  bool whole = false;
  double value = 0.0;

  // Returns whether PEFT would use it for a module such as "model.layers.0.self_attn.q_proj".
  bool matches(std::string_view module) const noexcept;
};

struct PeftConfig {
  std::uint32_t rank = 0;  // 1 to kMaxAdapterRank
  double alpha = 0.0;      // finite
  bool rank_stabilised = false;
  std::vector<PeftPattern> ranks;
  std::vector<PeftPattern> alphas;

  // Rank and scale of a module: alpha / rank, or alpha / sqrt(rank) when it is stabilised.
  // Fails  kUnsupported where several patterns with other values match: which one PEFT takes
  // depends
  //        on their order in the file
  Result<std::uint32_t> rank_of(std::string_view module) const;
  Result<float> scale_of(std::string_view module) const;
};

// Fails  kCorrupt on invalid JSON and values of a wrong type or range; kUnsupported, naming it, on
// a
//        feature that this version does not run
Result<PeftConfig> parse_peft_config(std::string_view json);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_PEFT_CONFIG_H_
