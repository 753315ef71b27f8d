// SPDX-License-Identifier: MIT
//
// A GGUF file of architecture llama whose matrices are ternary, in blocks of TQ2_0: nothing in it
// says how activations are to be rounded.

#ifndef QSF_IMPORT_TESTING_TERNARY_LLAMA_H_
#define QSF_IMPORT_TESTING_TERNARY_LLAMA_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "import/testing/gguf_writer.h"

namespace qsf::testing_support {

// One layer of 256 columns without a tokenizer.
inline std::string ternary_llama() {
  constexpr std::uint32_t kTq2 = 35;  // 64 bytes of codes, an f16 scale
  constexpr std::uint64_t kCols = 256;
  GgufWriter writer;
  writer.add_text("general.architecture", "llama");
  const std::pair<const char*, std::uint32_t> keys[] = {
      {"embedding_length", 256},      {"block_count", 1},     {"attention.head_count", 4},
      {"attention.head_count_kv", 4}, {"context_length", 64}, {"feed_forward_length", 256}};
  for (const auto& [name, value] : keys) writer.add_u32(std::string("llama.") + name, value);
  writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.add_f32_tensor("token_embd.weight", {kCols, 8}, std::vector<float>(kCols * 8, 0.5F));
  for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    writer.add_f32_tensor(std::string(name) + ".weight", {kCols}, std::vector<float>(kCols, 1.0F));
  }
  std::string blocks;
  for (std::uint64_t row = 0; row < 256; ++row) {
    blocks += std::string(63, '\x18') + static_cast<char>(row % 3);
    blocks += std::string("\0\x38", 2);  // 0.5
  }
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    writer.add_tensor(std::string("blk.0.") + name + ".weight", {kCols, 256}, kTq2, blocks);
  }
  return writer.finish();
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_TERNARY_LLAMA_H_
