// SPDX-License-Identifier: MIT
//
// OperatorObserver: is called at the end of every operator of a backend, with its kernels, to trace
// values or to prove which kernels ran. Without an observer it costs one comparison per operator.

#ifndef QSF_OPS_OPERATOR_OBSERVER_H_
#define QSF_OPS_OPERATOR_OBSERVER_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/backend.h"

namespace qsf {

// The part of a product computed with one kernel for one target.
struct ProductPart {
  std::string_view prompt_kernel;  // of prompt rows; empty: there were none
  std::string_view other_kernel;   // of the other rows; empty: there were none
  BlockFormat format{};
  std::uint32_t target = 0;  // index into MatmulArgs::targets
  std::uint32_t n_rows = 0;  // weight rows of this call
  std::uint32_t n_cols = 0;
  std::uint64_t bytes = 0;  // of weights
};

// One completed operator.
struct OperatorEvent {
  static constexpr std::uint32_t kNoLayer = 0xFFFFFFFFU;

  OperatorKind kind = OperatorKind::kNorm;
  std::uint64_t start_ns = 0;  // of the monotonic clock
  std::uint64_t ns = 0;
  std::uint32_t layer = kNoLayer;  // of attention and of storing keys and values alone
  std::uint32_t n_rows = 0;        // rows of activations
  std::string_view kernel;         // of other operators than products; empty: no kernel of its own
  Buffer in;                       // of a residual sum: what was added
  Buffer out;                      // of a product: the first target's
  bool listed = false;             // a norm of listed rows: the one in front of the head
  const MatmulArgs* product = nullptr;  // products alone
  std::span<const ProductPart> parts;   // products alone: its parts
};

class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;

  // `rows` are those of the pass that begins.
  virtual void pass_began(std::span<const Row> rows) = 0;
  // Called on the thread of the pass, in order. Buffers may be read, and rows uploaded, which is an
  // operator of its own; `event` and what it points to are valid only during the call. A matrix may
  // arrive in several products.
  virtual void operator_ended(Backend& backend, const OperatorEvent& event) = 0;
  // Called likewise where the rows of `hidden`, the residual stream, are what `layer` reads: in
  // front of the first layer of a pass and behind each.
  virtual void layer_reached(Backend& /*backend*/, std::uint32_t /*layer*/, Buffer /*hidden*/) {}
};

}  // namespace qsf

#endif  // QSF_OPS_OPERATOR_OBSERVER_H_
