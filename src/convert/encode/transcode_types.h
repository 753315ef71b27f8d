// SPDX-License-Identifier: MIT
//
// The weight type of every tensor: presets of --quant-type, and formats of single matrices.

#ifndef QSF_CONVERT_ENCODE_TRANSCODE_TYPES_H_
#define QSF_CONVERT_ENCODE_TRANSCODE_TYPES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/qsf_layout.h"
#include "quant/block_format.h"

namespace qsf {

// A value of --quant-type:
//
//   a type   every matrix of the layers in that type. Token embedding and head have the type in the
//            column `placement` of quant/weight_types.h: the same type, or 4 or 6 bits beside 2 and
//            3 bits, because every token reads them
//   mixed    Q, K, V, gate and up 2-bit; attention output, down, embedding and head 4-bit. Each
//            matrix is measured and widened (q2_k, 3bit-table, 4bit-super of 32 columns, q5_k,
//            q6_k, 8bit) until its cosine with the original reaches 0.99
//   keep     the weights of the input, bit for bit, in a type that holds them exactly; 8-bit where
//            there is none
//
// With ternary, mixed and keep a natively ternary matrix gets one scale per row and stays exact.
//
// In mixed, attention output is 4-bit because, like down, it writes into the residual stream, where
// no norm follows before the next layers read it. Position embeddings are f16 with every coded
// type: they are small, and every token reads one. Norms and biases (one row) are f32 unless f16
// holds them exactly.
class QuantPreset {
 public:
  constexpr QuantPreset(QuantType type) noexcept  // NOLINT: a type is a preset
      : kind_(Kind::kType), type_(type) {}
  static const QuantPreset kMixed;
  static const QuantPreset kKeep;

  // The type, nothing for mixed and keep.
  constexpr std::optional<QuantType> type() const noexcept {
    return kind_ == Kind::kType ? std::optional(type_) : std::nullopt;
  }
  friend constexpr bool operator==(QuantPreset, QuantPreset) noexcept = default;

 private:
  enum class Kind : std::uint8_t { kType, kMixed, kKeep };
  constexpr explicit QuantPreset(Kind kind) noexcept : kind_(kind), type_(QuantType::kQ8) {}

  Kind kind_;
  QuantType type_;
};

inline constexpr QuantPreset QuantPreset::kMixed{Kind::kMixed};
inline constexpr QuantPreset QuantPreset::kKeep{Kind::kKeep};

// Returns every preset: the types in the order of quant/weight_types.h, mixed, keep.
std::vector<QuantPreset> all_quant_presets();

// Returns the name on the command line, and back; nothing for an unknown name.
std::string_view quant_preset_name(QuantPreset preset) noexcept;
std::optional<QuantPreset> find_quant_preset(std::string_view name);

// Returns the type of a matrix of that kind, before anything is measured or kept.
QuantType preset_type(QuantPreset preset, TensorKind kind) noexcept;

// Returns the default type of the whole file, nothing for mixed and keep.
std::optional<QuantType> preset_default_type(QuantPreset preset) noexcept;

// Returns the format of such a matrix. `block` applies to types whose block is not fixed, but not
// to mixed, which has blocks of its own.
BlockFormat preset_format(QuantPreset preset, TensorKind kind, std::uint32_t block) noexcept;

// Returns the next wider format that mixed tries, or nothing after the last.
std::optional<BlockFormat> wider_format(BlockFormat format) noexcept;

// The format of single matrices, overriding the preset.
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
