// SPDX-License-Identifier: MIT

#include "tools/inspect/qsf_inspect_adapter.h"

#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "format/adapter_layout.h"
#include "format/adapter_spec.h"
#include "tools/common/tool_support.h"
#include "tools/inspect/qsf_inspect_report.h"

namespace qsf_tools {
namespace {

using AdapterJson = nlohmann::ordered_json;

std::string kind_of(const qsf::AdapterPair& pair) {
  return std::string(qsf::tensor_kind_name(pair.kind));
}

// Sixteen hexadecimal digits; nothing for an adapter of any base.
std::string fingerprint_text(const qsf::AdapterSpec& spec) {
  if (spec.base_fingerprint == 0) return {};
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, spec.base_fingerprint);
  return digits;
}

// The pairs of one kind of matrix.
struct KindSums {
  std::size_t n_pairs = 0;
  std::uint32_t least_rank = UINT32_MAX;
  std::uint32_t most_rank = 0;
  std::uint64_t bytes = 0;
};

std::map<std::string, KindSums> sums_by_kind(const qsf::AdapterSpec& spec) {
  std::map<std::string, KindSums> all;
  for (const qsf::AdapterPair& pair : spec.pairs) {
    KindSums& sums = all[kind_of(pair)];
    ++sums.n_pairs;
    sums.least_rank = std::min(sums.least_rank, pair.rank);
    sums.most_rank = std::max(sums.most_rank, pair.rank);
    sums.bytes += qsf::adapter_pair_bytes(pair);
  }
  return all;
}

}  // namespace

std::string adapter_text_report(const qsf::AdapterReader& reader, bool pairs) {
  const qsf::AdapterSpec& spec = reader.spec();
  const std::string fingerprint = fingerprint_text(spec);
  std::string text;
  add_line(text, "file              %s", valid_utf8(reader.file().path()).c_str());
  add_line(text, "size              %s, %llu bytes, adapter format version %u",
           megabytes(reader.file().size_bytes()).c_str(),
           static_cast<unsigned long long>(reader.file().size_bytes()), qsf::kAdapterVersion);
  add_line(text, "adapter           %s", spec.name.c_str());
  add_line(text, "architecture      %s", spec.architecture.c_str());
  add_line(text, "base              %s",
           fingerprint.empty() ? "every model with these matrices"
                               : ("the model with fingerprint " + fingerprint).c_str());
  add_line(text, "values            %llu bytes in memory",
           static_cast<unsigned long long>(reader.values_bytes()));
  add_line(text, "\n%-20s %8s %12s %14s", "matrices", "pairs", "rank", "bytes");
  for (const auto& [kind, sums] : sums_by_kind(spec)) {
    std::string rank = std::to_string(sums.least_rank);
    if (sums.most_rank != sums.least_rank) rank += " to " + std::to_string(sums.most_rank);
    add_line(text, "%-20s %8zu %12s %14llu", kind.c_str(), sums.n_pairs, rank.c_str(),
             static_cast<unsigned long long>(sums.bytes));
  }
  if (!pairs) return text;
  add_line(text, "%s", "");
  for (const qsf::AdapterPair& pair : spec.pairs) {
    add_line(text, "%s: [%u, %u], rank %u, scale %g, %s", qsf::adapter_pair_label(pair).c_str(),
             pair.out, pair.in, pair.rank, static_cast<double>(pair.scale),
             std::string(qsf::adapter_type_name(pair.type)).c_str());
  }
  return text;
}

std::string adapter_json_report(const qsf::AdapterReader& reader, bool pairs) {
  const qsf::AdapterSpec& spec = reader.spec();
  const std::string fingerprint = fingerprint_text(spec);
  AdapterJson adapter = {{"name", spec.name},
                         {"architecture", spec.architecture},
                         {"base_fingerprint", nullptr},
                         {"pairs", spec.pairs.size()},
                         {"values_bytes", reader.values_bytes()}};
  if (!fingerprint.empty()) adapter["base_fingerprint"] = fingerprint;
  for (const auto& [kind, sums] : sums_by_kind(spec)) {
    adapter["matrices"].push_back({{"kind", kind},
                                   {"pairs", sums.n_pairs},
                                   {"least_rank", sums.least_rank},
                                   {"most_rank", sums.most_rank},
                                   {"bytes", sums.bytes}});
  }
  AdapterJson report = {{"file", valid_utf8(reader.file().path())},
                        {"bytes", reader.file().size_bytes()},
                        {"version", qsf::kAdapterVersion},
                        {"adapter", std::move(adapter)}};
  if (!pairs) return report.dump(2) + "\n";
  for (const qsf::AdapterPair& pair : spec.pairs) {
    report["pairs"].push_back({{"kind", kind_of(pair)},
                               {"layer", pair.layer},
                               {"expert", pair.expert},
                               {"rank", pair.rank},
                               {"in", pair.in},
                               {"out", pair.out},
                               {"scale", pair.scale},
                               {"type", qsf::adapter_type_name(pair.type)}});
  }
  return report.dump(2) + "\n";
}

qsf::Status verify_adapter(const qsf::AdapterReader& reader) {
  std::vector<std::byte> stored;
  for (std::size_t i = 0; i < reader.spec().pairs.size(); ++i) {
    stored.resize(qsf::adapter_pair_bytes(reader.spec().pairs[i]));
    QSF_RETURN_IF_ERROR(reader.read_pair(i, stored));
  }
  return qsf::ok_status();
}

}  // namespace qsf_tools
