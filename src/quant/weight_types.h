// SPDX-License-Identifier: MIT
//
// The weight types of a .qsf file: one row per type, from which sizes, codecs, presets, reference
// kernels and random models are derived.
//
// To add a type: a number in QuantType, a row in the table, and code for what is new about it (a
// scale form, a code width, a codebook).
//
// Kernels evaluate everything here at compile time: objects of one instruction set may define no
// inline function.

#ifndef QSF_QUANT_WEIGHT_TYPES_H_
#define QSF_QUANT_WEIGHT_TYPES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

namespace qsf {

// Part of the file format: a number once released never changes its meaning. Missing numbers are
// explained in docs/format-blocks.md.
enum class QuantType : std::uint8_t {
  kQ2S = 0,      // 2-bit symmetric:   w = scale * (code - 1.5)
  kQ2A = 1,      // 2-bit asymmetric:  w = scale * code + min
  kQ3 = 2,       // 3-bit:             w = scale * code + min
  kQ4 = 3,       // 4-bit:             w = scale * code + min
  kTernary = 4,  // ternary:           w = scale * (code - 1), code in 0 .. 2
  kF32 = 6,
  kF16 = 7,
  kBF16 = 8,
  kQ8 = 9,             // 8-bit:        w = scale * code, code in -127 .. 127
  kQk256 = 10,         // qk256:        w = -2, -1, 1, 2 for codes 0 .. 3; no scale
  kTernaryBase3 = 11,  // ternary-base3: as ternary-row, 5 codes in a byte; in files only
  kTernaryRow = 12,    // ternary-row:  w = scale * (code - 1), one f32 scale per row
  kQ2K = 13,           // q2_k:         w = (d * scale) * code + (dmin * min), fields of 4 bits
  kQ3K = 14,           // q3_k:         w = (d * scale) * (code - 4), a signed 8-bit scale
  kQ5K = 15,           // q5_k:         w = (d * scale) * code + (dmin * min), fields of 6 bits
  kQ6K = 16,           // q6_k:         w = (d * scale) * (code - 32), a signed 8-bit scale
  kMxfp4 = 17,         // mxfp4:        w = 2^(exponent - 128) * level[code]
  kQ2Super = 32,       // 2bit-super:   w = (d * scale) * code + (dmin * min), fields of 6 bits
  kQ3Super = 33,       // 3bit-super:   the same
  kQ4Super = 34,       // 4bit-super:   the same
  kQ2Codebook = 35,    // 2bit-table:   w = (d * scale) * level[code], a signed 4-bit scale
  kQ3Codebook = 36,    // 3bit-table:   the same
  kQ4Codebook = 37,    // 4bit-table:   the same, a signed 6-bit scale
  kQ2Trellis = 38,     // 2bit-trellis: w = d * scale * (value - 31.5), d of the row, an unsigned
                       //               4-bit scale; value: quant/trellis.h
  kQ3Trellis = 39,     // 3bit-trellis: the same
};

// Where the scales of a type are stored.
enum class ScaleForm : std::uint8_t {
  kNone,           // floats and qk256
  kBlock,          // one f16 scale per block
  kBlockMin,       // one f16 scale and one f16 min per block
  kRow,            // one f32 scale per row
  kRowNibble,      // one f32 per row, an unsigned 4-bit scale per block
  kSuperBlock,     // a 6-bit scale and a 6-bit min per block, two f16 per super-block
  kSuperNibble,    // a 4-bit scale and a 4-bit min per block, two f16 per super-block
  kSuperSigned,    // a signed 8-bit scale per block, one f16 per super-block
  kSuperCodebook,  // a signed scale of 4 bits (blocks of 16) or 6 bits (blocks of 32), one f16
  kExponent        // a power of two per block, its exponent in one byte
};

// How a code stands for a weight.
enum class CodeForm : std::uint8_t {
  kFloat,     // the weight itself
  kUnsigned,  // scale * (code - zero), or scale * code + min
  kSigned,    // scale * code, the code in two's complement
  kCodebook,  // scale * level[code]
  kTrellis    // scale * (value - zero), value of the code and those before it (quant/trellis.h)
};

// Levels of the non-uniform codebooks, ascending. The 2- and 3-bit levels have the least squared
// error on normally distributed weights where every sub-block has a scale of its own, of either
// sign (docs/decisions/035-block-forms.md). The 4-bit levels are those of llama.cpp's IQ4_NL and
// IQ4_XS. No level is zero: a sub-block of zeros has scale 0.
inline constexpr std::int8_t kCodebook2Levels[4] = {-127, -43, 18, 90};
inline constexpr std::int8_t kCodebook3Levels[8] = {-127, -77, -45, -18, 7, 34, 65, 108};
inline constexpr std::int8_t kCodebook4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::int8_t kQk256Levels[4] = {-2, -1, 1, 2};
// Twice the values of OCP's FP4 (E2M1), whose steps are halves: the scale is halved for it.
inline constexpr std::int8_t kMxfp4Levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};

