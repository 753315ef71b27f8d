// SPDX-License-Identifier: MIT
//
// Products of rows and weight tiles, and what joins them: bias, activation, residual sum. One
// fork-join a product; work_split.h cuts the work, and each output is computed and finished by one
// worker in one order.

#include <algorithm>

#include "base/check.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

// Calls visit(rows) for every run of neighbouring rows of one role among the rows number
// [first_x, last_x) that a product computes.
template <typename Visit>
void for_runs(const MatmulArgs& args, std::uint32_t first_x, std::uint32_t last_x,
              const Visit& visit) {
  const std::uint32_t n_prompt = args.rows.n_prompt;
  if (args.row_list.empty()) {
    if (first_x < n_prompt) visit(RowRange{first_x, std::min(last_x, n_prompt)});
    if (last_x > n_prompt) visit(RowRange{std::max(first_x, n_prompt), last_x});
    return;
  }
  for (std::uint32_t i = first_x; i < last_x;) {
    const std::uint32_t first = args.row_list[i];
    const std::uint32_t stop = first < n_prompt ? n_prompt : args.rows.n_rows;
    std::uint32_t next = first + 1;
    for (++i; i < last_x && args.row_list[i] == next && next < stop; ++i) ++next;
    visit(RowRange{first, next});
  }
}

}  // namespace

Ticket CpuBackend::matmul(const MatmulArgs& args) {
  QSF_DCHECK(args.row_list.empty() || !args.epilogue.fused_gate_up);
  const bool in_parts = args.parts.n_parts != 0;
  if (args.tiles.empty()) return 0;
  const RoleInputs inputs = choose_kernels(args.tiles, args.rows, args.int8_rows);
  const std::uint32_t n_cols = args.tiles.front().n_cols;
  if (in_parts) {
    quantise_parts(args, n_cols, inputs);
  } else {
    quantise_activations(args.in, n_cols, inputs, args.rows);
    Matrix& in = matrix(args.in);
    if (n_cols < in.n_cols) clear_padding(in, n_cols, args.rows.n_rows);
    in.inputs = inputs;
    in.input_cols = n_cols;
  }
  for (const MatmulTarget& target : args.targets) activation_rows_.invalidate(target.out.id);
  if (args.epilogue.add_to.id != Buffer::kNone)
    activation_rows_.invalidate(args.epilogue.add_to.id);

  Observation observed(*this, args.kind, args.in, args.targets.front().out, {});
  observed.set_product(args);
  OperatorTimes& times = profile_[args.kind];
  const std::uint64_t ns_before = times.ns;
  const auto n_x =
      args.row_list.empty() ? args.rows.n_rows : static_cast<std::uint32_t>(args.row_list.size());
  {
    const OperatorTimer timer(times);
    std::uint32_t rows_done[2] = {};
    for (std::size_t i = 0; args.epilogue.fused_gate_up && i < 2; ++i) {
      rows_done[i] = args.targets[i].n_rows_done;
    }
    split_.cut(args.tiles, n_x, args.epilogue.fused_gate_up, rows_done);
    const std::size_t n_items = split_.n_items();
    pool_.parallel_for(split_.n_queues(), 1, [&](std::size_t begin, std::size_t end, unsigned) {
      for (std::size_t queue = begin; queue < end; ++queue) {
        for (std::size_t i; !is_cancelled() && (i = split_.take(queue)) < n_items;) {
          compute(args, split_.item(i));
        }
      }
    });
  }
  times.bytes += split_.weight_bytes();
  for (const WeightTile& tile : args.tiles) {
    times.operations += 2 * std::uint64_t{tile.n_rows} * tile.n_cols * n_x;
  }
  if (args.rows.n_prompt == 0) {
    product_bytes_ += split_.weight_bytes();
    product_ns_ += times.ns - ns_before;
  }
  return 0;
}

