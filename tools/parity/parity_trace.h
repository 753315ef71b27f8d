// SPDX-License-Identifier: MIT
//
// Traces of the graph: a point for the output of each operator, files of points, and the first
// point where two traces differ; and ParityObserver, which collects them while the engine runs.
//
// A point keeps shape, RMS, projections on fixed directions of random signs, and the CRC-32 of the
// bits: enough to tell two runs apart without the values. The RMS alone would miss a changed sign
// or order. Two points whose values differ by a vector of RMS d have projections that differ by d
// in the mean square, so d is known to about a third without the values.
//
// The observer counts the kernels that ran, which is the evidence of a receipt. On request it keeps
// a record of every kernel call.

#ifndef QSF_TOOLS_PARITY_PARITY_TRACE_H_
#define QSF_TOOLS_PARITY_PARITY_TRACE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "ops/operator_observer.h"

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

struct KernelCount {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;  // of the operators that it computed, alone or with others
};

// The weights of a product, for the record of a kernel call.
struct KernelWeights {
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::uint32_t block_columns = 0;
  std::uint64_t blocks_per_row = 0;
  std::uint64_t bytes_per_block = 0;
  std::uint64_t bytes = 0;
  std::string type;
};

struct KernelCall {
  std::string kernel;
  std::string layer;
  std::string operation;
  std::uint64_t call = 0;
  std::int32_t pass = 0;
  std::uint32_t input_rows = 0;
  double timestamp_us = 0.0;  // since the first call
  double duration_us = 0.0;
  std::optional<KernelWeights> weights;
};

class ParityObserver final : public qsf::OperatorObserver {
 public:
  struct Options {
    bool keep_records = false;
    bool trace = false;
  };
  explicit ParityObserver(Options options) : options_(options) {}

  void pass_began(std::span<const qsf::Row> rows) override;
  void operator_ended(qsf::Backend& backend, const qsf::OperatorEvent& event) override;

  const std::map<std::string, KernelCount>& kernels() const noexcept { return kernels_; }
  // A record for each kernel and matrix of each product, and for each other operator;
  // docs/parity-protocol.md has the fields. JSON, one object a line.
  const std::string& records() const noexcept { return records_; }
  std::uint64_t n_records() const noexcept { return n_records_; }
  const std::vector<TracePoint>& points() const noexcept { return points_; }

 private:
  void follow(const qsf::OperatorEvent& event);
  void count(std::string_view kernel, std::uint64_t ns);
  void record(const qsf::OperatorEvent& event);
  void add_record(const qsf::OperatorEvent& event, std::string_view kernel, const std::string& name,
                  std::optional<KernelWeights> weights);
  void trace(qsf::Backend& backend, const qsf::OperatorEvent& event);
  void add_point(qsf::Backend& backend, const qsf::OperatorEvent& event, const std::string& name,
                 std::int32_t layer, qsf::Buffer buffer);
  std::string layer_name(const std::string& name) const;

  Options options_;
  std::map<std::string, KernelCount> kernels_;
  std::string records_;
  std::uint64_t n_records_ = 0;
  std::uint64_t n_calls_ = 0;
  std::uint64_t first_ns_ = 0;

  // Where in the graph the pass is.
  std::int32_t pass_ = -1;
  std::int32_t layer_ = -1;  // -1: in front of the first
  bool in_head_ = false;
  bool in_qkv_ = false;
  std::uint32_t n_uploaded_ = 0;  // rows of the embedding

  std::vector<TracePoint> points_;
  std::size_t first_point_ = 0;                   // of the pass
  std::map<std::uint32_t, std::string> content_;  // the name of the point in a buffer
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_TRACE_H_
