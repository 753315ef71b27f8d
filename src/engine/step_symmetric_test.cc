// SPDX-License-Identifier: MIT
//
// Steps of generations whose prompts attend to both sides.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/testing/step_members.h"

namespace qsf {
namespace {

using namespace testing_support;

// A prompt that attends to both sides waits for a pass of its own where generating members leave
// too few rows.
TEST(StepSymmetricTest, PromptsAreOnePass) {
  EngineOptions options = step_options(5);
  options.attention = AttentionKind::kSymmetric;
  const std::vector<std::string> expected = texts_alone(5, options);
  const auto n_tokens = [engine = open_bundled(options)](std::size_t i) {
    return encode(*engine, member_prompt(i)).size();
  };
  for (const std::size_t rows : {n_tokens(3), n_tokens(3) + 2}) {
    options.rows_per_pass = static_cast<std::uint32_t>(rows);
    const std::unique_ptr<Engine> engine = open_bundled(options);
    Members members;
    for (std::size_t step = 0; members.size() < 5 || !all_finished(generations_of(members));
         ++step) {
      if (step % 3 == 0 && members.size() < 5) {
        members.push_back(std::make_unique<Member>(*engine, members.size()));
      }
      ASSERT_TRUE(engine->step(generations_of(members)).has_value());
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::size_t n = members[i]->session->n_computed();
        EXPECT_TRUE(n == 0 || n >= n_tokens(i)) << n << " of " << i;
        EXPECT_TRUE(n > 0 || step % 3 == 0) << i << " waits for a second pass";
      }
    }
    for (std::size_t i = 0; i < members.size(); ++i) EXPECT_EQ(members[i]->text, expected[i]);
  }
}

}  // namespace
}  // namespace qsf
