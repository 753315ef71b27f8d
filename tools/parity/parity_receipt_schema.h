// SPDX-License-Identifier: MIT
//
// docs/parity-receipt.schema.json, which the build puts into the program.

#ifndef QSF_TOOLS_PARITY_PARITY_RECEIPT_SCHEMA_H_
#define QSF_TOOLS_PARITY_PARITY_RECEIPT_SCHEMA_H_

namespace qsf_tools {

extern const char* const kParityReceiptSchema;

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_RECEIPT_SCHEMA_H_
