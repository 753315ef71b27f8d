// SPDX-License-Identifier: MIT
//
// The output of qsf convert: the progress of a conversion, its result as text and as JSON.

#ifndef QSF_TOOLS_CONVERT_CONVERT_REPORT_H_
#define QSF_TOOLS_CONVERT_CONVERT_REPORT_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "convert/choose/target_size.h"
#include "convert/encode/transcode.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {

class ConvertProgress {
 public:
  ConvertProgress(std::string_view tool, bool enabled) : line_(tool, enabled) {}

  // Shows, at most a few times a second, that `done` of `total` of a stage are complete, and the
  // item in work. A stage begins when it is first shown.
  void show(std::string_view stage, std::string_view item, std::uint64_t done, std::uint64_t total);
  void clear() { line_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;

  ProgressLine line_;
  std::string stage_;
  Clock::time_point stage_start_ = Clock::now();
  std::uint64_t stage_begin_ = 0;  // `done` when the stage was first shown
};

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
// `calibrated`: the costs of the plan are divergences, otherwise errors of the weights.
void print_target_table(const qsf::TargetPlan& plan, std::uint64_t max_bytes, bool each,
                        bool calibrated);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_REPORT_H_
