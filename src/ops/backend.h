// SPDX-License-Identifier: MIT
//
// The backend: where a pass's rows live and the operators that change them.
//
// A backend owns its memory (rows of activations, keys and values) behind handles, because a GPU's
// bytes are not ours to point at. Operators are submitted in order and may run late; wait() makes
// everything submitted so far visible and reports what went wrong. The CPU backend runs them at
// once.
//
// Rows have roles. A pass's prompt rows come first, generated and drafted rows after them; every
// operator that multiplies weights takes prompt rows through the prompt kernels and the others
// through the decode kernels, so that the numbers of a row never depend on what shares its pass.

#ifndef QSF_OPS_BACKEND_H_
#define QSF_OPS_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/kv_policy.h"
#include "kv/row.h"
#include "kv/sparse_prefill_state.h"
#include "ops/operator_times.h"
#include "quant/kv_type.h"
#include "quant/types.h"

namespace qsf {

inline constexpr std::uint32_t kMaxHeadDim =
    1024;  // columns of a head; attention keeps one on the stack

// A matrix of f32 rows in a backend's memory. Copyable handle; lives as long as the backend.
struct Buffer {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  std::uint32_t id = kNone;
};

// How many of the first rows of a buffer an operator works on: prompt rows, then the others.
struct RowCounts {
  std::uint32_t n_prompt = 0;
  std::uint32_t n_rows = 0;  // prompt rows included
};

// Prompts beyond the first chunk attend to their chunk and a memory set (cpu_sparse_attention.h).
struct SparseLimits {
  SparsePrefillOptions options;  // on
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
};

// Rows attend to heavy hitters and a window (cpu_sparse_attention.h).
struct H2oEvictionLimits {
  std::uint32_t n_slots = 0;  // as H2oEvictionShape tells, here and below
  std::uint32_t n_recent = 1;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
};

// The largest pass a backend has to serve; its scratch follows from it.
struct PassLimits {
  std::uint32_t max_rows = 1;         // rows of a pass
  std::uint32_t max_decode_rows = 1;  // of which generated or drafted
  std::uint32_t max_context = 1;      // positions of a sequence
  std::uint32_t window = 0;           // most slots behind the sinks that a row sees; 0: all
  std::uint32_t sinks = 0;            // with a window
  bool rope_reindex = false;          // rows whose window has left the sinks meet them by place
  std::uint32_t n_heads = 1;
  std::uint32_t n_kv_heads = 1;
  std::uint32_t head_dim = 1;
  std::uint32_t rope_dims = 0;  // 0: no rotation
  std::uint32_t max_cols = 0;   // of a row that a product reads
  std::optional<SparseLimits> h2o = std::nullopt;
  std::optional<H2oEvictionLimits> heavy = std::nullopt;  // without h2o
};

// One weight tile in layout 1, valid until the next wait().
struct MatmulTile {
  const std::byte* bytes = nullptr;  // 64-byte aligned
  BlockFormat format{};
  std::size_t group_bytes = 0;
  std::uint32_t first_row = 0;  // in its matrix; a multiple of 16
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  std::uint32_t target = 0;  // index into MatmulArgs::targets
};

// The position as which a row meets its sinks under PassLimits::rope_reindex: its place in a cache
// of them and its window.
constexpr std::uint32_t cache_position_behind_sinks(const PassLimits& limits) noexcept {
  return limits.sinks + limits.window - 1;
}

// How the rows of a pass rotate: by position * inverse_frequencies[i], with cos and sin multiplied
// by `factor`. At the first `rounded_positions` the product is rounded to f32, as in training.
struct Rotation {
  std::span<const float> inverse_frequencies;  // [rope_dims / 2]; none without rotation
  float factor = 1.0F;
  std::uint32_t rounded_positions = UINT32_MAX;
};

// Where the rows of one weight matrix go: weight row r becomes column r - first_weight_row of
// `out`, and row i of the input row first_row + i.
struct MatmulTarget {
  Buffer out;
  std::uint32_t first_row = 0;
  std::uint32_t first_weight_row = 0;
  std::span<const float> bias;  // [rows of the matrix] or empty
  // Weight rows that calls before this one have computed, where two targets are joined: their tiles
  // may arrive in any portions, each matrix's in ascending order.
  std::uint32_t n_rows_done = 0;
};

// Called with each finished piece of an output row, before the bias is added: adapters of single
// rows add their part here. May run on any worker, for different pieces at once.
struct MatmulHook {
  void (*run)(void* user, std::uint32_t target, std::uint32_t row, std::uint32_t first_weight_row,
              std::span<float> piece) = nullptr;
  void* user = nullptr;
};

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };
enum class ActivationKind : std::uint8_t { kGeluTanh, kGeluErf, kSilu, kRelu, kReluSquared };

// What becomes of outputs, done by the worker that computed them while it has them at hand; in the
// order of the members, behind hook and bias.
struct MatmulEpilogue {
  // out = act(out); with joined targets, gate and up, gate = act(gate) * up.
  std::optional<ActivationKind> activation;
  bool fused_gate_up = false;
  float soft_cap = 0.0F;  // out = soft_cap * tanh(out / soft_cap); 0: it stays
  Buffer add_to;          // add_to += out, at the same row and column, where there is one
};

struct MatmulArgs {
  OperatorKind kind = OperatorKind::kQkv;
  Buffer in;
  RowCounts rows;
  std::span<const std::uint32_t>
      row_list;                       // rows of `in` and `out` to compute, ascending; empty: all
  std::span<const MatmulTile> tiles;  // at most kMaxMatmulTiles
  std::span<const MatmulTarget> targets;
  MatmulHook hook;
  MatmulEpilogue epilogue;  // joined: of two targets, gate and up, without a row_list
  // Rows are taken as int8 with one scale a row, whatever the engine's own choice, because the
  // model says so (kernels/quantise/quantise.h row_to_int8). A backend may leave rows of `in`
  // rounded to that where weights are floats.
  bool int8_rows = false;
};
inline constexpr std::size_t kMaxMatmulTiles = 128;

