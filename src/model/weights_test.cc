// SPDX-License-Identifier: MIT
//
// What a file must hold of an architecture's tensors.

#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "base/testing/temporary_path.h"
#include "model/testing/naive_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::NaiveModel;

ModelSpec command_r() {
  ModelSpec s;
  s.architecture = "command-r";
  s.n_layers = 2;
  s.hidden = 32;
  s.n_heads = 4;
  s.n_kv_heads = 2;
  s.head_dim = 8;
  s.n_vocab = 40;
  s.max_positions = 16;
  s.ffn = 24;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.positions = PositionEncoding::kRope;
  s.parallel_block = true;
  return s;
}

ModelSpec mtp_block() {
  ModelSpec s = command_r();
  s.architecture = "llama";
  s.norm = NormType::kRmsNorm;
  s.parallel_block = false;
  s.mtp_block = true;
  return s;
}

// Returns what is wrong with a file without these tensors, empty for nothing.
std::string fault_without(std::initializer_list<TensorKind> kinds,
                          const ModelSpec& spec = command_r()) {
  NaiveModel model(spec, 3);
  for (const TensorKind kind : kinds) model.leave_out(kind);
  const std::string path = testing_support::temporary_path("weights_test.qsf");
  EXPECT_TRUE(model.write(path).ok());
  const auto reader = QsfReader::open(path);
  EXPECT_TRUE(reader.has_value()) << reader.error().message();
  return check_tensors(*reader).message();
}

TEST(CheckTensorsTest, NormsOfQueriesAndKeysComeTogetherOrNotAtAll) {
  EXPECT_EQ(fault_without({}), "");
  EXPECT_EQ(fault_without({TensorKind::kQNorm, TensorKind::kKNorm}), "");
  for (const TensorKind kind : {TensorKind::kQNorm, TensorKind::kKNorm}) {
    EXPECT_THAT(fault_without({kind}),
                HasSubstr("layer 0: one of the tensors q_norm and k_norm without the other"));
  }
}

TEST(CheckTensorsTest, WhatAnArchitectureNeedsIsThere) {
  EXPECT_THAT(fault_without({TensorKind::kAttnNorm}),
              HasSubstr("tensor attn_norm is missing; architecture command-r needs it"));
}

TEST(CheckTensorsTest, ABlockForFurtherTokensJoinsRowsInItsFirstLayer) {
  EXPECT_EQ(fault_without({}, mtp_block()), "");
  for (const auto& [kind, name] : {std::pair(TensorKind::kMtpProjection, "mtp_projection"),
                                   std::pair(TensorKind::kMtpTokenNorm, "mtp_token_norm"),
                                   std::pair(TensorKind::kMtpHiddenNorm, "mtp_hidden_norm")}) {
    EXPECT_THAT(fault_without({kind}, mtp_block()),
                HasSubstr("layer 0: tensor " + std::string(name) + " is missing"));
  }
  ModelSpec parallel = mtp_block();
  parallel.parallel_block = true;
  EXPECT_THAT(fault_without({}, parallel), HasSubstr("cannot run a model with multi-token"));
}

}  // namespace
}  // namespace qsf
