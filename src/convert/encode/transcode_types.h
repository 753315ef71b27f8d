// SPDX-License-Identifier: MIT
//
// Which weight type a conversion gives to which tensor.

#ifndef QSF_CONVERT_ENCODE_TRANSCODE_TYPES_H_
#define QSF_CONVERT_ENCODE_TRANSCODE_TYPES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "format/qsf_layout.h"
#include "quant/types.h"

namespace qsf {

// What a user asks for:
//
//   f32 f16 bf16 8bit 4bit 3bit   every matrix in that type
//   4bit-super 3bit-super         the same in super-blocks
//   2bit 2bit-sym                 layers 2-bit asymmetric or symmetric; token embedding and head
//                                 4-bit
//   2bit-super                    layers 2-bit, token embedding and head 4-bit, in super-blocks
//   4bit-table                    every matrix in super-blocks whose codes are numbers of levels
//   3bit-table 2bit-table         layers likewise, token embedding and head 4bit-table
//   q6_k q5_k                     every matrix in the form that GGUF's type of that name has
//   q3_k q2_k                     layers likewise, token embedding and head q6_k
//   ternary ternary-row           layers ternary; token embedding and head 4-bit
//   mixed     Q, K, V, gate and up 2-bit; attention output, down, embedding and head 4-bit. Each is
//             measured and widened (q2_k, 3bit-table, 4bit-super of 32 columns, q5_k, q6_k, 8bit)
//             until its cosine with the original reaches 0.99.
//   keep      what the input holds, bit for bit, in a type that can hold it exactly; 8-bit where
//             there is none
//
// With ternary, mixed and keep a natively ternary matrix gets one scale a row and stays exact.
//
// Attention output is 4-bit because, like down, it writes into the residual stream, where no norm
// follows before the next layers read it. Position embeddings are f16 with every coded type: they
// are small, and every token reads one. Norms and biases (one row) are f32 unless f16 holds them
// exactly.
enum class QuantPreset {
  kF32,
  kF16,
  kBF16,
  k8Bit,
  k4Bit,
  k3Bit,
  k2Bit,
  k2BitSym,
  kTernary,
  kTernaryRow,
  k4BitSuper,
  k3BitSuper,
  k2BitSuper,
  k4BitCodebook,
  k3BitCodebook,
  k2BitCodebook,
  kQ6K,
  kQ5K,
  kQ3K,
  kQ2K,
  kMixed,
  kKeep,
};

// Returns the name on the command line, and back; nothing for an unknown name.
std::string_view quant_preset_name(QuantPreset preset) noexcept;
std::optional<QuantPreset> find_quant_preset(std::string_view name) noexcept;

// Returns the type of a matrix of that kind, before anything is measured or kept.
QuantType preset_type(QuantPreset preset, TensorKind kind) noexcept;

// Returns the default type of the whole file, nothing for mixed and keep.
std::optional<QuantType> preset_default_type(QuantPreset preset) noexcept;

// Returns the format of such a matrix; `block` is that of the types that leave a choice, but with
// mixed, which has blocks of its own.
BlockFormat preset_format(QuantPreset preset, TensorKind kind, std::uint32_t block) noexcept;

// Returns whether codes are -1, 0 and 1 times a scale.
constexpr bool is_ternary(QuantType type) noexcept {
  return type == QuantType::kTernary || scale_form(type) == ScaleForm::kRow;
}

// Returns the next wider format that mixed tries, or nothing behind the last.
std::optional<BlockFormat> wider_format(BlockFormat format) noexcept;

// TensorFormats: the format of each matrix by itself, where a conversion is told.

class TensorFormats {
 public:
  // Sets the format of one matrix; `layer` is 0 outside layers.
  // Fails  kInvalidArgument on a format that no file may hold
  Status set(TensorKind kind, std::uint32_t layer, BlockFormat format);

  // Returns what was set for that matrix, if anything.
  // Threads  any number at once, while nobody sets
  std::optional<BlockFormat> find(TensorKind kind, std::uint32_t layer) const;

 private:
  std::map<std::pair<TensorKind, std::uint32_t>, BlockFormat> formats_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_TRANSCODE_TYPES_H_
