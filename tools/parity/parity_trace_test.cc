// SPDX-License-Identifier: MIT
//
// The names of a trace's points, on small models whose layers have what most have not: experts, a
// norm for each part of a parallel block, queries that grow with their position.

#include "tools/parity/parity_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/testing/naive_model_test.h"

namespace qsf_tools {
namespace {

using qsf::testing_support::naive_llama;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class ParityTraceTest : public qsf::testing_support::NaiveModelTest {
 protected:
  // Computes two prompt rows; returns the names of layer 1's points.
  std::vector<std::string> names_of(const qsf::ModelSpec& spec) {
    make_model(spec, 2);
    observer_ = std::make_unique<ParityObserver>(
        ParityObserver::Options{.keep_records = true, .trace = true});
    qsf::EngineOptions options = exact_options(16);
    options.observer = observer_.get();
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    qsf::testing_support::Logits logits;
    prefill(*session, 0, 2, logits);
    std::vector<std::string> names;
    for (const TracePoint& point : observer_->points()) {
      if (point.layer == 1) names.push_back(point.name);
    }
    return names;
  }

  std::unique_ptr<ParityObserver> observer_;
};

TEST_F(ParityTraceTest, ExpertsHaveNamesOfTheirOwn) {
  qsf::ModelSpec spec = naive_llama(2, 16);
  spec.architecture = "mixtral";
  spec.n_experts = 4;
  spec.n_experts_used = 4;
  spec.expert_ffn = 24;
  spec.expert_renormalised = true;
  EXPECT_THAT(names_of(spec),
              ElementsAre("attn_norm", "attn_q", "attn_k", "attn_v", "attn_q.rope", "attn_k.rope",
                          "attention", "attn_out", "ffn_norm", "ffn_gate_inp", "ffn_act.0",
                          "ffn_down.0", "ffn_act.1", "ffn_down.1", "ffn_act.2", "ffn_down.2",
                          "ffn_act.3", "ffn_down.3", "ffn_out"));
  for (const char* name : {"blk.1.ffn_gate_inp", "blk.1.ffn_gate.3", "blk.0.ffn_up.2"}) {
    EXPECT_THAT(observer_->records(), HasSubstr('"' + std::string(name) + '"'));
  }
}

TEST_F(ParityTraceTest, NormsBehindSublayersComeBeforeTheirSums) {
  qsf::ModelSpec spec = naive_llama(2, 16);
  spec.architecture = "olmo2";
  EXPECT_THAT(
      names_of(spec),
      ElementsAre("attn_q", "attn_k", "attn_v", "attn_q.norm", "attn_k.norm", "attn_q.norm.rope",
                  "attn_k.norm.rope", "attention", "attn_output", "attn_output.norm", "attn_out",
                  "ffn_act", "ffn_down", "ffn_down.norm", "ffn_out"));
}

TEST_F(ParityTraceTest, AParallelBlockHasTwoNorms) {
  qsf::ModelSpec spec = naive_llama(2, 16);
  spec.architecture = "gptneox";
  spec.norm = qsf::NormType::kLayerNorm;
  spec.parallel_block = true;
  EXPECT_THAT(names_of(spec),
              ElementsAre("attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_q.rope",
                          "attn_k.rope", "attention", "attn_out", "ffn_act", "ffn_out"));
}

TEST_F(ParityTraceTest, ScaledQueriesAreRotatedOnce) {
  qsf::ModelSpec spec = naive_llama(2, 16);
  spec.architecture = "mistral3";
  spec.rope.scaling = qsf::RopeScaling::kYarn;
  spec.rope.factor = 4.0F;
  spec.rope.original_context = 4;
  spec.query_position_scale = 0.1F;
  const std::vector<std::string> names = names_of(spec);
  EXPECT_THAT(names, AllOf(Contains("attn_q.scaled"), Contains("attn_q.scaled.rope"),
                           Contains("attn_k.rope")));
  EXPECT_THAT(names, Each(testing::Not(HasSubstr("rope.rope"))));
}

}  // namespace
}  // namespace qsf_tools
