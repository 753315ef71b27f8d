// SPDX-License-Identifier: MIT

#include "quant/types.h"

namespace qsf {

std::string_view quant_type_name(QuantType type) noexcept {
  switch (type) {
    case QuantType::kQ2S: return "2bit-sym";
    case QuantType::kQ2A: return "2bit";
    case QuantType::kQ3: return "3bit";
    case QuantType::kQ4: return "4bit";
    case QuantType::kTernary: return "ternary";
    case QuantType::kF32: return "f32";
    case QuantType::kF16: return "f16";
    case QuantType::kBF16: return "bf16";
    case QuantType::kQ8: return "8bit";
    case QuantType::kQk256: return "qk256";
    case QuantType::kTernaryBase3: return "ternary-base3";
    case QuantType::kTernaryRow: return "ternary-row";
    case QuantType::kQ2Super: return "2bit-super";
    case QuantType::kQ3Super: return "3bit-super";
    case QuantType::kQ4Super: return "4bit-super";
    case QuantType::kQ2K: return "q2_k";
    case QuantType::kQ3K: return "q3_k";
    case QuantType::kQ5K: return "q5_k";
    case QuantType::kQ6K: return "q6_k";
    case QuantType::kQ2Codebook: return "2bit-table";
    case QuantType::kQ3Codebook: return "3bit-table";
    case QuantType::kQ4Codebook: return "4bit-table";
  }
  return "unknown";
}

}  // namespace qsf
