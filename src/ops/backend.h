// SPDX-License-Identifier: MIT
//
// The backend: the memory of a pass's rows and the operators on them.
//
// A backend owns its memory (activations, keys and values) behind handles, because memory of a GPU
// has no address here. Operators are submitted in order and may run later; wait() completes
// everything submitted and returns the first error. The CPU backend runs operators at once.
//
// Operators read their arguments, the values to upload and all lists in them when they are
// submitted. What else they point to (gains, biases, slopes, bytes of tiles) stays unchanged until
// they are complete. docs/adding-a-backend.md has the contract as a whole.
//
// Rows have roles. Prompt rows come first in a pass, generated and drafted rows after them.
// Products take prompt rows through the prompt kernels and the others through the decode kernels,
// so that the numbers of a row do not depend on the other rows of its pass (batch invariance).

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
#include "base/submitted_work.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/kv_policy.h"
#include "kv/row.h"
#include "kv/sparse_prefill_state.h"
#include "kv/state_cache.h"
#include "ops/operator_times.h"
#include "quant/kv_heads.h"
#include "quant/kv_type.h"
#include "quant/weight_tile.h"

namespace qsf {

inline constexpr std::uint32_t kMaxHeadDim =
    1024;  // columns of a head; attention keeps one on the stack

// A matrix of f32 rows in a backend's memory. Copyable handle; lives as long as the backend.
struct Buffer {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  std::uint32_t id = kNone;
};

// The rows of a buffer that an operator works on: the first n_rows, prompt rows before the others.
struct RowCounts {
  std::uint32_t n_prompt = 0;
  std::uint32_t n_rows = 0;  // prompt rows included
};

// Sparse prefill (cpu_sparse_attention.h).
struct SparsePrefillLimits {
  SparsePrefillOptions options;  // on
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
};

// H2O eviction (cpu_sparse_attention.h).
struct H2oEvictionLimits {
  std::uint32_t n_slots = 0;  // as in H2oEvictionShape, as n_recent
  std::uint32_t n_recent = 1;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
};

// Drafted rows. VisibleSet::ancestors may be set with them.
struct DraftLimits {
  std::uint32_t max_drafts = 1;  // rows of a sequence behind its generated one
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
};

// The largest pass a backend has to serve; its scratch follows from it.
struct PassLimits {
  std::uint32_t max_rows = 1;         // rows of a pass
  std::uint32_t max_decode_rows = 1;  // of these, generated or drafted
  std::uint32_t max_context = 1;      // positions of a sequence
  std::uint32_t window = 0;           // most slots behind the sinks that a row attends to; 0: all
  std::uint32_t sinks = 0;            // with a window
  bool rope_reindex = false;          // StreamingLLM: sinks are rotated to their cache position
  std::uint32_t n_heads = 1;
  std::uint32_t n_kv_heads = 1;
  std::uint32_t head_dim = 1;
  // Those of each layer with keys and values, where they differ; outlive the backend. The two above
  // are the most of any then, and rope_dims as well. Without sparse_prefill and h2o_eviction.
  std::span<const KvHeads> heads_by_layer = {};
  std::uint32_t rope_dims = 0;  // 0: no rotation
  std::uint32_t n_rotations = 1;
  std::uint32_t max_cols = 0;    // of a row that a product reads
  bool keys_are_values = false;  // KvShape's; without sparse_prefill and h2o_eviction
  std::optional<SparsePrefillLimits> sparse_prefill = std::nullopt;
  std::optional<H2oEvictionLimits> h2o_eviction = std::nullopt;  // without sparse_prefill
  std::optional<DraftLimits> drafts = std::nullopt;              // without either
};

// The position of a query to its sinks under PassLimits::rope_reindex: its cache position, behind
// the sinks and the window.
constexpr std::uint32_t cache_position_behind_sinks(const PassLimits& limits) noexcept {
  return limits.sinks + limits.window - 1;
}

// RoPE: rotation by position * inverse_frequencies[i], with cos and sin multiplied by
// `factor`. At the first `rounded_positions` the product is rounded to f32, as in training.
struct Rotation {
  std::span<const float> inverse_frequencies;  // [rope_dims / 2], fewer of narrower heads
  float factor = 1.0F;
  std::uint32_t rounded_positions = UINT32_MAX;
  std::uint32_t head_dim = 0;  // of the heads that it rotates; 0: PassLimits::head_dim
};

// The output of one weight matrix: weight row r becomes column r - first_weight_row of `out`, and
// row i of the input becomes row first_row + i.
struct MatmulTarget {
  Buffer out;
  std::uint32_t first_row = 0;
  std::uint32_t first_weight_row = 0;
  std::span<const float> bias;  // [rows of the matrix] or empty
  // With fused_gate_up: weight rows computed by earlier calls. Tiles may arrive in any portions,
  // each matrix's in ascending order.
  std::uint32_t n_rows_done = 0;
  std::uint32_t adapted = 0;  // number of the matrix in AdapterProducts
};

// A matrix of n_parts matrices of n_rows rows each, one behind the other, each of which multiplies
// columns of its own: those of part p from p * in_stride on. Its outputs go to the columns of the
// target from out_first + p * out_stride on.
struct MatmulParts {
  std::uint32_t n_parts = 0;  // 0: an ordinary matrix
  std::uint32_t n_rows = 0;   // a multiple of 16
  std::uint32_t in_stride = 0;
  std::uint32_t out_first = 0;
  std::uint32_t out_stride = 0;
};
// Columns from one part to the next of an input that parts are copied to, which is zero between
// them, for parts of n_cols columns.
constexpr std::uint32_t part_stride(std::uint32_t n_cols) noexcept {
  return (n_cols + kColumnAlign - 1) / kColumnAlign * kColumnAlign;
}
// At least as wide a row for PassLimits::max_cols, since each part has scales of its own.
constexpr std::uint32_t part_columns(std::uint32_t n_parts, std::uint32_t n_cols) noexcept {
  return n_parts * (part_stride(n_cols) + 2 * kColumnAlign);
}

// What an adapter adds to the product of one matrix [n_rows, n_cols]: scale * B (A x).
struct LowRankPair {
  // A [rank, n_cols], row-major, and B in groups of 16 rows, [n_rows / 16, rounded up][rank][16];
  // null: this adapter leaves the matrix as it is.
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::uint32_t rank = 0;
  float scale = 1.0F;
  bool halves = false;  // values are f16, else f32
};

// What adapters add to products that share their input. Rows of a pass without an adapter gain
// nothing, the others what Row::adapter_scale times their adapter's pairs give.
struct AdapterProducts {
  // [n_matrices] of each adapter, from Row::adapter = 1 on; empty: no row has an adapter. Matrix i
  // is that of the targets whose `adapted` is i.
  std::span<const LowRankPair> pairs;
  std::uint32_t n_matrices = 0;
  Buffer products;  // [rows, n_matrices * max_rank]: scale * A x
  std::uint32_t max_rank = 0;
  // The rows of the pass that the rows of `in` are; empty: the same.
  std::span<const std::uint32_t> pass_rows;

