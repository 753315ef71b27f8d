// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_observer.h"

#include <algorithm>

namespace qsf_tools {
namespace {

using qsf::OperatorKind;

// Returns the matrix that a product's target comes from, as GGUF calls it.
const char* matrix_name(OperatorKind kind, std::size_t target, std::size_t n_targets) {
  static constexpr const char* kQkv[] = {"attn_q", "attn_k", "attn_v"};
  switch (kind) {
    case OperatorKind::kQkv: return kQkv[std::min<std::size_t>(target, 2)];
    case OperatorKind::kAttentionOut: return "attn_output";
    case OperatorKind::kGateUp: return n_targets == 2 && target == 0 ? "ffn_gate" : "ffn_up";
    case OperatorKind::kDown: return "ffn_down";
    default: return "output";
  }
}

}  // namespace

void ParityObserver::pass_began(std::span<const qsf::Row>) {
  ++pass_;
  layer_ = -1;
  in_head_ = false;
  in_qkv_ = false;
  n_uploaded_ = 0;
  what_.clear();
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

void ParityObserver::record_line(const qsf::OperatorEvent& event, std::string_view kernel,
                                 nlohmann::json fields) {
  fields["kernel_id"] = std::string(kernel);
  fields["operation"] = std::string(qsf::operator_name(event.kind));
  fields["call"] = n_calls_ - 1;
  fields["pass"] = pass_;
  fields["input_rows"] = event.n_rows;
  fields["backend"] = "cpu";
  fields["device"] = "cpu";
  fields["timestamp_us"] = static_cast<double>(event.start_ns - first_ns_) / 1000.0;
  fields["duration_us"] = static_cast<double>(event.ns) / 1000.0;
  records_ += fields.dump() + "\n";
  ++n_records_;
}

// Parts of one product are computed side by side: they share call, time and duration.
void ParityObserver::record(const qsf::OperatorEvent& event) {
  if (!event.kernel.empty()) {
    record_line(event, event.kernel,
                {{"layer", layer_name(std::string(qsf::operator_name(event.kind)))}});
  }
  for (const qsf::ProductPart& part : event.parts) {
    for (const std::string_view kernel : {part.prompt_kernel, part.other_kernel}) {
      if (kernel.empty()) continue;
      const char* const name = matrix_name(event.kind, part.target, event.product->targets.size());
      const std::uint64_t n_blocks = (part.n_cols + part.format.block - 1) / part.format.block;
      const std::uint64_t padded_rows = qsf::align_up(part.n_rows, qsf::kRowGroup);
      record_line(event, kernel,
                  {{"layer", layer_name(name)},
                   {"rows", part.n_rows},
                   {"cols", part.n_cols},
                   {"block_columns", part.format.block},
                   {"blocks_per_row", n_blocks},
                   {"bytes_per_block", part.bytes / (padded_rows * n_blocks)},
                   {"weight_bytes", part.bytes},
                   {"quantization_type", std::string(qsf::quant_type_name(part.format.type))}});
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
  what_[buffer.id] = name;
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
    const std::size_t n_targets = event.product->targets.size();
    if (event.product->epilogue.fused_gate_up) {
      add_point(backend, event, "ffn_act", layer_, event.out);
      return;
    }
    for (std::size_t i = 0; i < n_targets; ++i) {
      add_point(backend, event, matrix_name(event.kind, i, n_targets), layer_,
                event.product->targets[i].out);
    }
    return;
  }
  const std::string in = what_.contains(event.in.id) ? what_[event.in.id] : "unknown";
  switch (event.kind) {
    case OperatorKind::kUpload:
      // Row by row, so the last one completes it.
      if (++n_uploaded_ == event.n_rows) add_point(backend, event, "embedding", -1, event.out);
      return;
    case OperatorKind::kRope: add_point(backend, event, in + ".rope", layer_, event.out); return;
    case OperatorKind::kAttend: add_point(backend, event, "attention", layer_, event.out); return;
    case OperatorKind::kResidual:
      add_point(backend, event, in.starts_with("attn") ? "attn_out" : "ffn_out", layer_, event.out);
      return;
    case OperatorKind::kNorm: break;
    default: return;
  }
  const bool in_place = event.in.id == event.out.id;
  const bool begins_layer = in.starts_with("embedding") || in == "ffn_out";
  if (event.listed) {
    add_point(backend, event, "output_norm", layer_ + 1, event.out);
  } else if (begins_layer && !in_place) {
    add_point(backend, event, "attn_norm", layer_ + 1, event.out);
  } else if (in == "attn_out" && !in_place) {
    add_point(backend, event, "ffn_norm", layer_, event.out);
  } else {
    add_point(backend, event, in + ".norm", layer_, event.out);
  }
}

}  // namespace qsf_tools