// Kernels of f32 rows read whole blocks of columns. Behind the columns of a product that is
// narrower than its buffer lie those of an earlier, wider one.
void CpuBackend::clear_padding(Matrix& in, std::uint32_t n_cols, std::uint32_t n_rows) noexcept {
  const std::size_t end = std::min<std::size_t>(align_up(n_cols, kColumnAlign), in.stride);
  for (std::uint32_t row = 0; row < n_rows; ++row) {
    std::fill(in.row(row) + n_cols, in.row(row) + end, 0.0F);
  }
}

// Looks up the kernels of every tile; returns the forms of rows that they take.
CpuBackend::RoleInputs CpuBackend::choose_kernels(std::span<const WeightTile> tiles, RowCounts rows,
                                                  bool int8_rows) {
  QSF_CHECK(tiles.size() <= kMaxMatmulTiles);
  RoleInputs inputs(int8_rows);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    QSF_DCHECK(tiles[i].n_cols == tiles.front().n_cols);
    const BlockFormat format = tiles[i].format;
    if (i > 0 && format == tiles[i - 1].format) {
      tile_kernels_[i] = tile_kernels_[i - 1];
      continue;
    }
    const auto kernel = [&](bool prompt) {
      return &kernels_.matmul(format,
                              product_input(format, prompt, exact_, int8_rows, kernels_.best));
    };
    tile_kernels_[i] = {.prompt = kernel(true), .other = kernel(false)};
    if (rows.n_prompt > 0) inputs.add(true, tile_kernels_[i].prompt->input);
    if (rows.n_rows > rows.n_prompt) inputs.add(false, tile_kernels_[i].other->input);
  }
  return inputs;
}

void CpuBackend::compute(const MatmulArgs& args, const WorkItem& item) {
  for_runs(args, item.first_x, item.last_x, [&](RowRange rows) {
    for (const WeightTile* tile : item.piece->tiles) {
      if (tile == nullptr) continue;
      if (args.parts.n_parts != 0) return multiply_parts(args, *tile, item, rows);
      multiply(args, *tile, item, rows);
    }
    run_epilogue(args, item, rows);
  });
}

void CpuBackend::multiply(const MatmulArgs& args, const WeightTile& tile, const WorkItem& item,
                          RowRange rows) {
  const MatmulTarget& target = args.targets[tile.target];
  const Matrix& in = matrix(args.in);
  const Matrix& out = matrix(target.out);
  const std::uint32_t column = item.first_row - target.first_weight_row;
  const std::uint32_t n_x = rows.last - rows.first;
  QSF_DCHECK(item.first_row >= target.first_weight_row && column + item.n_rows <= out.n_cols);
  QSF_DCHECK(rows.last <= in.n_rows && target.first_row + rows.last <= out.n_rows);
  QSF_DCHECK(tile.n_cols <= in.n_cols);
  const TileKernels& choice = tile_kernels_[static_cast<std::size_t>(&tile - args.tiles.data())];
  const kernels::MatMulKernel& kernel =
      rows.first < args.rows.n_prompt ? *choice.prompt : *choice.other;
  const QuantisedRows x =
      kernel.input == kernels::ActivationType::kF32
          ? QuantisedRows{reinterpret_cast<const std::byte*>(in.data), in.stride * sizeof(float)}
          : activation_rows_.rows(kernel.input);
  float* const y = out.row(target.first_row + rows.first) + column;
  kernel.run(
      {.weights = tile.bytes + (item.first_row - tile.first_row) / kRowGroup * tile.group_bytes,
       .group_bytes = tile.group_bytes,
       .x = x.row(rows.first),
       .x_stride = x.stride,
       .y = y,
       .y_stride = out.stride,
       .n_x = n_x,
       .n_rows = item.n_rows,
       .n_cols = tile.n_cols,
       .prefetch_bytes = prefetch_.bytes(),
       .unit_scales = args.int8_rows && kernel.input == kernels::ActivationType::kInt8});
  for (std::uint32_t i = 0; i < n_x; ++i) {
    float* const piece = y + i * out.stride;
    if (args.int8_rows && kernel.input == kernels::ActivationType::kInt8) {
      kernels_.elementwise.scale(piece, activation_rows_.row_scale(rows.first + i), item.n_rows);
    }
    if (!args.adapters.pairs.empty()) {
      add_adapter(args.adapters, target.adapted, rows.first + i, item, piece);
    }
    if (!target.bias.empty()) {
      kernels_.elementwise.add_in_place(piece, target.bias.data() + item.first_row, item.n_rows);
    }
  }
}

