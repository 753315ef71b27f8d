// SPDX-License-Identifier: MIT
//
// Memory, row-wise operators and observation of the CPU backend. Products are in cpu_matmul.cc,
// attention in cpu_attention.cc and cpu_sparse_attention.cc.

#include "ops/cpu_backend.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "kernels/isa.h"
#include "ops/make_backend.h"
#include "platform/cpu.h"

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

bool has_bf16_products(kernels::Isa best) {
  const auto table = kernels::matmul_kernels();
  return std::any_of(table.begin(), table.end(), [best](const kernels::MatMulKernel& kernel) {
    return kernel.input == kernels::ActivationType::kBf16 && kernels::isa_covers(best, kernel.isa);
  });
}

Result<std::optional<std::uint32_t>> read_prefetch_bytes() {
  const char* const text = std::getenv("QSF_PREFETCH_BYTES");
  if (text == nullptr || *text == '\0') return std::optional<std::uint32_t>();
  const std::string_view whole = text;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (error != std::errc() || end != whole.data() + whole.size() || value > kMaxPrefetchBytes) {
    return invalid_argument("QSF_PREFETCH_BYTES: \"%.40s\", expected a number from 0 to %u", text,
                            kMaxPrefetchBytes);
  }
  return std::optional<std::uint32_t>(value);
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, bool exact) {
  QSF_ASSIGN_OR_RETURN(const kernels::Isa isa, kernels::choose_host_isa());
  QSF_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> prefetch_bytes, read_prefetch_bytes());
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(
      pool, kernels::kernel_set(isa),
      CpuBackendOptions{.exact = exact, .prefetch_bytes = prefetch_bytes}));
}

CpuBackend::CpuBackend(ThreadPool& pool, const kernels::KernelSet& kernel_set,
                       const CpuBackendOptions& options)
    : pool_(pool),
      kernels_(kernel_set),
      exact_(options.exact),
      attend_prompt_(options.exact ? kernel_set.attend_decode : kernel_set.attend_prompt),
      bf16_inputs_(!options.exact && has_bf16_products(kernel_set.best)),
      split_(pool.n_parallel()),
      prefetch_(options.prefetch_bytes, last_level_cache_bytes()),
      sparse_(pool, kernel_set, options.exact) {
  matrices_.reserve(kMaxBuffers);
}

std::string_view CpuBackend::instruction_set() const noexcept {
  // Of the kernels that run, not of the CPU: a tier may have no kernel of its own yet.
  return kernels::isa_name(
      kernels_.matmul({QuantType::kQ4, 64}, kernels::ActivationType::kInt8).isa);
}

std::string CpuBackend::describe() const {
  std::string text = "instruction set: ";
  text.append(instruction_set());
  text.append(exact_ ? "\nproducts: exact, of f32 rows\n"
              : bf16_inputs_
                  ? "\nproducts: of int8 rows, bf16 for prompts, f32 with float weights\n"
                  : "\nproducts: of int8 rows, f32 with float weights\n");
  return text + kernels::kernel_set_names(kernels_);
}

std::uint64_t CpuBackend::scratch_bytes(const PassLimits& limits) const noexcept {
  return align_up(attention_scratch_bytes(limits), kLineBytes) +
         SparseAttention::scratch_bytes(limits, pool_.n_threads()) +
         ActivationRows::bytes(limits.max_rows, limits.max_cols, bf16_inputs_);
}

void CpuBackend::attach_scratch(const PassLimits& limits, MutableByteSpan memory) {
  QSF_CHECK(memory.size() >= scratch_bytes(limits));
  limits_ = limits;
  layer_limits_ = limits;
  const std::size_t attention_bytes = align_up(attention_scratch_bytes(limits), kLineBytes);
  attach_attention_scratch(memory.first(attention_bytes));
  memory = memory.subspan(attention_bytes);
  sparse_.attach(limits, memory);
  memory = memory.subspan(SparseAttention::scratch_bytes(limits, pool_.n_threads()));
  activation_rows_.attach(limits.max_rows, limits.max_cols, bf16_inputs_, memory);
}

std::uint64_t CpuBackend::buffer_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept {
  return row_stride(n_cols) * n_rows * sizeof(float);
}

Buffer CpuBackend::create_buffer(std::uint32_t n_rows, std::uint32_t n_cols,
                                 MutableByteSpan memory) {
  QSF_CHECK(matrices_.size() < kMaxBuffers);
  QSF_CHECK(memory.size() >= buffer_bytes(n_rows, n_cols));
  matrices_.push_back({.data = reinterpret_cast<float*>(memory.data()),
                       .stride = row_stride(n_cols),
                       .n_rows = n_rows,
                       .n_cols = n_cols,
                       .inputs = RoleInputs()});
  return {static_cast<std::uint32_t>(matrices_.size() - 1)};
}

