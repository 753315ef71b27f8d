// SPDX-License-Identifier: MIT

#include "import/layer_tensor_name.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace qsf {
namespace {

TEST(LayerTensorNameTest, IsAPrefixANumberAPointAndTheRest) {
  const auto found = parse_layer_tensor_name("model.layers.12.self_attn.k", "model.layers.");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->layer, 12U);
  EXPECT_EQ(found->rest, "self_attn.k");
  EXPECT_EQ(parse_layer_tensor_name("blk.0.", "blk.").value().rest, "");
  EXPECT_EQ(parse_layer_tensor_name("4294967295.a", "").value().layer, UINT32_MAX);
}

TEST(LayerTensorNameTest, OtherNamesAreNone) {
  for (const char* name :
       {"", "blk.", "blk.1", "blk.x.a", "blk.01.a", "blk.00.a", "blk.-1.a", "blk.+1.a", "blk. 1.a",
        "blk.1x.a", "blk..a", "blk.4294967296.a", "output.1.a", "Blk.1.a"}) {
    EXPECT_FALSE(parse_layer_tensor_name(name, "blk.").has_value()) << name;
  }
}

}  // namespace
}  // namespace qsf