// Where a conversion uses a type.
struct Placement {
  bool is_preset;        // --quant-type accepts it
  bool fits_vocabulary;  // --head-type accepts it: token embedding and head stay usable
  QuantType vocabulary;  // type of token embedding and head when this type is the preset
};

// Uniformly random codes in units of the scale: their mean, and their root mean square about it.
// Types with signed scales have mean 0. Random models follow from these bits, so keep them.
struct CodeMoments {
  double mean;
  double rms;
};

struct TypeTraits {
  QuantType type;
  std::string_view name;      // on command lines, in reports and messages
  std::uint8_t code_bits;     // of one code, or one float, as kernels read it
  std::uint8_t largest_code;  // in magnitude; 0 for floats
  CodeForm code_form;
  float zero;                 // code or value of weight 0 in w = scale * (code - zero)
  const std::int8_t* levels;  // of kCodebook: 2^code_bits of them
  ScaleForm scale_form;
  std::uint16_t fixed_block;  // columns of a block; 0 if the user chooses
  Placement placement;
  CodeMoments moments;
};

namespace type_table {

using enum QuantType;
using enum ScaleForm;
using enum CodeForm;

// Shorthands for the column `placement`.
constexpr Placement everywhere(QuantType own) noexcept {
  return {true, true, own};
}
constexpr Placement layers(QuantType vocabulary) noexcept {
  return {true, true, vocabulary};
}
constexpr Placement only_layers(QuantType vocabulary) noexcept {
  return {true, false, vocabulary};
}
constexpr Placement only_kept(QuantType own) noexcept {
  return {false, false, own};
}

// In the order in which tests and help list the types.
// clang-format off
inline constexpr TypeTraits kRows[] = {
    // type, name, code bits, largest code, code form, zero, levels,
    //     scale form, fixed block, placement, moments
    {kQ2S, "2bit-sym", 2, 3, kUnsigned, 1.5F, nullptr,
        kBlock, 0, layers(kQ4), {1.5, 1.118}},
    {kQ2A, "2bit", 2, 3, kUnsigned, 0, nullptr,
        kBlockMin, 0, layers(kQ4), {1.5, 1.118}},
    {kQ3, "3bit", 3, 7, kUnsigned, 0, nullptr,
        kBlockMin, 0, everywhere(kQ3), {3.5, 2.291}},
    {kQ4, "4bit", 4, 15, kUnsigned, 0, nullptr,
        kBlockMin, 0, everywhere(kQ4), {7.5, 4.610}},
    {kTernary, "ternary", 2, 2, kUnsigned, 1, nullptr,
        kBlock, 0, only_layers(kQ4), {1.0, 0.707}},
    {kF32, "f32", 32, 0, kFloat, 0, nullptr,
        kNone, 4, everywhere(kF32), {0.0, 1.0}},
    {kF16, "f16", 16, 0, kFloat, 0, nullptr,
        kNone, 4, everywhere(kF16), {0.0, 1.0}},
    {kBF16, "bf16", 16, 0, kFloat, 0, nullptr,
        kNone, 4, everywhere(kBF16), {0.0, 1.0}},
    {kQ8, "8bit", 8, 127, kSigned, 0, nullptr,
        kBlock, 0, everywhere(kQ8), {0.0, 73.9}},
    {kQk256, "qk256", 2, 3, kCodebook, 0, kQk256Levels,
        kNone, 64, only_kept(kQk256), {0.0, 1.0}},
    {kTernaryBase3, "ternary-base3", 2, 2, kUnsigned, 1, nullptr,
        kRow, 80, only_kept(kTernaryBase3), {1.0, 0.816}},
    {kTernaryRow, "ternary-row", 2, 2, kUnsigned, 1, nullptr,
        kRow, 64, only_layers(kQ4), {1.0, 0.707}},
    {kQ2Super, "2bit-super", 2, 3, kUnsigned, 0, nullptr,
        kSuperBlock, 0, layers(kQ4Super), {1.5, 1.118}},
    {kQ3Super, "3bit-super", 3, 7, kUnsigned, 0, nullptr,
        kSuperBlock, 0, everywhere(kQ3Super), {3.5, 2.291}},
    {kQ4Super, "4bit-super", 4, 15, kUnsigned, 0, nullptr,
        kSuperBlock, 0, everywhere(kQ4Super), {7.5, 4.610}},
    {kQ2K, "q2_k", 2, 3, kUnsigned, 0, nullptr,
        kSuperNibble, 16, layers(kQ6K), {1.5, 1.118}},
    {kQ3K, "q3_k", 3, 7, kUnsigned, 4, nullptr,
        kSuperSigned, 16, layers(kQ6K), {0.0, 2.345}},
    {kQ5K, "q5_k", 5, 31, kUnsigned, 0, nullptr,
        kSuperBlock, 32, everywhere(kQ5K), {15.5, 9.233}},
    {kQ6K, "q6_k", 6, 63, kUnsigned, 32, nullptr,
        kSuperSigned, 16, everywhere(kQ6K), {0.0, 18.480}},
    {kMxfp4, "mxfp4", 4, 15, kCodebook, 0, kMxfp4Levels,
        kExponent, 32, only_kept(kMxfp4), {0.0, 5.852}},
    {kQ2Codebook, "2bit-table", 2, 3, kCodebook, 0, kCodebook2Levels,
        kSuperCodebook, 16, layers(kQ4Codebook), {0.0, 81.24}},
    {kQ3Codebook, "3bit-table", 3, 7, kCodebook, 0, kCodebook3Levels,
        kSuperCodebook, 16, layers(kQ4Codebook), {0.0, 72.03}},
    {kQ4Codebook, "4bit-table", 4, 15, kCodebook, 0, kCodebook4Levels,
        kSuperCodebook, 32, everywhere(kQ4Codebook), {0.0, 67.44}},
    {kQ2Trellis, "2bit-trellis", 2, 3, kTrellis, 31.5F, nullptr,
        kRowNibble, 64, layers(kQ4Codebook), {31.5, 14.96}},
    {kQ3Trellis, "3bit-trellis", 3, 7, kTrellis, 31.5F, nullptr,
        kRowNibble, 64, layers(kQ4Codebook), {31.5, 13.05}},
};
// clang-format on

inline constexpr TypeTraits kUnknown = {kF32,    "unknown", 0, 0,  kFloat,    0,
                                        nullptr, kNone,     0, {}, {0.0, 1.0}};
inline constexpr std::uint8_t kNoRow = 255;

inline constexpr auto kRowOfCode = [] {
  std::array<std::uint8_t, 64> rows{};
  for (std::uint8_t& row : rows) row = kNoRow;
  std::uint8_t n = 0;
  for (const TypeTraits& row : kRows) rows[static_cast<std::uint8_t>(row.type)] = n++;
  return rows;
}();

}  // namespace type_table