CpuBackend::Matrix& CpuBackend::matrix(Buffer buffer) noexcept {
  QSF_CHECK(buffer.id < matrices_.size());
  return matrices_[buffer.id];
}

void CpuBackend::begin_pass(std::span<const Row> rows, const KvCache& kv,
                            std::span<const Rotation> rotations, const std::atomic<bool>* cancel) {
  QSF_CHECK(rows.size() <= limits_.max_rows);
  QSF_CHECK(rotations.size() == (limits_.rope_dims == 0 ? 0 : limits_.n_rotations));
  for (const Rotation& rotation : rotations) {
    const std::size_t n_pairs = rotation.inverse_frequencies.size();
    QSF_CHECK(rotation.head_dim == 0 ? n_pairs == limits_.rope_dims / 2
                                     : n_pairs <= limits_.rope_dims / 2);
  }
  rotations_ = rotations;
  for (const Row& row : rows) {
    QSF_CHECK(row.visible.ancestors == 0 || (limits_.drafts.has_value() && !is_sparse()));
  }
  rows_ = rows;
  kv_ = &kv;
  cancel_ = cancel;
  const auto first_other = std::find_if(
      rows.begin(), rows.end(), [](const Row& row) { return row.role != RowRole::kPrompt; });
  n_prompt_ = static_cast<std::uint32_t>(first_other - rows.begin());
  QSF_CHECK(std::none_of(first_other, rows.end(),
                         [](const Row& row) { return row.role == RowRole::kPrompt; }));
  QSF_CHECK(rows.size() - n_prompt_ <= limits_.max_decode_rows);
  QSF_CHECK(kv_store_ != nullptr);
  kv_store_->begin_pass(rows, kv, cancel);
  if (product_bytes_ != 0) prefetch_.end_pass(product_bytes_, product_ns_);
  product_bytes_ = 0;
  product_ns_ = 0;
  if (observer_ != nullptr) observer_->pass_began(rows);
  rope_at_cache_position_ =
      limits_.rope_reindex && std::any_of(rows.begin(), rows.end(), [](const Row& row) {
        return row.visible.first > row.visible.sinks && row.visible.sinks > 0;
      });
  const OperatorTimer timer(profile_[OperatorKind::kRope]);
  const std::size_t n_pairs = limits_.rope_dims / 2;
  for (std::size_t i = 0; i < rotations.size(); ++i) {
    for_rows(static_cast<std::uint32_t>(rows.size()), [&](std::uint32_t row) {
      const std::size_t at = (i * limits_.max_rows + row) * n_pairs;
      fill_angles(rotations[i], static_cast<std::uint32_t>(rows_[row].position), cos_ + at,
                  sin_ + at);
    });
    if (!rope_at_cache_position_) continue;
    fill_angles(rotations[i], cache_position_behind_sinks(limits_), sink_cos_ + i * n_pairs,
                sink_sin_ + i * n_pairs);
  }
}

void CpuBackend::fill_angles(const Rotation& rotation, std::uint32_t position, float* cos,
                             float* sin) const noexcept {
  const auto n_pairs = static_cast<std::uint32_t>(rotation.inverse_frequencies.size());
  const kernels::RopeKernels& rope = kernels_.rope;
  const auto angles = position < rotation.rounded_positions ? rope.angles : rope.unrounded_angles;
  angles(position, rotation.inverse_frequencies.data(), n_pairs, cos, sin);
  if (rotation.factor == 1.0F) return;
  kernels_.elementwise.scale(cos, rotation.factor, n_pairs);
  kernels_.elementwise.scale(sin, rotation.factor, n_pairs);
}

void CpuBackend::reach_layer(std::uint32_t layer, Buffer hidden) {
  if (observer_ != nullptr) observer_->layer_reached(*this, layer, hidden);
}

void CpuBackend::upload_row(Buffer to, std::uint32_t row, std::span<const float> values) {
  const Observation observed(*this, OperatorKind::kUpload, to, to, {});
  const OperatorTimer timer(profile_[OperatorKind::kUpload]);
  Matrix& m = matrix(to);
  activation_rows_.invalidate(to.id);
  QSF_CHECK(row < m.n_rows && values.size() <= m.n_cols);
  std::copy(values.begin(), values.end(), m.row(row));
}

