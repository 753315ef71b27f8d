// SPDX-License-Identifier: MIT

#include "tools/convert/convert_report.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
void ConvertProgress::show(std::string_view stage, std::string_view item, std::uint64_t done,
                           std::uint64_t total) {
  if (stage_ != stage || done < stage_begin_) {
    stage_start_ = Clock::now();
    stage_begin_ = done;
  }
  stage_ = stage;
  if (!line_.due()) return;
  const double elapsed = std::chrono::duration<double>(Clock::now() - stage_start_).count();
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  constexpr int kBar = 24;
  const int filled = static_cast<int>(share * kBar);
  char text[160];
  std::snprintf(text, sizeof text, "%s [%.*s%.*s] %3.0f %%, %.*s", stage_.c_str(), filled,
                "########################", kBar - filled, "........................",
                100.0 * share, static_cast<int>(item.size()), item.data());
  std::string shown = text;
  // The work of an earlier start took no time here.
  if (done > stage_begin_) {
    const double rate = static_cast<double>(done - stage_begin_) / elapsed;
    std::snprintf(text, sizeof text, ", %.0f s left", static_cast<double>(total - done) / rate);
    shown += text;
  }
  line_.show(shown);
}

namespace {

// How close the rounded tensors are to the original.
struct Closeness {
  std::size_t n_rounded = 0;
  std::size_t n_below = 0;                      // a cosine of kLowCosine
  const qsf::TensorReport* lowest = nullptr;    // cosine; null: none was rounded
  const qsf::TensorReport* farthest = nullptr;  // relative error; null: none was rounded
};

Closeness closeness_of(const qsf::TranscodeReport& report) {
  Closeness found;
  for (const qsf::TensorReport& tensor : report.tensors) {
    if (tensor.relative_error == 0.0) continue;
    ++found.n_rounded;
    if (tensor.cosine < qsf::kLowCosine) ++found.n_below;
    if (found.lowest == nullptr || tensor.cosine < found.lowest->cosine) found.lowest = &tensor;
    if (found.farthest == nullptr || tensor.relative_error > found.farthest->relative_error) {
      found.farthest = &tensor;
    }
  }
  return found;
}

std::string place_of(const qsf::TensorReport& tensor) {
  return tensor.section + ", " + std::string(qsf::tensor_kind_name(tensor.kind));
}

double bits_each(std::uint64_t bytes, std::uint64_t n_weights) {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(n_weights);
}

nlohmann::ordered_json tensor_json(const qsf::TensorReport& t) {
  return {{"section", t.section},
          {"tensor", qsf::tensor_kind_name(t.kind)},
          {"source", t.source_name},
          {"source_type", t.source_type},
          {"rows", t.rows},
          {"cols", t.cols},
          {"type", qsf::quant_type_name(t.format.type)},
          {"block", t.format.block},
          {"kept", t.kept},
          {"bits_per_weight", t.bits_per_weight},
          {"relative_error", t.relative_error},
          {"cosine", t.cosine}};
}

}  // namespace

