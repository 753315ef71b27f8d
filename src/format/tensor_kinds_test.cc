// SPDX-License-Identifier: MIT
//
// Every kind of tensor has a name and a shape, and is a matrix or a vector.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "format/qsf_layout.h"
#include "format/tensor_rules.h"

namespace qsf {
namespace {

constexpr std::uint32_t kCodes = 1024;

TEST(TensorKindsTest, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (std::uint32_t code = 0; code < kCodes; ++code) {
    const std::string name(tensor_kind_name(static_cast<TensorKind>(code)));
    EXPECT_EQ(name != "unknown", is_tensor_kind(code)) << code;
    EXPECT_TRUE(name == "unknown" || names.insert(name).second) << name;
  }
}

TEST(TensorKindsTest, EachHasAShape) {
  ModelSpec spec;  // a mixture of all that a model can have
  spec.n_layers = 1;
  spec.hidden = spec.ffn = spec.expert_ffn = spec.shared_ffn = 8;
  spec.n_heads = spec.n_kv_heads = spec.n_experts = 2;
  spec.head_dim = spec.layer_input_dim = spec.embedding_dense = 4;
  spec.n_vocab = spec.max_positions = 16;
  spec.latent_dim = spec.latent_query_dim = spec.latent_key_dim = spec.latent_value_dim = 4;
  spec.mixer_heads = spec.mixer_head_dim = spec.mixer_state = spec.mixer_groups = 2;
  spec.conv_taps = 3;
  spec.n_streams = 3;
  spec.laurel_dim = 4;
  for (std::uint32_t code = 0; code < kCodes; ++code) {
    if (!is_tensor_kind(code)) continue;
    const auto kind = static_cast<TensorKind>(code);
    const TensorShape shape = tensor_shape(spec, 0, kind);
    EXPECT_TRUE(shape.rows > 0 && shape.cols > 0) << tensor_kind_name(kind);
    EXPECT_EQ(is_matrix(kind), shape.rows > 1) << tensor_kind_name(kind);
  }
}

}  // namespace
}  // namespace qsf