  // Requires  adapter > 0
  const LowRankPair& pair(std::uint32_t adapter, std::uint32_t matrix) const noexcept {
    return pairs[std::size_t{adapter - 1} * n_matrices + matrix];
  }
};

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };
enum class ActivationKind : std::uint8_t {
  kGeluTanh,
  kGeluErf,
  kSilu,
  kRelu,
  kReluSquared,
  kSwishClamped,  // with fused_gate_up alone: the product with `up` is part of it
  kSigmoid,       // of Backend::gate() alone
};

// Epilogue of a product: applied by the worker that computed the outputs, in the order of the
// members, after adapters and bias.
struct MatmulEpilogue {
  // out = act(out); with fused_gate_up, gate = act(gate) * up.
  std::optional<ActivationKind> activation;
  bool fused_gate_up = false;
  float scale = 1.0F;     // out = scale * out
  float soft_cap = 0.0F;  // out = soft_cap * tanh(out / soft_cap); 0: off
  Buffer add_to;          // add_to += out, at the same row and column; none: off
};

struct MatmulArgs {
  OperatorKind kind = OperatorKind::kQkv;
  Buffer in;
  RowCounts rows;
  std::span<const std::uint32_t>
      row_list;  // rows of `in` and `out` to compute, ascending; empty: all
  std::span<const WeightTile>
      tiles;  // at most kMaxMatmulTiles; bytes stay until their work is complete
  std::span<const MatmulTarget> targets;
  AdapterProducts adapters;  // those of multiply_low_rank() on the same input
  MatmulEpilogue epilogue;   // fused_gate_up: two targets, gate and up, no row_list
  static constexpr std::uint32_t kNoExpert = 0xFFFFFFFFU;
  std::uint32_t expert = kNoExpert;  // whose matrices these are; for observers
  std::uint32_t section = 0;         // of the file that they are in; for observers
  // The model has int8 activations with one scale a row (kernels/quantise/quantise.h row_to_int8);
  // this overrides the engine's choice. With float weights a backend may leave `in` rounded to
  // them.
  bool int8_rows = false;
  // One target without bias, and no row_list, adapters, epilogue or int8_rows. Requires  in_stride
  // as part_stride()
  MatmulParts parts = {};
};
inline constexpr std::size_t kMaxMatmulTiles = 128;

