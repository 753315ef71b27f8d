// SPDX-License-Identifier: MIT
//
// Memory and row-wise operators of the CPU backend. Products are in cpu_matmul.cc, attention in
// cpu_attention.cc.

#include "ops/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace qsf {
namespace {

// Floats from one row to the next: whole blocks of columns, and no multiple of 4 KiB, because rows
// that far apart fall into the same cache sets and cost the products half their speed.
std::size_t row_stride(std::uint32_t n_cols) {
  constexpr std::size_t kSetStride = 1024;
  const std::size_t padded = align_up(n_cols, kColumnAlign);
  return padded % kSetStride == 0 ? padded + kLineBytes / sizeof(float) : padded;
}

constexpr std::uint32_t kMaxBuffers = 32;  // reserved, so that handles stay cheap and nothing moves

}  // namespace

CpuBackend::CpuBackend(ThreadPool& pool, const kernels::KernelSet& kernel_set)
    : pool_(pool), kernels_(kernel_set) {
  matrices_.reserve(kMaxBuffers);
}

std::string_view CpuBackend::instruction_set() const noexcept {
  // Of the kernels that run, not of the CPU: a tier may have no kernel of its own yet.
  return kernels::isa_name(kernels_.matmul({QuantType::kQ4, 64}, kernels::Input::kInt8).isa);
}

std::uint64_t CpuBackend::buffer_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept {
  return row_stride(n_cols) * n_rows * sizeof(float);
}

Buffer CpuBackend::create_buffer(std::uint32_t n_rows, std::uint32_t n_cols,
                                 MutableByteSpan memory) {
  QSF_CHECK(matrices_.size() < kMaxBuffers);
  QSF_CHECK(memory.size() >= buffer_bytes(n_rows, n_cols));
  matrices_.push_back(
      {reinterpret_cast<float*>(memory.data()), row_stride(n_cols), n_rows, n_cols});
  return {static_cast<std::uint32_t>(matrices_.size() - 1)};
}

CpuBackend::Matrix& CpuBackend::matrix(Buffer buffer) noexcept {
  QSF_CHECK(buffer.id < matrices_.size());
  return matrices_[buffer.id];
}

void CpuBackend::begin_pass(std::span<const Row> rows, const KvCache& kv, const Rotation& rotation,
                            const std::atomic<bool>* cancel) {
  QSF_CHECK(rows.size() <= limits_.max_rows);
  QSF_CHECK(rotation.inverse_frequencies.size() == limits_.rope_dims / 2);
  for (const Row& row : rows)
    QSF_CHECK(row.visible.ancestors == 0);  // draft trees are not built yet
  rows_ = rows;
  kv_ = &kv;
  cancel_ = cancel;
  const auto first_other = std::find_if(
      rows.begin(), rows.end(), [](const Row& row) { return row.role != RowRole::kPrompt; });
  n_prompt_ = static_cast<std::uint32_t>(first_other - rows.begin());
  QSF_CHECK(std::none_of(first_other, rows.end(),
                         [](const Row& row) { return row.role == RowRole::kPrompt; }));
  QSF_CHECK(rows.size() - n_prompt_ <= limits_.max_decode_rows);
  if (rotation.inverse_frequencies.empty()) return;
  const auto n_pairs = static_cast<std::uint32_t>(rotation.inverse_frequencies.size());
  for_rows(static_cast<std::uint32_t>(rows.size()), [&](std::uint32_t row) {
    float* cos = cos_ + std::size_t{row} * n_pairs;
    float* sin = sin_ + std::size_t{row} * n_pairs;
    kernels::rope_angles(static_cast<std::uint32_t>(rows_[row].position),
                         rotation.inverse_frequencies.data(), n_pairs, cos, sin);
    if (rotation.factor == 1.0F) return;
    kernels_.elementwise.scale(cos, rotation.factor, n_pairs);
    kernels_.elementwise.scale(sin, rotation.factor, n_pairs);
  });
}

void CpuBackend::upload_row(Buffer to, std::uint32_t row, std::span<const float> values) {
  Matrix& m = matrix(to);
  QSF_CHECK(row < m.n_rows && values.size() <= m.n_cols);
  std::copy(values.begin(), values.end(), m.row(row));
}

std::span<const float> CpuBackend::read_row(Buffer from, std::uint32_t row) {
  const Matrix& m = matrix(from);
  QSF_CHECK(row < m.n_rows);
  return {m.row(row), m.n_cols};
}

Status CpuBackend::wait() {
  return ok_status();
}

void CpuBackend::norm(const NormArgs& args) {
  const Matrix& in = matrix(args.in);
  const Matrix& out = matrix(args.out);
  const bool listed = !args.row_list.empty();
  const auto n_rows = listed ? static_cast<std::uint32_t>(args.row_list.size()) : args.n_rows;
  const float* bias = args.bias.empty() ? nullptr : args.bias.data();
  QSF_DCHECK(args.n_parts * args.n_cols <= std::min(in.n_cols, out.n_cols));
  for_rows(n_rows, [&](std::uint32_t i) {
    const float* x = in.row(listed ? args.row_list[i] : i);
    float* y = out.row(i);
    for (std::uint32_t part = 0; part < args.n_parts; ++part, x += args.n_cols, y += args.n_cols) {
      if (args.kind == NormKind::kRmsNorm) {
        kernels_.norm.rms_norm(x, args.gain.data(), y, args.n_cols, args.epsilon);
      } else {
        kernels_.norm.layer_norm(x, args.gain.data(), bias, y, args.n_cols, args.epsilon);
      }
    }
  });
}

void CpuBackend::rope(Buffer x, std::uint32_t n_heads) {
  const Matrix& m = matrix(x);
  const std::uint32_t n_pairs = limits_.rope_dims / 2;
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    const std::size_t angles = static_cast<std::size_t>(row) * n_pairs;
    kernels_.rope.rotate_half(m.row(row), cos_ + angles, sin_ + angles, n_pairs, n_heads,
                              limits_.head_dim);
  });
}

void CpuBackend::activate(ActivationKind kind, Buffer x) {
  const Matrix& m = matrix(x);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    float* values = m.row(row);
    switch (kind) {
      case ActivationKind::kGeluTanh: kernels_.activation.gelu_tanh(values, m.n_cols); break;
      case ActivationKind::kGeluErf: kernels_.activation.gelu_erf(values, m.n_cols); break;
      case ActivationKind::kSilu: kernels_.activation.silu(values, m.n_cols); break;
      case ActivationKind::kRelu: kernels_.activation.relu(values, m.n_cols); break;
    }
  });
}

void CpuBackend::activate_mul(ActivationKind kind, Buffer gate, Buffer up) {
  activate(kind, gate);
  const Matrix& g = matrix(gate);
  const Matrix& u = matrix(up);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    kernels_.elementwise.mul(g.row(row), u.row(row), g.row(row), g.n_cols);
  });
}

void CpuBackend::add(Buffer to, Buffer from) {
  const Matrix& a = matrix(to);
  const Matrix& b = matrix(from);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    kernels_.elementwise.add(a.row(row), b.row(row), a.row(row), a.n_cols);
  });
}

void CpuBackend::soft_cap(Buffer x, std::uint32_t n_rows, std::uint32_t n_cols, float cap) {
  const Matrix& m = matrix(x);
  QSF_DCHECK(n_rows <= m.n_rows && n_cols <= m.n_cols);
  for_rows(n_rows,
           [&](std::uint32_t row) { kernels_.activation.soft_cap(m.row(row), cap, n_cols); });
}

}  // namespace qsf
