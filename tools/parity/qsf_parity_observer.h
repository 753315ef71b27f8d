// SPDX-License-Identifier: MIT
//
// ParityObserver: what an engine really executed, and what came out of it.
//
// It counts the kernels that ran, which is what a receipt may claim; on demand it keeps a record of
// every kernel call, and the name, shape, RMS and checksum of every point of the graph.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_OBSERVER_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_OBSERVER_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/operator_observer.h"
#include "tools/parity/qsf_parity_trace.h"

namespace qsf_tools {

struct KernelCount {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;  // of the operators that it computed, alone or with others
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
  // docs/parity.md has the fields. JSON, one object a line.
  const std::string& records() const noexcept { return records_; }
  std::uint64_t n_records() const noexcept { return n_records_; }
  const std::vector<TracePoint>& points() const noexcept { return points_; }

 private:
  void follow(const qsf::OperatorEvent& event);
  void count(std::string_view kernel, std::uint64_t ns);
  void record(const qsf::OperatorEvent& event);
  void record_line(const qsf::OperatorEvent& event, std::string_view kernel, nlohmann::json fields);
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
  std::size_t first_point_ = 0;                // of the pass
  std::map<std::uint32_t, std::string> what_;  // that a buffer holds
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_OBSERVER_H_