inline constexpr std::size_t kQuantTypes = std::size(type_table::kRows);

inline constexpr auto kAllQuantTypes = [] {
  std::array<QuantType, kQuantTypes> types{};
  for (std::size_t i = 0; i < kQuantTypes; ++i) types[i] = type_table::kRows[i].type;
  return types;
}();

// Returns whether `code` is the number of a type above.
constexpr bool is_quant_type(std::uint8_t code) noexcept {
  return code < type_table::kRowOfCode.size() && type_table::kRowOfCode[code] != type_table::kNoRow;
}

// Returns the row of a type; one named "unknown" for a number that no type has.
constexpr const TypeTraits& type_traits(QuantType type) noexcept {
  const auto code = static_cast<std::uint8_t>(type);
  return is_quant_type(code) ? type_table::kRows[type_table::kRowOfCode[code]]
                             : type_table::kUnknown;
}

// Returns the name used on command lines and in messages, such as "4bit-super".
constexpr std::string_view quant_type_name(QuantType type) noexcept {
  return type_traits(type).name;
}

// Returns the row of the type of that name; null for an unknown name.
constexpr const TypeTraits* find_type_traits(std::string_view name) noexcept {
  for (const TypeTraits& row : type_table::kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// Whether token embedding and head of a real model stay usable in this type.
constexpr bool is_vocabulary_type(QuantType type) noexcept {
  return type_traits(type).placement.fits_vocabulary;
}

constexpr bool is_float_type(QuantType type) noexcept {
  return type_traits(type).code_form == CodeForm::kFloat;
}
constexpr ScaleForm scale_form(QuantType type) noexcept {
  return type_traits(type).scale_form;
}

// Whether 256 columns share f16 fields above those of their blocks.
constexpr bool is_super_type(QuantType type) noexcept {
  const ScaleForm form = scale_form(type);
  return form == ScaleForm::kSuperBlock || form == ScaleForm::kSuperNibble ||
         form == ScaleForm::kSuperSigned || form == ScaleForm::kSuperCodebook;
}

// Whether codes index a non-uniform codebook under a scale (2bit-table, 3bit-table, 4bit-table).
constexpr bool is_codebook_type(QuantType type) noexcept {
  return scale_form(type) == ScaleForm::kSuperCodebook;
}

// Whether codes index levels under a scale: the same, and mxfp4.
constexpr bool has_levels(QuantType type) noexcept {
  return is_codebook_type(type) || scale_form(type) == ScaleForm::kExponent;
}

// Whether a code's weight depends on the codes before it (2bit-trellis, 3bit-trellis).
constexpr bool is_trellis_type(QuantType type) noexcept {
  return type_traits(type).code_form == CodeForm::kTrellis;
}

// Whether the sums of a row are multiplied by an f32 of the row when they are finished.
constexpr bool has_row_scale(QuantType type) noexcept {
  return scale_form(type) == ScaleForm::kRow || scale_form(type) == ScaleForm::kRowNibble;
}

// Whether codes are -1, 0 and 1 times a scale.
constexpr bool is_ternary(QuantType type) noexcept {
  return type_traits(type).code_form == CodeForm::kUnsigned && type_traits(type).largest_code == 2;
}

// Whether weights are scale * code + min with a stored min.
constexpr bool has_min(QuantType type) noexcept {
  const ScaleForm form = scale_form(type);
  return form == ScaleForm::kBlockMin || form == ScaleForm::kSuperBlock ||
         form == ScaleForm::kSuperNibble;
}

// The code of weight 0 of types whose scales are signed bytes: w = scale * (code - zero). 0 for all
// other types.
constexpr std::uint8_t code_zero(QuantType type) noexcept {
  return scale_form(type) == ScaleForm::kSuperSigned
             ? static_cast<std::uint8_t>(type_traits(type).zero)
             : 0;
}

// The columns of a block of a type whose block size is fixed; 0 for the others.
constexpr std::uint32_t fixed_block(QuantType type) noexcept {
  return type_traits(type).fixed_block;
}

// Bits of one code (or of one float) as kernels read it, without scales. In files ternary-base3 has
// 1.6, see code_bytes().
constexpr std::uint32_t code_bits(QuantType type) noexcept {
  return type_traits(type).code_bits;
}

// The largest code in magnitude: 3 for 2 bits, 2 for ternary, 127 for 8 bits.
constexpr std::uint32_t largest_code(QuantType type) noexcept {
  return type_traits(type).largest_code;
}

// Returns the levels of a type's codes, ascending in types with a codebook; empty where
// has_levels() is false.
constexpr std::span<const std::int8_t> codebook_levels(QuantType type) noexcept {
  if (!has_levels(type)) return {};
  const TypeTraits& traits = type_traits(type);
  return {traits.levels, std::size_t{1} << traits.code_bits};
}

}  // namespace qsf

#endif  // QSF_QUANT_WEIGHT_TYPES_H_
