// SPDX-License-Identifier: MIT
//
// Traces: what every point of the graph held, as a file, and the first point where two differ.
//
// A point keeps what tells two runs apart without the values: shape, RMS, the projection on a fixed
// direction, and the CRC-32 of the bits. The RMS alone would miss a changed sign or order.

#ifndef QSF_TOOLS_QSF_PARITY_TRACE_H_
#define QSF_TOOLS_QSF_PARITY_TRACE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace qsf_tools {

struct TracePoint {
  std::int32_t pass = 0;
  std::int32_t layer = -1;  // -1: embedding; the number of layers: behind the last
  std::string name;         // "attn_q", "ffn_out", ...
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  double rms = 0.0;
  double projection = 0.0;  // sum of +-value / sqrt(values), signs by place; NaN where not finite
  std::uint32_t checksum = 0;
};

// Adds up a point row by row.
class TracePointSum {
 public:
  void add(std::span<const float> row);
  // Fills in rms, projection and checksum.
  void finish(TracePoint& point) const;

 private:
  std::uint64_t n_values_ = 0;
  double squares_ = 0.0;
  double projected_ = 0.0;
  std::uint32_t checksum_ = 0;
};

struct Trace {
  std::string model;
  std::vector<std::uint32_t> tokens;
  std::vector<TracePoint> points;
};

// Fails  kIo
qsf::Status write_trace(const std::string& path, const Trace& trace);
// Fails  kNotFound; kCorrupt for a file that is no trace
qsf::Result<Trace> read_trace(const std::string& path);

struct TraceDifference {
  std::size_t n_compared = 0;
  std::optional<std::string> first;  // what and where; nothing: no difference
};

// Compares two traces point by point, in the order of the first. With a tolerance of 0 the bits
// have to be the same; otherwise RMS and projection within `tolerance` of the RMS.
TraceDifference compare_traces(const Trace& a, const Trace& b, double tolerance);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_QSF_PARITY_TRACE_H_
