// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/bytes.h"
#include "base/crc32.h"
#include "io/atomic_file.h"
#include "tools/common/tool_support.h"
#include "tools/parity/json_schema.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxTraceBytes = std::size_t{1} << 31;
constexpr std::uint64_t kTraceVersion = 2;

// The signs of value number `i`, a bit for each direction: bits of a mixed counter, so that neither
// order nor period hides.
std::uint64_t signs_of(std::uint64_t i) {
  std::uint64_t x = i + 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

std::string place_of(const TracePoint& point) {
  const std::string layer =
      point.layer < 0 ? "before the layers" : "layer " + std::to_string(point.layer);
  return "pass " + std::to_string(point.pass) + ", " + layer + ", " + point.name;
}

std::string shape_of(const TracePoint& point) {
  return "[" + std::to_string(point.n_rows) + ", " + std::to_string(point.n_cols) + "]";
}

std::string differing(const char* what, const std::string& a, const std::string& b) {
  return std::string(": ") + what + " " + a + " and " + b;
}

std::string shown(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// Returns the RMS of the difference of two points over the larger RMS, as far as their projections
// tell it; NaN where a value is no number.
double relative_difference(const TracePoint& a, const TracePoint& b) {
  double squares = 0.0;
  for (std::size_t i = 0; i < kTraceProjections; ++i) {
    const double apart = a.projections[i] - b.projections[i];
    squares += apart * apart;
  }
  const double difference = std::sqrt(squares / static_cast<double>(kTraceProjections));
  const double rms = std::max(a.rms, b.rms);
  return rms == 0.0 ? 0.0 : difference / rms;
}

// Returns how two points differ, empty for not at all.
std::string difference_of(const TracePoint& a, const TracePoint& b, double tolerance) {
  if (a.n_rows != b.n_rows || a.n_cols != b.n_cols) {
    return differing("shape", shape_of(a), shape_of(b));
  }
  if (tolerance == 0.0) {
    if (a.checksum == b.checksum) return {};
    return differing("other bits, RMS", shown(a.rms), shown(b.rms));
  }
  // A value that is no number is within no bound.
  if (!(std::fabs(a.rms - b.rms) <= tolerance * std::max(a.rms, b.rms))) {
    return differing("RMS", shown(a.rms), shown(b.rms));
  }
  const double relative = relative_difference(a, b);
  if (relative <= tolerance) return {};
  return ": other values, " + shown(relative) + " of their RMS apart by the projections";
}

qsf::Result<TracePoint> read_point(const nlohmann::json& line, const char* path) {
  const auto bad = [&] {
    return qsf::corrupt("%s: no point of a trace: %s", path, line.dump().substr(0, 120).c_str());
  };
  if (!line.is_object()) return bad();
  const auto has = [&](const char* key, auto is) {
    const auto found = line.find(key);
    return found != line.end() && is(*found);
  };
  const auto integer = [](const nlohmann::json& v) { return v.is_number_integer(); };
  const auto number_or_null = [](const nlohmann::json& v) { return v.is_number() || v.is_null(); };
  const auto shape = [](const nlohmann::json& v) {
    return v.is_array() && v.size() == 2 && v[0].is_number_unsigned() && v[1].is_number_unsigned();
  };
  const auto projections = [&](const nlohmann::json& v) {
    return v.is_array() && v.size() == kTraceProjections &&
           std::all_of(v.begin(), v.end(), number_or_null);
  };
  const auto is_text = [](const nlohmann::json& v) { return v.is_string(); };
  const auto is_unsigned = [](const nlohmann::json& v) { return v.is_number_unsigned(); };
  if (!has("pass", integer) || !has("layer", integer) || !has("name", is_text) ||
      !has("shape", shape) || !has("rms", number_or_null) || !has("projections", projections) ||
      !has("checksum", is_unsigned)) {
    return bad();
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  TracePoint point;
  point.pass = line["pass"].get<std::int32_t>();
  point.layer = line["layer"].get<std::int32_t>();
  point.name = line["name"].get<std::string>();
  point.n_rows = line["shape"][0].get<std::uint32_t>();
  point.n_cols = line["shape"][1].get<std::uint32_t>();
  point.rms = line["rms"].is_null() ? nan : line["rms"].get<double>();
  for (std::size_t i = 0; i < kTraceProjections; ++i) {
    const nlohmann::json& projection = line["projections"][i];
    point.projections[i] = projection.is_null() ? nan : projection.get<double>();
  }
  point.checksum = line["checksum"].get<std::uint32_t>();
  return point;
}

}  // namespace

void TracePointSum::add(std::span<const float> row) {
  for (const float x : row) {
    const auto value = static_cast<double>(x);
    squares_ += value * value;
    const std::uint64_t signs = signs_of(n_values_++);
    for (std::size_t i = 0; i < kTraceProjections; ++i) {
      projected_[i] += ((signs >> i) & 1U) != 0 ? value : -value;
    }
  }
  checksum_ =
      qsf::crc32({reinterpret_cast<const std::byte*>(row.data()), row.size_bytes()}, checksum_);
}

void TracePointSum::finish(TracePoint& point) const {
  const double n = std::max(1.0, static_cast<double>(n_values_));
  point.rms = std::sqrt(squares_ / n);
  for (std::size_t i = 0; i < kTraceProjections; ++i) {
    point.projections[i] = projected_[i] / std::sqrt(n);
  }
  point.checksum = checksum_;
}

qsf::Status write_trace(const std::string& path, const Trace& trace) {
  const nlohmann::json head = {{"qsf_parity_trace", kTraceVersion},
                               {"engine", trace.engine},
                               {"model", trace.model},
                               {"tokens", trace.tokens},
                               {"points", trace.points.size()}};
  std::string text = head.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  for (const TracePoint& point : trace.points) {
    nlohmann::json projections = nlohmann::json::array();
    for (const double projection : point.projections) projections.push_back(number(projection));
    const nlohmann::json line = {
        {"pass", point.pass},        {"layer", point.layer},
        {"name", point.name},        {"shape", {point.n_rows, point.n_cols}},
        {"rms", number(point.rms)},  {"projections", projections},
        {"checksum", point.checksum}};
    text += line.dump() + "\n";
  }
  return qsf::write_file(path, {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

qsf::Result<Trace> read_trace(const std::string& path) {
  std::string problem;
  const std::optional<std::string> text = read_text(path, kMaxTraceBytes, problem);
  if (!text) return qsf::not_found("%s", problem.c_str());
  Trace trace;
  std::uint64_t n_points = 0;
  bool has_head = false;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    const nlohmann::json line = parse_json(std::string_view(*text).substr(begin, end - begin));
    begin = end + 1;
    if (has_head) {
      QSF_ASSIGN_OR_RETURN(TracePoint point, read_point(line, path.c_str()));
      trace.points.push_back(std::move(point));
      continue;
    }
    const bool good =
        line.is_object() && line.value("qsf_parity_trace", nlohmann::json()) == kTraceVersion &&
        line.contains("points") && line["points"].is_number_unsigned() && line.contains("tokens") &&
        line["tokens"].is_array() && line.contains("engine") && line["engine"].is_string();
    if (!good) return qsf::corrupt("%s: no trace of version 2", path.c_str());
    trace.engine = line["engine"].get<std::string>();
    for (const nlohmann::json& token : line["tokens"]) {
      if (token.is_number_unsigned()) trace.tokens.push_back(token.get<std::uint32_t>());
    }
    n_points = line["points"].get<std::uint64_t>();
    has_head = true;
  }
  if (!has_head || trace.points.size() != n_points) {
    return qsf::corrupt("%s: %zu points of a trace, expected %llu; the file is cut", path.c_str(),
                        trace.points.size(), static_cast<unsigned long long>(n_points));
  }
  return trace;
}

TraceComparison compare_traces(const Trace& a, const Trace& b, double tolerance) {
  TraceComparison result;
  if (a.tokens != b.tokens) {
    result.first = "the traces are of different tokens";
    return result;
  }
  const bool same_engine = a.engine == b.engine;
  const auto differs = [&](const std::string& what) {
    if (!result.first) result.first = what;
  };
  std::map<std::tuple<std::int32_t, std::int32_t, std::string>, const TracePoint*> others;
  for (const TracePoint& point : b.points) {
    others[{point.pass, point.layer, point.name}] = &point;
  }
  for (const TracePoint& point : a.points) {
    const auto found = others.find({point.pass, point.layer, point.name});
    if (found == others.end()) {
      ++result.n_alone;
      if (same_engine) differs(place_of(point) + ": a point of the first trace alone");
      continue;
    }
    result.compared.push_back({place_of(point), relative_difference(point, *found->second)});
    const std::string difference = difference_of(point, *found->second, tolerance);
    if (!difference.empty()) differs(place_of(point) + difference);
  }
  const std::size_t n_lacking = b.points.size() - std::min(b.points.size(), result.compared.size());
  result.n_alone += n_lacking;
  if (same_engine && n_lacking > 0) {
    differs("the second trace has " + std::to_string(n_lacking) +
            " points that the first one lacks");
  }
  return result;
}

}  // namespace qsf_tools
