// SPDX-License-Identifier: MIT
//
// Profile of passes: time, bytes and operations of each kind of operator.

#ifndef QSF_OPS_OPERATOR_TIMES_H_
#define QSF_OPS_OPERATOR_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qsf {

enum class OperatorKind : std::uint8_t {
  kUpload,        // rows of the embedding, copied in
  kNorm,          // with the quantisation of what it wrote
  kInputRows,     // activations quantised for products
  kQkv,           // product
  kRope,          // rotation angles included
  kClamp,         // queries, keys and values, of the models that clamp them
  kScale,         // rows times factors of their own
  kStoreKv,       // keys and values into the cache
  kState,         // convolutions of layers with a state, and their gates
  kAttend,        // attention over the cache
  kAttentionOut,  // product, with the residual sum
  kRouter,        // product, the scores of experts
  kGuess,         // product, the scores of a later layer's experts
  kGather,        // rows of an expert, copied
  kAdapters,      // products with the narrow matrices of adapters
  kGateUp,        // product, with the activation; of the up projection alone without a gate
  kDown,          // product, with the residual sum
  kResidual,      // residual sums apart from products, behind a norm
  kHead,          // product
};
inline constexpr std::size_t kOperatorKinds = static_cast<std::size_t>(OperatorKind::kHead) + 1;

struct OperatorTimes {
  std::uint64_t calls = 0;
  std::uint64_t ns = 0;          // from submission to completion, all workers together
  std::uint64_t bytes = 0;       // of weights (products) or keys and values (attention) read
  std::uint64_t operations = 0;  // multiplications and additions of products and attention
};

// Counters since the backend was made, by kind. The difference of two profiles the time between.
class OperatorProfile {
 public:
  OperatorTimes& operator[](OperatorKind kind) noexcept {
    return times_[static_cast<std::size_t>(kind)];
  }
  const OperatorTimes& operator[](OperatorKind kind) const noexcept {
    return times_[static_cast<std::size_t>(kind)];
  }

  // Nanoseconds of all products, and of all operators.
  std::uint64_t product_ns() const noexcept;
  std::uint64_t total_ns() const noexcept;

 private:
  std::array<OperatorTimes, kOperatorKinds> times_{};
};

constexpr bool is_product(OperatorKind kind) noexcept {
  return kind == OperatorKind::kQkv || kind == OperatorKind::kAttentionOut ||
         kind == OperatorKind::kRouter || kind == OperatorKind::kGuess ||
         kind == OperatorKind::kGateUp || kind == OperatorKind::kDown ||
         kind == OperatorKind::kHead;
}

// Returns "norm", "input rows", "gate and up" ... for people.
std::string_view operator_name(OperatorKind kind) noexcept;

}  // namespace qsf

#endif  // QSF_OPS_OPERATOR_TIMES_H_