std::span<const float> CpuBackend::read_row(Buffer from, std::uint32_t row) {
  const Matrix& m = matrix(from);
  QSF_CHECK(row < m.n_rows);
  return {m.row(row), m.n_cols};
}

bool CpuBackend::read_operand(Buffer from, std::uint32_t row, BlockFormat format,
                              std::span<float> values) {
  using kernels::ActivationType;
  const Matrix& m = matrix(from);
  QSF_CHECK(row < m.n_rows && values.size() <= m.n_cols);
  const ActivationType input = product_input(format, false, exact_, false, kernels_.best);
  if (input != ActivationType::kInt8) {
    std::copy_n(m.row(row), values.size(), values.begin());
    return input == ActivationType::kF32;
  }
  // An activation block is quantised by itself.
  constexpr std::uint32_t kColumns = kernels::kActivationBlockColumns;
  alignas(kLineBytes) std::array<std::byte, kernels::int8_row_bytes(kColumns)> block;
  for (std::size_t first = 0; first < values.size(); first += kColumns) {
    const auto n =
        static_cast<std::uint32_t>(std::min<std::size_t>(kColumns, values.size() - first));
    kernels_.quantise.to_int8(m.row(row) + first, block.data(), n);
    kernels::Int8Block fields;
    std::memcpy(&fields, block.data() + kernels::int8_blocks_offset(n), sizeof fields);
    for (std::uint32_t i = 0; i < n; ++i) {
      values[first + i] = fields.scale * static_cast<float>(static_cast<std::int8_t>(block[i]));
    }
  }
  return true;
}

Status CpuBackend::wait() {
  return status();
}

Status CpuBackend::status() const {
  return kv_store_ == nullptr ? ok_status() : kv_store_->status();
}

Status CpuBackend::end_pass() {
  return kv_store_->end_pass();
}

void CpuBackend::quantise_activations(Buffer buffer, std::uint32_t n_cols, const RoleInputs& inputs,
                                      RowCounts rows) {
  const Matrix& in = matrix(buffer);
  for (const kernels::ActivationType input :
       {kernels::ActivationType::kInt8, kernels::ActivationType::kBf16}) {
    const RowRange range = inputs.range(input, rows);
    if (range.first == range.last ||
        activation_rows_.has(input, inputs.int8_rows(), buffer.id, n_cols, range)) {
      continue;
    }
    const OperatorTimer timer(profile_[OperatorKind::kInputRows]);
    activation_rows_.begin(input, inputs.int8_rows(), buffer.id, n_cols, range);
    for_rows(range.last - range.first, [&](std::uint32_t i) {
      activation_rows_.quantise_row(kernels_, input, range.first + i, in.row(range.first + i));
    });
  }
  const RowRange floats = inputs.range(kernels::ActivationType::kF32, rows);
  if (!inputs.int8_rows() || floats.first == floats.last || !activation_rows_.mark_rounded())
    return;
  const OperatorTimer timer(profile_[OperatorKind::kInputRows]);
  for_rows(floats.last - floats.first, [&](std::uint32_t i) {
    activation_rows_.round_row(floats.first + i, in.row(floats.first + i));
  });
}

