// SPDX-License-Identifier: MIT
//
// What a comparison found, and the verdict that follows from it.
//
// The verdict is a function of what stands in the receipt, so that whoever reads a receipt can come
// to it again. It says "ok" only where every position that was asked for was compared and passed.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_RESULT_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_RESULT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/parity/parity_compare.h"

namespace qsf_tools {

enum class ParityStatus : std::uint8_t { kOk, kDivergence, kNotCompared };
// Returns "ok", "divergence" or "not_compared".
const char* status_name(ParityStatus status);
// Returns 0, 1 or 3.
int exit_code(ParityStatus status);

struct ParityResult {
  ParityThresholds thresholds;
  bool ids_given = false;  // both sides were told the ids
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint32_t> reference_tokens;
  std::uint32_t n_vocab = 0;
  std::uint32_t reference_n_vocab = 0;
  std::uint32_t n_positions = 0;  // of the prompt to compare: the first so many tokens
  std::uint32_t n_steps = 0;      // of greedy generation that were asked for
  std::vector<std::uint32_t> greedy;
  std::vector<std::uint32_t> reference_greedy;
  bool greedy_finite = true;  // every logit behind which a greedy token was chosen
  // Of positions 0, 1, ...: the prompt's, then those of greedy tokens as long as both sides have
  // chosen the same ones and another token follows.
  std::vector<RowParity> rows;
  std::vector<std::string> kernels;  // that computed our side
  std::string failure;               // why the comparison ended early; empty: it did not

  // Returns the token in front of a row, and how many rows there are when all was compared.
  std::uint32_t token_of_row(std::size_t row) const;
  std::size_t n_expected_rows() const;
  // Returns how many greedy tokens agree before the first that does not.
  std::size_t n_greedy_shared() const;
  // Returns the first token that differs; nothing: none does.
  std::optional<std::size_t> first_token_difference() const;
};

struct ParityVerdict {
  ParityStatus status = ParityStatus::kNotCompared;
  std::string reason;  // empty for ok
  nlohmann::json summary;
  nlohmann::json greedy;
};

ParityVerdict judge(const ParityResult& result);

// The parts of a receipt that a ParityResult is, and back.
nlohmann::json thresholds_json(const ParityThresholds& thresholds);
nlohmann::json tokenization_json(const ParityResult& result);
nlohmann::json rows_json(const ParityResult& result);
// Requires  the receipt follows the schema
ParityResult result_of(const nlohmann::json& receipt);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_RESULT_H_
