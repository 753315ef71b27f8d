// SPDX-License-Identifier: MIT

#include "import/gguf/ggml_types.h"

#include <algorithm>

#include "base/check.h"
#include "import/gguf/ggml_decode.h"

namespace qsf {
namespace {

struct Row {
  std::uint32_t type;
  GgmlTypeInfo info;
  GgmlRowDecoder decode;  // null: refused
};

constexpr GgmlTypeInfo name_only(const char* name) noexcept {
  return {name, 1, 0, 0};
}

// Sorted by number. Those from 133 on are ik_llama.cpp's.
constexpr Row kTypes[] = {
    {0, {"F32", 1, 4, 0}, decode_ggml_f32},
    {1, {"F16", 1, 2, 0}, decode_ggml_f16},
    {2, {"Q4_0", 32, 18, 0}, decode_ggml_q4_0},
    {3, {"Q4_1", 32, 20, 0}, decode_ggml_q4_1},
    {6, {"Q5_0", 32, 22, 0}, decode_ggml_q5_0},
    {7, {"Q5_1", 32, 24, 0}, decode_ggml_q5_1},
    {8, {"Q8_0", 32, 34, 0}, decode_ggml_q8_0},
    {9, {"Q8_1", 32, 36, 0}, nullptr},
    {10, {"Q2_K", 256, 84, 0}, decode_ggml_q2_k},
    {11, {"Q3_K", 256, 110, 0}, decode_ggml_q3_k},
    {12, {"Q4_K", 256, 144, 0}, decode_ggml_q4_k},
    {13, {"Q5_K", 256, 176, 0}, decode_ggml_q5_k},
    {14, {"Q6_K", 256, 210, 0}, decode_ggml_q6_k},
    {15, {"Q8_K", 256, 292, 0}, decode_ggml_q8_k},
    {16, {"IQ2_XXS", 256, 66, 0}, nullptr},
    {17, {"IQ2_XS", 256, 74, 0}, nullptr},
    {18, {"IQ3_XXS", 256, 98, 0}, nullptr},
    {19, {"IQ1_S", 256, 50, 0}, nullptr},
    {20, {"IQ4_NL", 32, 18, 0}, decode_ggml_iq4_nl},
    {21, {"IQ3_S", 256, 110, 0}, nullptr},
    {22, {"IQ2_S", 256, 82, 0}, nullptr},
    {23, {"IQ4_XS", 256, 136, 0}, decode_ggml_iq4_xs},
    {24, {"I8", 1, 1, 0}, nullptr},
    {25, {"I16", 1, 2, 0}, nullptr},
    {26, {"I32", 1, 4, 0}, nullptr},
    {27, {"I64", 1, 8, 0}, nullptr},
    {28, {"F64", 1, 8, 0}, decode_ggml_f64},
    {29, {"IQ1_M", 256, 56, 0}, nullptr},
    {30, {"BF16", 1, 2, 0}, decode_ggml_bf16},
    {31, name_only("Q4_0_4_4"), nullptr},
    {32, name_only("Q4_0_4_8"), nullptr},
    {33, name_only("Q4_0_8_8"), nullptr},
    {34, {"TQ1_0", 256, 54, 0}, decode_ggml_tq1_0},
    {35, {"TQ2_0", 256, 66, 0}, decode_ggml_tq2_0},
    {36, name_only("I2_S"), nullptr},
    {39, {"MXFP4", 32, 17, 0}, decode_ggml_mxfp4},
    {40, {"NVFP4", 64, 36, 0}, nullptr},
    {41, {"Q1_0", 128, 18, 0}, nullptr},
    {42, {"Q2_0", 64, 18, 0}, nullptr},
    {133, name_only("Q6_0"), nullptr},
    {134, {"IQ1_BN", 64, 13, 2}, decode_ggml_iq1_bn},
    {135, {"IQ2_BN", 64, 16, 4}, decode_ggml_iq2_bn},
    {137, name_only("IQ2_K"), nullptr},
    {138, name_only("IQ3_K"), nullptr},
    {139, name_only("IQ4_K"), nullptr},
    {140, name_only("IQ5_K"), nullptr},
    {141, name_only("IQ6_K"), nullptr},
    {144, name_only("IQ4_KS"), nullptr},
    {145, name_only("IQ2_KS"), nullptr},
    {146, name_only("IQ4_KSS"), nullptr},
    {152, name_only("IQ5_KS"), nullptr},
    {153, name_only("IQ2_KT"), nullptr},
    {154, name_only("IQ3_KT"), nullptr},
    {155, name_only("IQ4_KT"), nullptr},
    {156, name_only("IQ3_KS"), nullptr},
    {157, name_only("IQ2_KL"), nullptr},
    {158, name_only("IQ1_KT"), nullptr},
    {202, name_only("Q4_0_R8"), nullptr},
    {206, name_only("Q5_0_R4"), nullptr},
    {208, name_only("Q8_0_R8"), nullptr},
    {210, name_only("Q2_K_R4"), nullptr},
    {211, name_only("Q3_K_R4"), nullptr},
    {212, name_only("Q4_K_R4"), nullptr},
    {213, name_only("Q5_K_R4"), nullptr},
    {214, name_only("Q6_K_R4"), nullptr},
    {220, name_only("IQ4_NL_R4"), nullptr},
    {223, name_only("IQ4_XS_R8"), nullptr},
    {230, name_only("BF16_R16"), nullptr},
    {335, name_only("IQ2_BN_R4"), nullptr},
};
static_assert(std::is_sorted(std::begin(kTypes), std::end(kTypes),
                             [](const Row& a, const Row& b) { return a.type < b.type; }));

const Row* find_row(std::uint32_t type) noexcept {
  const Row* at = std::lower_bound(std::begin(kTypes), std::end(kTypes), type,
                                   [](const Row& row, std::uint32_t t) { return row.type < t; });
  return at == std::end(kTypes) || at->type != type ? nullptr : at;
}

}  // namespace

std::optional<GgmlTypeInfo> ggml_type_info(std::uint32_t type) noexcept {
  const Row* row = find_row(type);
  return row == nullptr ? std::nullopt : std::optional(row->info);
}

const char* ggml_type_name(std::uint32_t type) noexcept {
  const Row* row = find_row(type);
  return row == nullptr ? "unknown" : row->info.name;
}

const char* bitnet_type_name(std::uint32_t type) noexcept {
  constexpr const char* kNames[] = {"I8_S", "TL1", "TL2"};
  return type >= 37 && type <= 39 ? kNames[type - 37] : nullptr;
}

std::optional<std::uint64_t> ggml_row_bytes(std::uint32_t type, std::uint64_t n_cols) noexcept {
  const Row* row = find_row(type);
  if (row == nullptr || row->info.block_bytes == 0 || n_cols % row->info.block_elements != 0) {
    return std::nullopt;
  }
  const auto blocks = checked_mul(n_cols / row->info.block_elements, row->info.block_bytes);
  if (!blocks.has_value() || *blocks >> 61 != 0) return std::nullopt;
  return *blocks + row->info.row_bytes_extra;
}

bool can_decode(std::uint32_t type) noexcept {
  const Row* row = find_row(type);
  return row != nullptr && row->decode != nullptr;
}

void decode_ggml_row(std::uint32_t type, ByteSpan row, std::span<float> out) noexcept {
  const Row* entry = find_row(type);
  QSF_CHECK(entry != nullptr && entry->decode != nullptr &&
            ggml_row_bytes(type, out.size()) == row.size());
  entry->decode(row, out);
}

}  // namespace qsf