struct NormArgs {
  Buffer in;
  Buffer out;
  std::span<const std::uint32_t>
      row_list;              // rows of `in`; row i of `out` is the norm of row_list[i]
  std::uint32_t n_rows = 0;  // with an empty row_list: rows 0 .. n_rows - 1 in place
  std::uint32_t n_cols = 0;  // that are normalised together
  // Neighbouring parts of n_cols columns that are normalised apart by the same gain: the heads of
  // queries or keys. Requires  n_parts * n_cols is at most the buffers' widths
  std::uint32_t n_parts = 1;
  NormKind kind = NormKind::kRmsNorm;
  float epsilon = 0.0F;
  std::span<const float> gain;  // [n_cols]
  std::span<const float> bias;  // [n_cols] or empty; LayerNorm alone
};

struct AttendArgs {
  std::uint32_t layer = 0;
  Buffer q;    // [rows, n_heads * head_dim]
  Buffer out;  // the same shape
  // The same queries as rope_at_cache_position() leaves them, under PassLimits::rope_reindex.
  Buffer q_sinks = {};
  float scale = 1.0F;
  // Positions a row sees, itself included; 0: all before it. Counted as queries meet them: sinks by
  // place where that is how they are met.
  std::uint32_t window = 0;
  float soft_cap = 0.0F;  // scores become soft_cap * tanh(score / soft_cap); 0: they stay
  // [n_heads] of ALiBi: slope * (key's position - row's position) is added to a score; empty: none
  std::span<const float> slopes;
};

class OperatorObserver;  // operator_observer.h

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view instruction_set() const noexcept = 0;
  // Returns a line for each kernel in use, "matmul 4bit/64 i8: matmul_q4g64_i8_scalar", for people.
  virtual std::string describe() const = 0;
  virtual const OperatorProfile& profile() const noexcept = 0;
  // Has every operator from the next pass on reported to `observer`, which outlives the backend;
  // null ends that.
  virtual void set_observer(OperatorObserver* observer) noexcept = 0;

  // Memory. The engine asks for the bytes, plans them, and hands the memory over once.
  virtual std::uint64_t buffer_bytes(std::uint32_t n_rows, std::uint32_t n_cols) const noexcept = 0;
  virtual std::uint64_t kv_bytes(const KvShape& shape, std::uint32_t n_pages) const noexcept = 0;
  virtual std::uint64_t scratch_bytes(const PassLimits& limits) const noexcept = 0;
  // Requires  memory of at least the bytes asked for, 64-byte aligned, outliving the backend;
  // zeroed
  //           for buffers
  virtual Buffer create_buffer(std::uint32_t n_rows, std::uint32_t n_cols,
                               MutableByteSpan memory) = 0;
  // Requires  the store outlives the backend
  virtual void attach_kv(KvPageStore& store) = 0;
  virtual void attach_scratch(const PassLimits& limits, MutableByteSpan memory) = 0;
  // What sequences attend to under limits.h2o, by SequenceId. The layers of a pass change it; a
  // pass that was given up leaves it to be truncated.
  // Requires  states outlive the backend, one for each sequence there may be; a layer's window is
  //           none or the context; prompt rows of a pass are of one sequence and continue its state
  virtual void attach_sparse_prefill(std::span<SparsePrefillState> states) = 0;
  // The same for what sequences keep under limits.heavy.
  virtual void attach_h2o_eviction(std::span<H2oEviction> heavy) = 0;

  // Starts a pass. `rows` (prompt rows first) and `kv` stay unchanged until its last wait().
  // When `cancel`, which may be null, becomes true, operators may skip work; their results are void
  // then.
  virtual void begin_pass(std::span<const Row> rows, const KvCache& kv, const Rotation& rotation,
                          const std::atomic<bool>* cancel) = 0;

  // Operators over the rows of the pass; widths are those of the buffers unless named.
  virtual void upload_row(Buffer to, std::uint32_t row, std::span<const float> values) = 0;
  virtual void norm(const NormArgs& args) = 0;
  virtual void matmul(const MatmulArgs& args) = 0;
  // Rotates the first rope_dims of the head_dim columns of each head; the others stay.
  virtual void rope(Buffer x, std::uint32_t n_heads) = 0;
  // Copies queries before they are rotated, and rotates them as at the place behind the sinks,
  // where a row of the pass meets some so. Requires  PassLimits::rope_reindex
  virtual void rope_at_cache_position(Buffer from, Buffer to, std::uint32_t n_heads) = 0;
  virtual void store_kv(std::uint32_t layer, Buffer k, Buffer v) = 0;
  virtual void attend(const AttendArgs& args) = 0;
  virtual void add(Buffer to, Buffer from) = 0;  // to += from
  // Copies one page of keys and values of every layer, when a forked sequence writes to it.
  virtual void copy_page(std::uint32_t from_page, std::uint32_t to_page) = 0;

  // Waits for everything submitted.
  virtual Status wait() = 0;
  // Ends the pass: waits also until its keys and values are kept. A pass that is given up is not
  // ended.
  virtual Status end_pass() = 0;
  // Returns a row as the last wait() left it, valid until the next operator.
  virtual std::span<const float> read_row(Buffer from, std::uint32_t row) = 0;
};

}  // namespace qsf

#endif  // QSF_OPS_BACKEND_H_
