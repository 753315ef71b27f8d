// SPDX-License-Identifier: MIT
//
// The receipt of a comparison, and its check.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_RECEIPT_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_RECEIPT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/parity/qsf_parity_run.h"

namespace qsf_tools {

// Returns the receipt, digest included.
nlohmann::json make_receipt(const ParityRun& run, const ParityVerdict& verdict);

// Returns the SHA-256 of a receipt without its digest, written without blanks and with sorted keys.
std::string receipt_digest(nlohmann::json receipt);

struct ReceiptCheck {
  std::vector<std::string> problems;   // none: the receipt is right
  std::vector<std::string> unchecked;  // what could not be looked at, and why
  ParityVerdict verdict;               // what the receipt's own numbers lead to
};

// Checks a receipt whose files are looked for where it says; a model's at `model` if that is not
// empty.
ReceiptCheck check_receipt(const nlohmann::json& receipt, const std::string& model);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_RECEIPT_H_
