// SPDX-License-Identifier: MIT
//
// Products of the parts of a row, each with a matrix of its own: heads of latent attention.
//
// A part is an activation row of its own, with scales of its own where it is quantised, so a
// product of parts has the bits of as many products of rows.

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"

namespace qsf {

void CpuBackend::copy_parts(const PartColumns& from, const PartColumns& to, std::uint32_t n_parts,
                            std::uint32_t n_cols) {
  const Observation observed(*this, OperatorKind::kGather, from.buffer, to.buffer, {});
  const OperatorTimer timer(profile_[OperatorKind::kGather]);
  const Matrix& in = matrix(from.buffer);
  const Matrix& out = matrix(to.buffer);
  QSF_DCHECK(from.first + (n_parts - 1) * from.stride + n_cols <= in.n_cols);
  QSF_DCHECK(to.first + (n_parts - 1) * to.stride + n_cols <= out.n_cols);
  activation_rows_.invalidate(to.buffer.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    const float* x = in.row(row) + from.first;
    float* y = out.row(row) + to.first;
    for (std::uint32_t part = 0; part < n_parts; ++part, x += from.stride, y += to.stride) {
      std::copy_n(x, n_cols, y);
    }
  });
}

// As quantise_activations: part p of row i becomes row i * n_parts + p.
void CpuBackend::quantise_parts(const MatmulArgs& args, std::uint32_t n_cols,
                                const RoleInputs& inputs) {
  const MatmulParts& parts = args.parts;
  const Matrix& in = matrix(args.in);
  QSF_CHECK(args.targets.size() == 1 && args.targets[0].bias.empty() && args.row_list.empty());
  QSF_CHECK(!args.int8_rows && args.adapters.pairs.empty());
  QSF_CHECK(parts.n_rows % kRowGroup == 0 && parts.in_stride == part_stride(n_cols));
  QSF_CHECK(parts.n_parts * parts.in_stride <= in.n_cols);
  for (const kernels::ActivationType input :
       {kernels::ActivationType::kInt8, kernels::ActivationType::kBf16}) {
    const RowRange range = inputs.range(input, args.rows);
    const RowRange of_parts = {range.first * parts.n_parts, range.last * parts.n_parts};
    if (range.first == range.last ||
        activation_rows_.has(input, false, args.in.id, n_cols, of_parts)) {
      continue;
    }
    const OperatorTimer timer(profile_[OperatorKind::kInputRows]);
    activation_rows_.begin(input, false, args.in.id, n_cols, of_parts);
    for_rows(range.last - range.first, [&](std::uint32_t i) {
      const std::uint32_t row = range.first + i;
      for (std::uint32_t part = 0; part < parts.n_parts; ++part) {
        activation_rows_.quantise_row(kernels_, input, row * parts.n_parts + part,
                                      in.row(row) + std::size_t{part} * parts.in_stride);
      }
    });
  }
}

// The rows of an item may be of several parts.
void CpuBackend::multiply_parts(const MatmulArgs& args, const WeightTile& tile,
                                const WorkItem& item, RowRange rows) {
  const MatmulParts& parts = args.parts;
  const Matrix& in = matrix(args.in);
  const Matrix& out = matrix(args.targets[0].out);
  QSF_DCHECK(rows.last <= in.n_rows && rows.last <= out.n_rows);
  const TileKernels& choice = tile_kernels_[static_cast<std::size_t>(&tile - args.tiles.data())];
  const kernels::MatMulKernel& kernel =
      rows.first < args.rows.n_prompt ? *choice.prompt : *choice.other;
  const std::uint32_t end = item.first_row + item.n_rows;
  for (std::uint32_t first = item.first_row; first < end;) {
    const std::uint32_t part = first / parts.n_rows;
    const std::uint32_t in_part = first % parts.n_rows;
    const std::uint32_t n = std::min(end - first, parts.n_rows - in_part);
    const std::size_t column = parts.out_first + std::size_t{part} * parts.out_stride + in_part;
    QSF_DCHECK(part < parts.n_parts && column + n <= out.n_cols);
    QuantisedRows x = {reinterpret_cast<const std::byte*>(in.data + part * parts.in_stride),
                       in.stride * sizeof(float)};
    if (kernel.input != kernels::ActivationType::kF32) {
      const QuantisedRows all = activation_rows_.rows(kernel.input);
      x = {all.row(part), all.stride * parts.n_parts};
    }
    kernel.run({.weights = tile.bytes + (first - tile.first_row) / kRowGroup * tile.group_bytes,
                .group_bytes = tile.group_bytes,
                .x = x.row(rows.first),
                .x_stride = x.stride,
                .y = out.row(rows.first) + column,
                .y_stride = out.stride,
                .n_x = rows.last - rows.first,
                .n_rows = n,
                .n_cols = tile.n_cols,
                .prefetch_bytes = prefetch_.bytes(),
                .unit_scales = false});
    first += n;
  }
}

}  // namespace qsf