// Forms each row while it is in the first-level cache, as the last product that read `out` took it:
// a right guess on every pass but the first.
void CpuBackend::norm(const NormArgs& args) {
  Observation observed(*this, OperatorKind::kNorm, args.in, args.out, kernels_.norm.name);
  if (!args.row_list.empty()) observed.set_listed_rows(args.row_list.size());
  const OperatorTimer timer(profile_[OperatorKind::kNorm]);
  const Matrix& in = matrix(args.in);
  const Matrix& out = matrix(args.out);
  const bool listed = !args.row_list.empty();
  RowCounts rows = {.n_prompt = std::min(n_prompt_, args.n_rows), .n_rows = args.n_rows};
  if (listed) {
    const auto first_other =
        std::lower_bound(args.row_list.begin(), args.row_list.end(), n_prompt_);
    rows = {.n_prompt = static_cast<std::uint32_t>(first_other - args.row_list.begin()),
            .n_rows = static_cast<std::uint32_t>(args.row_list.size())};
  }
  const float* bias = args.bias.empty() ? nullptr : args.bias.data();
  QSF_DCHECK(args.gain.size() == args.n_cols || args.gain.size() == args.n_parts * args.n_cols);
  const std::uint32_t gain_step = args.gain.size() == args.n_cols ? 0 : args.n_cols;
  QSF_DCHECK(args.first_col + args.n_parts * args.n_cols <= std::min(in.n_cols, out.n_cols));
  activation_rows_.invalidate(args.out.id);
  RowRange i8;
  RowRange bf16;
  if (args.first_col == 0 && args.n_parts * args.n_cols == out.input_cols) {
    i8 = out.inputs.range(kernels::ActivationType::kInt8, rows);
    bf16 = out.inputs.range(kernels::ActivationType::kBf16, rows);
  }
  if (i8.first != i8.last) {
    activation_rows_.begin(kernels::ActivationType::kInt8, out.inputs.int8_rows(), args.out.id,
                           out.input_cols, i8);
  }
  if (bf16.first != bf16.last) {
    activation_rows_.begin(kernels::ActivationType::kBf16, out.inputs.int8_rows(), args.out.id,
                           out.input_cols, bf16);
  }
  for_rows(rows.n_rows, [&](std::uint32_t i) {
    const float* x = in.row(listed ? args.row_list[i] : i) + args.first_col;
    float* const first = out.row(i);
    float* y = first + args.first_col;
    const float* gain = args.gain.data();
    for (std::uint32_t part = 0; part < args.n_parts; ++part) {
      if (args.kind == NormKind::kRmsNorm) {
        kernels_.norm.rms_norm(x, gain, y, args.n_cols, args.epsilon);
      } else {
        kernels_.norm.layer_norm(x, gain, bias, y, args.n_cols, args.epsilon);
      }
      x += args.n_cols;
      y += args.n_cols;
      gain += gain_step;
    }
    if (i8.first <= i && i < i8.last) {
      activation_rows_.quantise_row(kernels_, kernels::ActivationType::kInt8, i, first);
    }
    if (bf16.first <= i && i < bf16.last) {
      activation_rows_.quantise_row(kernels_, kernels::ActivationType::kBf16, i, first);
    }
  });
}

void CpuBackend::rope(Buffer x, std::uint32_t n_heads, std::uint32_t rotation) {
  QSF_DCHECK(rotation < limits_.n_rotations);
  const Observation observed(*this, OperatorKind::kRope, x, x, kernels_.rope.name);
  const OperatorTimer timer(profile_[OperatorKind::kRope]);
  const Matrix& m = matrix(x);
  activation_rows_.invalidate(x.id);
  const std::uint32_t most_pairs = limits_.rope_dims / 2;
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    const std::size_t angles = (std::size_t{rotation} * limits_.max_rows + row) * most_pairs;
    kernels_.rope.rotate_half(m.row(row), cos_ + angles, sin_ + angles, n_pairs_of(rotation),
                              n_heads, head_dim_of(rotation));
  });
}

void CpuBackend::rope_at_cache_position(Buffer from, Buffer to, std::uint32_t n_heads,
                                        std::uint32_t rotation) {
  QSF_CHECK(limits_.rope_reindex);
  QSF_DCHECK(rotation < limits_.n_rotations);
  if (!rope_at_cache_position_) return;
  const Observation observed(*this, OperatorKind::kRope, from, to, kernels_.rope.name);
  const OperatorTimer timer(profile_[OperatorKind::kRope]);
  const Matrix& in = matrix(from);
  const Matrix& out = matrix(to);
  activation_rows_.invalidate(to.id);
  const std::size_t angles = std::size_t{rotation} * (limits_.rope_dims / 2);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    std::copy_n(in.row(row), in.n_cols, out.row(row));
    kernels_.rope.rotate_half(out.row(row), sink_cos_ + angles, sink_sin_ + angles,
                              n_pairs_of(rotation), n_heads, head_dim_of(rotation));
  });
}

void CpuBackend::scale_rows(Buffer x, std::span<const float> factors) {
  const Observation observed(*this, OperatorKind::kScale, x, x, kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kScale]);
  QSF_DCHECK(factors.size() == rows_.size());
  const Matrix& m = matrix(x);
  activation_rows_.invalidate(x.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    kernels_.elementwise.scale(m.row(row), factors[row], m.n_cols);
  });
}

void CpuBackend::clamp(Buffer x, float limit) {
  const Observation observed(*this, OperatorKind::kClamp, x, x, {});
  const OperatorTimer timer(profile_[OperatorKind::kClamp]);
  const Matrix& m = matrix(x);
  activation_rows_.invalidate(x.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    float* const values = m.row(row);
    for (std::uint32_t c = 0; c < m.n_cols; ++c) values[c] = std::clamp(values[c], -limit, limit);
  });
}

void CpuBackend::add(Buffer to, Buffer from) {
  add_columns({to, 0}, {from, 0}, matrix(to).n_cols);
}

