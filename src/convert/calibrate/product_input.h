// SPDX-License-Identifier: MIT
//
// ProductInput: the rows that matrices multiply, by place in a layer. Matrices of one place read
// the same rows, so what is known of these is known once for all of them.

#ifndef QSF_CONVERT_CALIBRATE_PRODUCT_INPUT_H_
#define QSF_CONVERT_CALIBRATE_PRODUCT_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "ops/operator_times.h"

namespace qsf {

enum class ProductInput : std::uint8_t {
  kQkv = 0,           // of attn_q, attn_k and attn_v
  kAttentionOut = 1,  // of attn_o
  kGateUp = 2,        // of ffn_gate and ffn_up
  kDown = 3,          // of ffn_down
  kHead = 4,          // of the head, or of a token embedding that is the head
};
inline constexpr std::size_t kInputsPerLayer = 4;  // all but the head's

// Returns what a matrix of that kind multiplies; nothing for what is looked up and for one-row
// tensors.
std::optional<ProductInput> product_input_of(TensorKind kind, bool tied_head) noexcept;
// The same of a product; nothing for other operators.
std::optional<ProductInput> product_input_of(OperatorKind kind) noexcept;

// Returns the columns of these rows.
std::uint32_t input_cols(const ModelSpec& spec, ProductInput input) noexcept;

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_PRODUCT_INPUT_H_