struct NormArgs {
  Buffer in;
  Buffer out;
  std::span<const std::uint32_t>
      row_list;                 // rows of `in`; row i of `out` is the norm of row_list[i]
  std::uint32_t n_rows = 0;     // with an empty row_list: rows 0 .. n_rows - 1 in place
  std::uint32_t n_cols = 0;     // normalised together
  std::uint32_t first_col = 0;  // of both buffers
  // Neighbouring parts of n_cols columns, each normalised on its own: the heads of queries or keys.
  // Requires  n_parts * n_cols is at most the buffers' widths
  std::uint32_t n_parts = 1;
  NormKind kind = NormKind::kRmsNorm;
  float epsilon = 0.0F;
  std::span<const float> gain;  // [n_cols], or of each part [n_parts, n_cols]
  std::span<const float> bias;  // [n_cols] or empty; LayerNorm alone
};

struct AttendArgs {
  std::uint32_t layer = 0;
  Buffer q;    // [rows, n_heads * head_dim]
  Buffer out;  // the same shape
  // The same queries after rope_at_cache_position(); under PassLimits::rope_reindex alone.
  Buffer q_sinks = {};
  float scale = 1.0F;
  // Positions a row attends to, itself included; 0: all before it. Under rope_reindex distances to
  // the sinks are counted by cache position.
  std::uint32_t window = 0;
  // A window is the row's chunk: from the last multiple of its length on. Without rope_reindex
  bool chunked = false;
  // Rows see later positions too. A window has as many to each side, its own included; neither
  // chunked nor rope_reindex
  bool bidirectional = false;
  float soft_cap = 0.0F;  // scores become soft_cap * tanh(score / soft_cap); 0: off
  // [n_heads] of ALiBi: slope * (key's position - row's position) is added to a score; empty: none
  std::span<const float> slopes;
  // Both products are in bf16, positions too, and their difference is times `scale`.
  bool bf16_biases = false;
  // [n_heads] scores that take weight as a position would and have no value; neither scaled nor
  // capped, and inside every window; empty: none
  std::span<const float> sink_scores;

  // The window of a row at `position`.
  std::uint32_t window_at(std::int32_t position) const noexcept {
    if (!chunked || window == 0) return window;
    return static_cast<std::uint32_t>(position) % window + 1;
  }
};

// Columns of buffers: width neighbours from `first` on.
struct BufferColumns {
  Buffer buffer;
  std::uint32_t first = 0;
};

// Columns of each part of a row: from first + p * stride on.
struct PartColumns {
  Buffer buffer;
  std::uint32_t first = 0;
  std::uint32_t stride = 0;
};

// A causal convolution of every channel over the rows of its sequence; those before the pass are in
// the sequence's state.
struct ConvolveArgs {
  std::uint32_t layer = 0;  // among those with a state
  BufferColumns in;         // [rows, n_channels]
  Buffer out;               // the same shape, from column 0 on; another buffer
  std::uint32_t n_channels = 0;
  std::uint32_t n_taps = 0;
  std::span<const float> taps;  // [n_taps, n_channels], the oldest row's first
  std::span<const float> bias;  // [n_channels] or empty
  std::optional<ActivationKind> activation;
};

// A selective scan over the rows of each sequence, Mamba-2's. With the columns x [heads][head_dim],
// B and C [groups][n_state] of a row, d = softplus(time step + bias) and h the head's state,
//   h[n][p] = exp(d * decay) h[n][p] + d x[p] B[n]
//   out[p] = skip x[p] + sum over n of h[n][p] C[n]
struct ScanArgs {
  std::uint32_t layer = 0;  // among those with a state
  Buffer in;                // [rows, heads * head_dim + 2 * groups * n_state]: x, B, C
  BufferColumns time_step;  // [rows, heads]
  Buffer out;               // [rows, heads * head_dim]
  std::uint32_t n_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t n_state = 0;
  std::uint32_t n_groups = 1;
  std::uint32_t state_at = 0;                // where the heads' states begin in that of the layer
  std::span<const float> decay, bias, skip;  // [heads]
};

