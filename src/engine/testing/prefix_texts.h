// SPDX-License-Identifier: MIT
//
// For tests of the prefix cache: long prompts, and generations under a key, run to their end.

#ifndef QSF_ENGINE_TESTING_PREFIX_TEXTS_H_
#define QSF_ENGINE_TESTING_PREFIX_TEXTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/testing/step_members.h"

namespace qsf::testing_support {

// Some 58 tokens a sentence: at least two pages in three of them.
inline std::string tale(int n_sentences, std::string_view start = "") {
  std::string text(start);
  for (int i = 0; i < n_sentences; ++i) {
    text +=
        "There was once a poor woodcutter who lived with his wife and his two children at the "
        "edge of a great forest, and every day he went out to the river to look for bread and "
        "wood, and every night he came home with nothing but his hat and a song. ";
  }
  return text;
}

inline GenerateOptions sampled(std::uint32_t max_tokens = 20, std::string_view key = "key") {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampling.temperature = 0.9F;
  options.sampling.repeat_penalty = 1.2F;
  options.sampling.seed = 7;
  options.prefix_key = std::string(key);
  return options;
}

// A generation run to its end, and what became of it.
struct Outcome {
  std::string text;
  std::uint32_t cached_tokens = 0;
};

inline Outcome run(Engine& engine, std::string_view prompt,
                   const GenerateOptions& options = sampled()) {
  Member member(engine, prompt, options);
  Generation* const generation = member.generation.get();
  run_to_end(engine, {&generation, 1});
  EXPECT_TRUE(generation->status().ok()) << generation->status().message();
  EXPECT_TRUE(engine.impl().prefix_tree->is_consistent());
  EXPECT_TRUE(engine.impl().kv->is_consistent());
  return {member.text, generation->result().cached_tokens};
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_PREFIX_TEXTS_H_
