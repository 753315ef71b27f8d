// SPDX-License-Identifier: MIT
//
// What qsf-inspect says of a file: as text for people and as JSON for programs.

#ifndef QSF_TOOLS_INSPECT_QSF_INSPECT_REPORT_H_
#define QSF_TOOLS_INSPECT_QSF_INSPECT_REPORT_H_

#include <string>

#include "format/qsf_reader.h"

namespace qsf_tools {

// Appends a formatted line, at most 511 bytes long, and a newline.
[[gnu::format(printf, 2, 3)]] void add_line(std::string& text, const char* format, ...);

struct ReportOptions {
  bool tensors = false;  // list every tensor
};

// Return the report, ending in a newline. A tokenizer that cannot be read is said to be so in it.
std::string text_report(const qsf::QsfReader& reader, const ReportOptions& options);
std::string json_report(const qsf::QsfReader& reader, const ReportOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_INSPECT_QSF_INSPECT_REPORT_H_