void CpuBackend::run_epilogue(const MatmulArgs& args, const WorkItem& item, RowRange rows) {
  const MatmulEpilogue& epilogue = args.epilogue;
  if (epilogue.fused_gate_up && !item.piece->completes) return;
  const auto piece_of = [&](const MatmulTarget& target, std::uint32_t row) {
    return matrix(target.out).row(target.first_row + row) + item.first_row -
           target.first_weight_row;
  };
  const MatmulTarget& target =
      epilogue.fused_gate_up ? args.targets[0] : args.targets[item.piece->tiles[0]->target];
  for (std::uint32_t row = rows.first; row < rows.last; ++row) {
    float* const out = piece_of(target, row);
    if (epilogue.fused_gate_up) {
      activate_mul(*epilogue.activation, out, piece_of(args.targets[1], row), item.n_rows);
    } else if (epilogue.activation.has_value()) {
      activate(*epilogue.activation, out, item.n_rows);
    }
    if (epilogue.scale != 1.0F) kernels_.elementwise.scale(out, epilogue.scale, item.n_rows);
    if (epilogue.soft_cap != 0.0F)
      kernels_.activation.soft_cap(out, epilogue.soft_cap, item.n_rows);
    if (epilogue.add_to.id != Buffer::kNone) {
      float* const sum =
          matrix(epilogue.add_to).row(row) + item.first_row - target.first_weight_row;
      kernels_.elementwise.add_in_place(sum, out, item.n_rows);
    }
  }
}

void CpuBackend::activate(ActivationKind kind, float* x, std::uint32_t n_values) const noexcept {
  switch (kind) {
    case ActivationKind::kGeluTanh: kernels_.activation.gelu_tanh(x, n_values); break;
    case ActivationKind::kGeluErf: kernels_.activation.gelu_erf(x, n_values); break;
    case ActivationKind::kSilu: kernels_.activation.silu(x, n_values); break;
    case ActivationKind::kRelu: kernels_.activation.relu(x, n_values); break;
    case ActivationKind::kReluSquared: kernels_.activation.relu_squared(x, n_values); break;
    case ActivationKind::kSigmoid:
    case ActivationKind::kSwishClamped: QSF_CHECK(false); break;  // have no form without a gate
  }
}

void CpuBackend::activate_mul(ActivationKind kind, float* gate, const float* up,
                              std::uint32_t n_values) const noexcept {
  switch (kind) {
    case ActivationKind::kGeluTanh:
      kernels_.activation.gelu_tanh_mul(gate, up, gate, n_values);
      return;
    case ActivationKind::kSilu: kernels_.activation.silu_mul(gate, up, gate, n_values); return;
    case ActivationKind::kSigmoid:
      kernels_.activation.sigmoid_mul(gate, up, gate, n_values);
      return;
    case ActivationKind::kReluSquared:
      kernels_.activation.relu_squared_mul(gate, up, gate, n_values);
      return;
    case ActivationKind::kSwishClamped:
      kernels_.activation.swish_clamped_mul(gate, up, gate, n_values);
      return;
    case ActivationKind::kGeluErf:
    case ActivationKind::kRelu: break;
  }
  activate(kind, gate, n_values);
  kernels_.elementwise.mul(gate, up, gate, n_values);
}

}  // namespace qsf