void print_convert_warnings(const qsf::TranscodeReport& report) {
  for (const std::string& warning : report.warnings) {
    print_error(program_name(), "warning: " + warning);
  }
  if (!report.widened.empty()) {
    print_error(program_name(),
                "warning: " + std::to_string(report.widened.size()) +
                    " matrices fell below a cosine of 0.99 and were given more bits "
                    "(--verbose lists them)");
  }
  const Closeness closeness = closeness_of(report);
  const qsf::TensorReport* const worst = closeness.lowest;
  if (closeness.n_below == 0) return;
  char cosine[32];
  std::snprintf(cosine, sizeof cosine, "%.4f", worst->cosine);
  print_error(program_name(),
              "warning: " + std::to_string(closeness.n_below) + " of " +
                  std::to_string(report.tensors.size()) +
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

void print_verification(const qsf::TranscodeReport& report) {
  const Closeness closeness = closeness_of(report);
  if (closeness.n_rounded == 0) return;
  std::printf(
      "verified: %zu tensors rounded, lowest cosine %.6f (%s), largest relative error %.2e (%s), "
      "%zu below a cosine of 0.99, %zu given more bits\n",
      closeness.n_rounded, closeness.lowest->cosine, place_of(*closeness.lowest).c_str(),
      closeness.farthest->relative_error, place_of(*closeness.farthest).c_str(), closeness.n_below,
      report.widened.size());
}

void print_convert_summary(const qsf::TranscodeReport& report, const ConvertedFile& file) {
  std::printf("%s: %s, %llu weights at %.3f bits (%.3f as stored), %.1f s\n", file.path.c_str(),
              megabytes(file.bytes).c_str(), static_cast<unsigned long long>(report.n_weights),
              bits_each(report.raw_bytes, report.n_weights),
              bits_each(report.stored_bytes, report.n_weights), file.elapsed_seconds);
}

std::string report_json(const qsf::TranscodeReport& report, const ConvertedFile& file) {
  const Closeness closeness = closeness_of(report);
  nlohmann::ordered_json json;
  json["tool"] = "qsf-convert";
  json["version"] = QSF_VERSION;
  json["file"] = file.path;
  json["file_bytes"] = file.bytes;
  json["weights"] = report.n_weights;
  json["bits_per_weight"] = bits_each(report.raw_bytes, report.n_weights);
  json["bits_per_weight_stored"] = bits_each(report.stored_bytes, report.n_weights);
  json["seconds"] = file.elapsed_seconds;
  json["rounded"] = closeness.n_rounded;
  json["lowest_cosine"] = closeness.lowest == nullptr ? 1.0 : closeness.lowest->cosine;
  json["low_cosine"] = qsf::kLowCosine;
  json["below_low_cosine"] = closeness.n_below;
  json["widened"] = report.widened;
  json["warnings"] = report.warnings;
  json["tensors"] = nlohmann::ordered_json::array();
  for (const qsf::TensorReport& tensor : report.tensors) {
    json["tensors"].push_back(tensor_json(tensor));
  }
  // Names may hold bytes that are not UTF-8; JSON must be UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

namespace {

std::string format_name(qsf::BlockFormat format) {
  const std::string name(qsf::quant_type_name(format.type));
  return qsf::fixed_block(format.type) != 0 ? name : name + "/" + std::to_string(format.block);
}

double bits_of(const qsf::TargetTensor& t) {
  const qsf::SourceTensor& source = *t.place.source;
  return 8.0 * static_cast<double>(qsf::row_major_bytes(t.format, source.cols)) /
         static_cast<double>(source.cols);
}

// Where a kind of matrix has its types: "0-2 q2_k, 3 4bit-super/64".
struct KindRow {
  double weights = 0.0;
  double bits = 0.0;  // of all weights
  double divergence = 0.0;
  std::string types;
  qsf::BlockFormat last{qsf::QuantType::kF32, 4};
  std::uint32_t first_layer = 0;
  std::uint32_t last_layer = 0;
};

void add_type(KindRow& row) {
  std::string layers = std::to_string(row.first_layer);
  if (row.last_layer != row.first_layer) layers += "-" + std::to_string(row.last_layer);
  row.types += (row.types.empty() ? "" : ", ") + layers + " " + format_name(row.last);
}

}  // namespace

void print_target_table(const qsf::TargetPlan& plan, std::uint64_t max_bytes, bool each,
                        bool calibrated) {
  std::printf("%-16s %6s %7s  %s\n", "matrix", "bits", "loss", each ? "type" : "types by layer");
  const double whole = plan.divergence > 0.0 ? plan.divergence : 1.0;
  const auto print = [&](const std::string& name, double bits, double share,
                         const std::string& types) {
    std::printf("%-16s %6.3f %6.1f%%  %s\n", name.c_str(), bits, 100.0 * share, types.c_str());
  };
  std::map<qsf::TensorKind, KindRow> rows;
  std::vector<qsf::TensorKind> order;
  for (const qsf::TargetTensor& t : plan.tensors) {
    const qsf::TensorKind kind = t.place.source->kind;
    const std::uint32_t layer = t.place.section.layer;
    const bool in_layer = t.place.section.kind == qsf::SectionKind::kLayer;
    const std::string name(qsf::tensor_kind_name(kind));
    if (each || !in_layer) {
      print(in_layer ? std::to_string(layer) + " " + name : name, bits_of(t), t.divergence / whole,
            format_name(t.format));
      continue;
    }
    const auto [at, is_new] = rows.try_emplace(kind);
    KindRow& row = at->second;
    if (is_new) {
      order.push_back(kind);
      row.first_layer = layer;
      row.last = t.format;
    } else if (row.last != t.format || layer != row.last_layer + 1) {
      add_type(row);
      row.first_layer = layer;
      row.last = t.format;
    }
    row.last_layer = layer;
    const auto n_weights = static_cast<double>(t.n_weights());
    row.weights += n_weights;
    row.bits += n_weights * bits_of(t);
    row.divergence += t.divergence;
  }
  for (const qsf::TensorKind kind : order) {
    KindRow& row = rows[kind];
    add_type(row);
    print(std::string(qsf::tensor_kind_name(kind)), row.bits / row.weights, row.divergence / whole,
          row.types);
  }
  std::printf(calibrated ? "%llu bytes of %llu; expected divergence %.3g nats a token\n"
                         : "%llu bytes of %llu; relative squared error of the weights %.3g\n",
              static_cast<unsigned long long>(plan.file_bytes),
              static_cast<unsigned long long>(max_bytes), plan.divergence);
}

}  // namespace qsf_tools
