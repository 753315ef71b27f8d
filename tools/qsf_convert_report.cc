// SPDX-License-Identifier: MIT

#include "qsf_convert_report.h"

#include <cstdio>
#include <map>
#include <string>

#include "tool_support.h"

namespace qsf_tools {

void print_convert_warnings(const qsf::TranscodeReport& report) {
  for (const std::string& warning : report.warnings) {
    print_error("qsf-convert", "warning: " + warning);
  }
  if (!report.widened.empty()) {
    print_error("qsf-convert", "warning: " + std::to_string(report.widened.size()) +
                                   " matrices fell below a cosine of 0.99 and were given more bits "
                                   "(--verbose lists them)");
  }
  const qsf::TensorReport* worst = nullptr;
  std::size_t n_low = 0;
  for (const qsf::TensorReport& tensor : report.tensors) {
    if (tensor.cosine >= qsf::kLowCosine) continue;
    ++n_low;
    if (worst == nullptr || tensor.cosine < worst->cosine) worst = &tensor;
  }
  if (worst == nullptr) return;
  char cosine[32];
  std::snprintf(cosine, sizeof cosine, "%.4f", worst->cosine);
  print_error("qsf-convert",
              "warning: " + std::to_string(n_low) + " of " + std::to_string(report.tensors.size()) +
                  " tensors have a cosine with the original below 0.99, the lowest " + cosine +
                  " (" + worst->section + ", " + worst->source_name +
                  "); more bits would be closer");
}

void print_tensor_table(const qsf::TranscodeReport& report) {
  std::printf("%-10s %-20s %-8s %9s %9s %7s %12s %9s\n", "section", "tensor", "type", "rows",
              "cols", "bits", "rel. error", "cosine");
  for (const qsf::TensorReport& t : report.tensors) {
    std::printf("%-10s %-20s %-8s %9u %9u %7.3f %12.3e %9.6f\n", t.section.c_str(),
                std::string(qsf::tensor_kind_name(t.kind)).c_str(),
                std::string(qsf::quant_type_name(t.format.type)).c_str(), t.rows, t.cols,
                t.bits_per_weight, t.relative_error, t.cosine);
  }
  for (const std::string& line : report.widened) std::printf("%s\n", line.c_str());
}

void print_kept_summary(const qsf::TranscodeReport& report) {
  std::map<std::string, std::size_t> counts;
  for (const qsf::TensorReport& t : report.tensors) {
    // Ternary weights that came as floats are not the input's blocks, but the same numbers.
    const bool exact = t.kept || (t.rows > 1 && t.relative_error == 0.0);
    if (!exact) continue;
    const std::string format(qsf::quant_type_name(t.format.type));
    ++counts[qsf::is_float_type(t.format.type) ? format : t.source_type + " (as " + format + ")"];
  }
  std::string line;
  for (const auto& [types, count] : counts) {
    line += (line.empty() ? "" : ", ") + std::to_string(count) + " of " + types;
  }
  if (!line.empty()) std::printf("kept bit for bit: matrices, %s\n", line.c_str());
}

void print_convert_summary(const qsf::TranscodeReport& report, const char* path,
                           std::uint64_t file_bytes, double elapsed_seconds) {
  const double n_weights = static_cast<double>(report.n_weights);
  std::printf("%s: %s, %llu weights at %.3f bits (%.3f as stored), %.1f s\n", path,
              megabytes(file_bytes).c_str(), static_cast<unsigned long long>(report.n_weights),
              8.0 * static_cast<double>(report.raw_bytes) / n_weights,
              8.0 * static_cast<double>(report.stored_bytes) / n_weights, elapsed_seconds);
}

}  // namespace qsf_tools
