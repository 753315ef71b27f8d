// SPDX-License-Identifier: MIT

#include "tools/parity/parity_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "base/bytes.h"
#include "base/crc32.h"
#include "io/atomic_file.h"
#include "tools/common/tool_support.h"
#include "tools/parity/parity_json.h"

namespace qsf_tools {
namespace {

constexpr std::size_t kMaxTraceBytes = std::size_t{1} << 31;

// The signs of value number `i`, a bit for each direction: bits of a mixed counter, so that neither
// order nor period hides.
std::uint64_t signs_of(std::uint64_t i) {
  std::uint64_t x = i + 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
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
  return qsf::write_file(path, qsf::as_bytes(trace_text(trace)));
}

qsf::Result<Trace> read_trace(const std::string& path) {
  std::string problem;
  const std::optional<std::string> text = read_text(path, kMaxTraceBytes, problem);
  if (!text) return qsf::not_found("%s", problem.c_str());
  return parse_trace(*text, path);
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

namespace {

using qsf::OperatorKind;

// Appends the number of the expert that a product belongs to.
std::string of_expert(std::string name, const qsf::MatmulArgs& product) {
  if (product.expert == qsf::MatmulArgs::kNoExpert) return name;
  return std::move(name) + "." + std::to_string(product.expert);
}

// Returns the matrix that a product's target comes from, as GGUF calls it.
std::string matrix_name(OperatorKind kind, std::size_t target, const qsf::MatmulArgs& product) {
  static constexpr const char* kQkv[] = {"attn_q", "attn_k", "attn_v"};
  const bool gate = product.targets.size() == 2 && target == 0;
  switch (kind) {
    case OperatorKind::kQkv: return kQkv[std::min<std::size_t>(target, 2)];
    case OperatorKind::kAttentionOut: return "attn_output";
    case OperatorKind::kRouter: return "ffn_gate_inp";
    case OperatorKind::kGateUp: return of_expert(gate ? "ffn_gate" : "ffn_up", product);
    case OperatorKind::kDown: return of_expert("ffn_down", product);
    default: return "output";
  }
}

// The sum over a row's experts, while it grows.
constexpr std::string_view kExpertSum = "ffn_experts";

bool is_expert_part(std::string_view name) {
  constexpr std::string_view kDown = "ffn_down.";
  if (!name.starts_with(kDown)) return false;
  return name.substr(kDown.size()).find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void ParityObserver::pass_began(std::span<const qsf::Row>) {
  ++pass_;
  layer_ = -1;
  in_head_ = false;
  in_qkv_ = false;
  n_uploaded_ = 0;
  content_.clear();
  first_point_ = points_.size();
}

void ParityObserver::operator_ended(qsf::Backend& backend, const qsf::OperatorEvent& event) {
  if (first_ns_ == 0) first_ns_ = event.start_ns;
  ++n_calls_;
  follow(event);
  if (!event.kernel.empty()) count(event.kernel, event.ns);
  std::vector<std::string_view> counted;
  for (const qsf::ProductPart& part : event.parts) {
    for (const std::string_view kernel : {part.prompt_kernel, part.other_kernel}) {
      if (kernel.empty() || std::count(counted.begin(), counted.end(), kernel) > 0) continue;
      counted.push_back(kernel);
      count(kernel, event.ns);
    }
  }
  if (options_.keep_records) record(event);
  if (options_.trace) trace(backend, event);
}

// A layer begins with the products of queries, keys and values, which may come in several calls.
void ParityObserver::follow(const qsf::OperatorEvent& event) {
  const bool qkv = event.kind == OperatorKind::kQkv;
  if (qkv && !in_qkv_) ++layer_;
  if (qkv || event.product != nullptr) in_qkv_ = qkv;
  if (event.listed || event.kind == OperatorKind::kHead) in_head_ = true;
}

void ParityObserver::count(std::string_view kernel, std::uint64_t ns) {
  KernelCount& counted = kernels_[std::string(kernel)];
  ++counted.calls;
  counted.ns += ns;
}

std::string ParityObserver::layer_name(const std::string& name) const {
  return in_head_ || layer_ < 0 ? name : "blk." + std::to_string(layer_) + "." + name;
}

void ParityObserver::add_record(const qsf::OperatorEvent& event, std::string_view kernel,
                                const std::string& name, std::optional<KernelWeights> weights) {
  records_ +=
      kernel_call_line({.kernel = std::string(kernel),
                        .layer = layer_name(name),
                        .operation = std::string(qsf::operator_name(event.kind)),
                        .call = n_calls_ - 1,
                        .pass = pass_,
                        .input_rows = event.n_rows,
                        .timestamp_us = static_cast<double>(event.start_ns - first_ns_) / 1000.0,
                        .duration_us = static_cast<double>(event.ns) / 1000.0,
                        .weights = std::move(weights)});
  ++n_records_;
}

// Parts of one product are computed side by side: they share call, time and duration.
void ParityObserver::record(const qsf::OperatorEvent& event) {
  if (!event.kernel.empty()) {
    add_record(event, event.kernel, std::string(qsf::operator_name(event.kind)), std::nullopt);
  }
  for (const qsf::ProductPart& part : event.parts) {
    for (const std::string_view kernel : {part.prompt_kernel, part.other_kernel}) {
      if (kernel.empty()) continue;
      const std::string name = matrix_name(event.kind, part.target, *event.product);
      const std::uint64_t n_blocks = (part.n_cols + part.format.block - 1) / part.format.block;
      const std::uint64_t padded_rows = qsf::align_up(part.n_rows, qsf::kRowGroup);
      add_record(event, kernel, name,
                 KernelWeights{.rows = part.n_rows,
                               .cols = part.n_cols,
                               .block_columns = part.format.block,
                               .blocks_per_row = n_blocks,
                               .bytes_per_block = part.bytes / (padded_rows * n_blocks),
                               .bytes = part.bytes,
                               .type = std::string(qsf::quant_type_name(part.format.type))});
    }
  }
}

// A matrix may arrive in several products; the last of them leaves the whole result, which replaces
// what was taken before.
void ParityObserver::add_point(qsf::Backend& backend, const qsf::OperatorEvent& event,
                               const std::string& name, std::int32_t layer, qsf::Buffer buffer) {
  TracePoint point = {.pass = pass_, .layer = layer, .name = name, .n_rows = event.n_rows};
  TracePointSum sum;
  for (std::uint32_t row = 0; row < event.n_rows; ++row) {
    const std::span<const float> values = backend.read_row(buffer, row);
    point.n_cols = static_cast<std::uint32_t>(values.size());
    sum.add(values);
  }
  sum.finish(point);
  content_[buffer.id] = name;
  for (std::size_t i = first_point_; i < points_.size(); ++i) {
    if (points_[i].layer == layer && points_[i].name == name) {
      points_[i] = std::move(point);
      return;
    }
  }
  points_.push_back(std::move(point));
}

void ParityObserver::trace(qsf::Backend& backend, const qsf::OperatorEvent& event) {
  if (event.product != nullptr) {
    // Logits lie in blocks that later ones overwrite; the rows of the receipt have them.
    if (event.kind == OperatorKind::kHead) return;
    if (event.product->epilogue.add_to.id != qsf::Buffer::kNone) {
      const bool attention = event.kind == OperatorKind::kAttentionOut;
      add_point(backend, event, attention ? "attn_out" : "ffn_out", layer_,
                event.product->epilogue.add_to);
      return;
    }
    if (event.product->epilogue.fused_gate_up) {
      add_point(backend, event, of_expert("ffn_act", *event.product), layer_, event.out);
      return;
    }
    for (std::size_t i = 0; i < event.product->targets.size(); ++i) {
      add_point(backend, event, matrix_name(event.kind, i, *event.product), layer_,
                event.product->targets[i].out);
    }
    return;
  }
  const std::string in = content_.contains(event.in.id) ? content_[event.in.id] : "unknown";
  switch (event.kind) {
    case OperatorKind::kUpload:
      // Row by row, so the last one completes it.
      if (++n_uploaded_ == event.n_rows) add_point(backend, event, "embedding", -1, event.out);
      return;
    case OperatorKind::kRope: add_point(backend, event, in + ".rope", layer_, event.out); return;
    case OperatorKind::kClamp:
      add_point(backend, event, in + ".clamped", layer_, event.out);
      return;
    case OperatorKind::kScale: add_point(backend, event, in + ".scaled", layer_, event.out); return;
    case OperatorKind::kAttend: add_point(backend, event, "attention", layer_, event.out); return;
    case OperatorKind::kResidual:
      // An expert's part is of some rows alone; the sum of all is what a layer adds.
      if (is_expert_part(in)) {
        content_[event.out.id] = kExpertSum;
        return;
      }
      add_point(backend, event, in.starts_with("attn") ? "attn_out" : "ffn_out", layer_, event.out);
      return;
    case OperatorKind::kNorm: break;
    default: return;
  }
  const bool in_place = event.in.id == event.out.id;
  const bool begins_layer = in.starts_with("embedding") || in == "ffn_out";
  // A parallel block with a norm for each part computes both at its start.
  const bool second =
      !points_.empty() && points_.back().layer == layer_ + 1 && points_.back().name == "attn_norm";
  if (event.listed) {
    add_point(backend, event, "output_norm", layer_ + 1, event.out);
  } else if (begins_layer && !in_place) {
    add_point(backend, event, second ? "ffn_norm" : "attn_norm", layer_ + 1, event.out);
  } else if (in == "attn_out" && !in_place) {
    add_point(backend, event, "ffn_norm", layer_, event.out);
  } else {
    add_point(backend, event, in + ".norm", layer_, event.out);
  }
}

}  // namespace qsf_tools
