// SPDX-License-Identifier: MIT
//
// Traces: what every point of the graph held, as a file, and the first point where two differ.
//
// A point keeps what tells two runs apart without the values: shape, RMS, the projections on fixed
// directions of random signs, and the CRC-32 of the bits. The RMS alone would miss a changed sign
// or order. Two points whose values differ by a vector of RMS d have projections that differ by d
// in the mean square, so d is known to a third or so without either's values.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_TRACE_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_TRACE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace qsf_tools {

inline constexpr std::size_t kTraceProjections = 8;

struct TracePoint {
  std::int32_t pass = 0;
  std::int32_t layer = -1;  // -1: embedding; the number of layers: behind the last
  std::string name;         // "attn_q", "ffn_out", ...
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  double rms = 0.0;
  // Each the sum of +-value / sqrt(values), signs by place; NaN where not finite.
  std::array<double, kTraceProjections> projections = {};
  std::uint32_t checksum = 0;
};

// Adds up a point row by row.
class TracePointSum {
 public:
  void add(std::span<const float> row);
  // Fills in rms, projections and checksum.
  void finish(TracePoint& point) const;

 private:
  std::uint64_t n_values_ = 0;
  double squares_ = 0.0;
  std::array<double, kTraceProjections> projected_ = {};
  std::uint32_t checksum_ = 0;
};

struct Trace {
  std::string engine;  // that computed: this one, or what a child calls itself
  std::string model;
  std::vector<std::uint32_t> tokens;
  std::vector<TracePoint> points;
};

// Fails  kIo
qsf::Status write_trace(const std::string& path, const Trace& trace);
// Fails  kNotFound; kCorrupt for a file that is no trace
qsf::Result<Trace> read_trace(const std::string& path);

struct TraceComparison {
  struct Point {
    std::string place;  // pass, layer and name
    double difference;  // RMS of the difference over the larger RMS, from the projections
  };
  std::vector<Point> compared;       // in the order of the first trace
  std::size_t n_alone = 0;           // points that one trace has and the other lacks
  std::optional<std::string> first;  // what differs and where; nothing: no difference
};

// Compares two traces point by point, in the order of the first. With a tolerance of 0 the bits
// have to be the same; otherwise RMS, and the RMS of the difference, within `tolerance` of the RMS.
// A point that one trace lacks is a difference where one engine made both; two engines do not keep
// the same points, and what they share is compared.
TraceComparison compare_traces(const Trace& a, const Trace& b, double tolerance);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_TRACE_H_