void CpuBackend::add_columns(BufferColumns to, BufferColumns from, std::uint32_t n_cols) {
  const Observation observed(*this, OperatorKind::kResidual, from.buffer, to.buffer,
                             kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kResidual]);
  const Matrix& a = matrix(to.buffer);
  const Matrix& b = matrix(from.buffer);
  QSF_DCHECK(to.first + n_cols <= a.n_cols && from.first + n_cols <= b.n_cols);
  activation_rows_.invalidate(to.buffer.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    kernels_.elementwise.add_in_place(a.row(row) + to.first, b.row(row) + from.first, n_cols);
  });
}

void CpuBackend::clear(Buffer x) {
  const OperatorTimer timer(profile_[OperatorKind::kResidual]);
  const Matrix& m = matrix(x);
  activation_rows_.invalidate(x.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()),
           [&](std::uint32_t row) { std::fill_n(m.row(row), m.n_cols, 0.0F); });
}

void CpuBackend::gather_rows(Buffer from, Buffer to, std::span<const std::uint32_t> rows,
                             std::span<const float> factors) {
  const Observation observed(*this, OperatorKind::kGather, from, to, kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kGather]);
  const Matrix& in = matrix(from);
  const Matrix& out = matrix(to);
  QSF_DCHECK(in.n_cols == out.n_cols && rows.size() <= out.n_rows);
  QSF_DCHECK(factors.empty() || rows.size() == factors.size());
  activation_rows_.invalidate(to.id);
  for_rows(static_cast<std::uint32_t>(rows.size()), [&](std::uint32_t i) {
    std::copy_n(in.row(rows[i]), in.n_cols, out.row(i));
    if (!factors.empty()) kernels_.elementwise.scale(out.row(i), factors[i], in.n_cols);
  });
}

void CpuBackend::add_to_rows(Buffer to, Buffer from, std::span<const std::uint32_t> rows,
                             std::span<const float> factors) {
  const Observation observed(*this, OperatorKind::kResidual, from, to, kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kResidual]);
  const Matrix& out = matrix(to);
  const Matrix& in = matrix(from);
  QSF_DCHECK(in.n_cols == out.n_cols && (factors.empty() || rows.size() == factors.size()));
  activation_rows_.invalidate(to.id);
  activation_rows_.invalidate(from.id);
  for_rows(static_cast<std::uint32_t>(rows.size()), [&](std::uint32_t i) {
    if (!factors.empty()) kernels_.elementwise.scale(in.row(i), factors[i], in.n_cols);
    kernels_.elementwise.add_in_place(out.row(rows[i]), in.row(i), in.n_cols);
  });
}

CpuBackend::Observation::Observation(CpuBackend& backend, OperatorKind kind, Buffer in, Buffer out,
                                     std::string_view kernel) noexcept
    : backend_(backend) {
  if (backend.observer_ == nullptr) return;
  event_.kind = kind;
  event_.in = in;
  event_.out = out;
  event_.kernel = kernel;
  event_.n_rows = static_cast<std::uint32_t>(backend.rows_.size());
  event_.start_ns = monotonic_ns();
}

CpuBackend::Observation::~Observation() {
  if (backend_.observer_ == nullptr) return;
  event_.ns = monotonic_ns() - event_.start_ns;
  backend_.observer_->operator_ended(backend_, event_);
}

// Tiles of one target that the same kernels take are one part.
void CpuBackend::Observation::set_product(const MatmulArgs& args) {
  if (backend_.observer_ == nullptr) return;
  event_.product = &args;
  event_.n_rows =
      args.row_list.empty() ? args.rows.n_rows : static_cast<std::uint32_t>(args.row_list.size());
  std::vector<ProductPart>& parts = backend_.observed_parts_;
  parts.clear();
  for (std::size_t i = 0; i < args.tiles.size(); ++i) {
    const WeightTile& tile = args.tiles[i];
    const TileKernels& chosen = backend_.tile_kernels_[i];
    ProductPart part = {.format = tile.format, .target = tile.target, .n_cols = tile.n_cols};
    if (args.rows.n_prompt > 0) part.prompt_kernel = chosen.prompt->name;
    if (args.rows.n_rows > args.rows.n_prompt) part.other_kernel = chosen.other->name;
    const bool joins =
        !parts.empty() && parts.back().target == part.target && parts.back().format == part.format;
    if (!joins) parts.push_back(part);
    parts.back().n_rows += tile.n_rows;
    parts.back().bytes += align_up(tile.n_rows, kRowGroup) / kRowGroup * tile.group_bytes;
  }
  event_.parts = parts;
}

}  // namespace qsf
