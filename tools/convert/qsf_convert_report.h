// SPDX-License-Identifier: MIT
//
// What qsf-convert prints about a finished conversion.

#ifndef QSF_TOOLS_CONVERT_QSF_CONVERT_REPORT_H_
#define QSF_TOOLS_CONVERT_QSF_CONVERT_REPORT_H_

#include <cstdint>
#include <string>

#include "convert/choose/target_size.h"
#include "convert/encode/transcode.h"

namespace qsf_tools {

// Prints warnings to stderr: those of the report, and one line about tensors whose cosine with the
// original is low.
void print_convert_warnings(const qsf::TranscodeReport& report);

// Prints the table of tensors to stdout.
void print_tensor_table(const qsf::TranscodeReport& report);

// Prints to stdout how many matrices of which types were kept as they are, in one line; nothing
// when none was.
void print_kept_summary(const qsf::TranscodeReport& report);

// Prints to stdout how far the rounded matrices lie from the original, in one line; nothing when
// none was rounded.
void print_verification(const qsf::TranscodeReport& report);

struct ConvertedFile {
  std::string path;
  std::uint64_t bytes = 0;
  double elapsed_seconds = 0.0;  // of the whole conversion
};

// Prints sizes and bits per weight to stdout, in one line.
void print_convert_summary(const qsf::TranscodeReport& report, const ConvertedFile& file);

// Returns all of it as JSON (docs/quality.md names the fields).
std::string report_json(const qsf::TranscodeReport& report, const ConvertedFile& file);

// Prints the types of --target-size: a row for each kind of matrix, with `each` for each matrix.
void print_target_table(const qsf::TargetPlan& plan, std::uint64_t max_bytes, bool each);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_QSF_CONVERT_REPORT_H_