// A gated delta rule over the rows of each sequence. With the columns q and k [groups][n_state] of
// length 1, v [heads][head_dim], r = sigmoid(rate), d = softplus(time step + bias) and S the head's
// state,
//   S[p] *= exp(d * decay);  S[p] += r (v[p] - S[p] . k) k;  out[p] = S[p] . q / sqrt(n_state)
// `in`, `rate` and `time_step` are overwritten.
struct DeltaRuleArgs {
  std::uint32_t layer = 0;  // among those with a state
  Buffer in;                // [rows, 2 * groups * n_state + heads * head_dim]: q, k, v
  Buffer rate;              // [rows, heads]
  Buffer time_step;         // the same shape
  Buffer out;               // [rows, heads * head_dim]
  std::uint32_t n_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t n_state = 0;
  std::uint32_t n_groups = 1;
  bool heads_in_turn = false;  // head h is of group h mod groups, else groups are neighbours
  std::uint32_t state_at = 0;  // where the heads' states begin in that of the layer
  std::span<const float> decay, bias;  // [heads]
};

// Residual streams that lie side by side in a row, X_0 .. X_S-1. Routers read `normed`:
//   m[k] = tanh(router[k] . normed / n_cols)
struct StreamArgs {
  Buffer streams;  // [rows, n_streams * n_cols]
  Buffer normed;   // [rows, n_cols]
  Buffer active;   // the same shape; of correct_streams() alone
  std::uint32_t n_streams = 0;
  std::uint32_t n_cols = 0;
  std::span<const float> router;   // [n_streams, n_cols]
  std::span<const float> factors;  // [n_streams, n_streams, n_streams] or [n_streams, n_streams]
  std::span<const float> scale;    // [n_cols]; of correct_streams() alone
};
inline constexpr std::uint32_t kMaxStreams = 8;

class OperatorObserver;  // operator_observer.h

class Backend : public SubmittedWork {
 public:
  virtual ~Backend() = default;

  virtual std::string_view instruction_set() const noexcept = 0;
  // Returns a line for each kernel in use, "matmul 4bit/64 i8: matmul_q4g64_i8_scalar", for people.
  virtual std::string describe() const = 0;
  virtual const OperatorProfile& profile() const noexcept = 0;
  // Reports every operator from the next pass on to `observer`, which outlives the backend; null
  // ends that.
  virtual void set_observer(OperatorObserver* observer) noexcept = 0;

  // Memory: the engine asks for the sizes, plans them, and passes the memory in once.
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
  // The states of limits.sparse_prefill, by SequenceId. Passes change them; after an incomplete
  // pass the caller truncates them.
  // Requires  states outlive the backend, one for each sequence; no layer has a window shorter than
  //           the context; rows of a sequence lie behind each other and continue its state
  virtual void attach_sparse_prefill(std::span<SparsePrefillState> states) = 0;
  // The same for limits.h2o_eviction.
  virtual void attach_h2o_eviction(std::span<H2oEviction> evictions) = 0;
  // The states of layers that have one. The caller begins and commits their passes.
  // Requires  the cache outlives the backend; rows of a sequence lie behind each other
  virtual void attach_states(StateCache& states) = 0;

  // Starts a pass. `rows` (prompt rows first), `kv` and `rotations` stay unchanged until its last
  // wait(). Requires  PassLimits::n_rotations rotations, or none where nothing rotates
  // When `cancel`, which may be null, becomes true, operators may skip work; their results are void
  // then.
  virtual void begin_pass(std::span<const Row> rows, const KvCache& kv,
                          std::span<const Rotation> rotations, const std::atomic<bool>* cancel) = 0;

  // Tells an observer that the rows of `hidden` are what `layer` reads: in front of the first layer
  // of a pass and behind each.
  virtual void reach_layer(std::uint32_t /*layer*/, Buffer /*hidden*/) {}

  // Operators over the rows of the pass; widths are those of the buffers unless named.
  virtual void upload_row(Buffer to, std::uint32_t row, std::span<const float> values) = 0;
  virtual void norm(const NormArgs& args) = 0;
  // Returns the ticket after which the tiles are no longer read. Tiles with an id are those of one
  // pager.
  virtual Ticket matmul(const MatmulArgs& args) = 0;
  // products[row][matrix * max_rank + r] = scale * (A x)[r] of the first n_rows rows of `in`, for
  // every matrix that the row's adapter changes. One call serves all tiles of those matrices.
  virtual void multiply_low_rank(Buffer in, std::uint32_t n_rows, std::uint32_t n_cols,
                                 const AdapterProducts& adapters) = 0;
  // Rotates as many columns of each head as the rotation has frequencies for, the first ones; the
  // others are unchanged. `rotation` is an index into those of the pass.
  virtual void rope(Buffer x, std::uint32_t n_heads, std::uint32_t rotation) = 0;
  // Copies queries before their rotation and rotates the copy to its cache position behind the
  // sinks, if a row of the pass needs it. Requires  PassLimits::rope_reindex
  virtual void rope_at_cache_position(Buffer from, Buffer to, std::uint32_t n_heads,
                                      std::uint32_t rotation) = 0;
  // Multiplies row i of the pass by factors[i].
  virtual void scale_rows(Buffer x, std::span<const float> factors) = 0;
  virtual void clamp(Buffer x, float limit) = 0;  // every value to [-limit, limit]
  // Where keys are values, v is not read.
  virtual void store_kv(std::uint32_t layer, Buffer k, Buffer v) = 0;
  virtual void attend(const AttendArgs& args) = 0;
  virtual void add(Buffer to, Buffer from) = 0;  // to += from
  // Columns of `to` gain as many columns of `from`.
  virtual void add_columns(BufferColumns to, BufferColumns from, std::uint32_t n_cols) = 0;
  virtual void clear(Buffer x) = 0;  // the rows of the pass become 0
  // Columns of `to` are multiplied by as many columns of `by`.
  virtual void multiply(BufferColumns to, BufferColumns by, std::uint32_t n_cols) = 0;
  // Copies n_cols columns of each of n_parts parts. Requires  different buffers
  virtual void copy_parts(const PartColumns& from, const PartColumns& to, std::uint32_t n_parts,
                          std::uint32_t n_cols) = 0;
  // The state behind the pass then has the last n_taps - 1 rows of each sequence, oldest first.
  // Requires  attach_states()
  virtual void convolve(const ConvolveArgs& args) = 0;
  // Requires  attach_states()
  virtual void scan(const ScanArgs& args) = 0;
  // Requires  attach_states()
  virtual void delta_rule(const DeltaRuleArgs& args) = 0;
  // Columns of `gate` become activation(gate) * by.
  virtual void gate(BufferColumns gate, BufferColumns by, std::uint32_t n_cols,
                    ActivationKind activation) = 0;
  // X_i += sum over j of (sum over k of factors[i][j][k] m[k]) X_j, all at once.
  virtual void predict_streams(const StreamArgs& args) = 0;
  // X_i += (1 + sum over k of factors[i][k] m[k]) (active - X_0), all at once; then active = scale
  // times X_0.
  virtual void correct_streams(const StreamArgs& args) = 0;
  // Rows of x, n_cols wide, get the length of columns of `like`; those whose mean square is below
  // 1e-5 are scaled as if it were that.
  virtual void match_length(Buffer x, BufferColumns like, std::uint32_t n_cols) = 0;
  // Gaussian top-k: values become what they have above the mean and so many standard deviations of
  // the first n_cols columns of their row, at least 0.
  virtual void cut(Buffer x, std::uint32_t n_cols, float deviations) = 0;
  // The rows of an expert: row i of `to` becomes factors[i] times row rows[i] of `from`, and row
  // rows[i] of `to` gains factors[i] times row i of `from`, which is scaled in place. Without
  // factors they are 1. Requires  buffers of equal widths; rows ascend
  virtual void gather_rows(Buffer from, Buffer to, std::span<const std::uint32_t> rows,
                           std::span<const float> factors) = 0;
  virtual void add_to_rows(Buffer to, Buffer from, std::span<const std::uint32_t> rows,
                           std::span<const float> factors) = 0;
  // Copies a page of every layer, when a forked sequence appends to it.
  virtual void copy_page(std::uint32_t from_page, std::uint32_t to_page) = 0;
  // Moves rows of every layer between two passes: accepted drafts to the end of their sequence
  // (KvCache::commit_path). Requires  at most kMaxDrafts moves
  virtual void move_rows(std::span<const RowMove> moves) = 0;

  // Completes everything submitted. Fails  as status()
  virtual Status wait() = 0;
  // Returns the first error of the pass that is known without waiting.
  virtual Status status() const = 0;
  // Ends the pass: waits until its keys and values are stored. An incomplete pass is not ended.
  virtual Status end_pass() = 0;
  // Returns a row as the last wait() left it, valid until the next operator.
  virtual std::span<const float> read_row(Buffer from, std::uint32_t row) = 0;
  // Writes the first columns of such a row as the products of generated rows with weights of
  // `format` multiply them: the values that its codes stand for, or its own. Returns false where
  // that is not known. Shapes  values [at most the buffer's columns]
  virtual bool read_operand(Buffer /*from*/, std::uint32_t /*row*/, BlockFormat /*format*/,
                            std::span<float> /*values*/) {
    return false;
  }
};

}  // namespace qsf

#endif  // QSF_OPS_BACKEND_H_
