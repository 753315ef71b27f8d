// SPDX-License-Identifier: MIT
//
// What tests of config.json files share: parsing them, and what they expect of sizes and refusals.

#ifndef QSF_IMPORT_TESTING_PUBLISHED_CONFIG_H_
#define QSF_IMPORT_TESTING_PUBLISHED_CONFIG_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "import/hf/hf_config.h"

namespace qsf::testing_support {

using Json = nlohmann::json;

// Elements of ModelSpec::layer_rope.
inline constexpr auto kNoRope = static_cast<std::uint32_t>(LayerRope::kNone);
inline constexpr auto kMainRope = static_cast<std::uint32_t>(LayerRope::kMain);
inline constexpr auto kLocalRope = static_cast<std::uint32_t>(LayerRope::kLocal);

inline Result<HfConfig> parse(const Json& config) {
  return parse_hf_config({config.dump(), "", "", ""});
}
inline std::string message_of(const Json& config) {
  const auto result = parse(config);
  return result ? "" : result.error().message();
}
inline HfConfig parsed(const Json& config) {
  auto result = parse(config);
  EXPECT_TRUE(result) << result.error().message();
  return result ? *std::move(result) : HfConfig();
}
// Sets one key and expects a refusal that names it.
inline void expect_refused(Json config, const char* key, const Json& value) {
  config[key] = value;
  const auto result = parse(config);
  ASSERT_FALSE(result) << key;
  EXPECT_EQ(result.error().code(), StatusCode::kUnsupported) << key;
  EXPECT_THAT(result.error().message(), testing::HasSubstr(key));
}
inline void expect_sizes(const ModelSpec& s, std::uint32_t hidden, std::uint32_t n_layers,
                         std::uint32_t n_heads, std::uint32_t n_kv_heads, std::uint32_t head_dim,
                         std::uint32_t ffn) {
  EXPECT_EQ(s.hidden, hidden);
  EXPECT_EQ(s.n_layers, n_layers);
  EXPECT_EQ(s.n_heads, n_heads);
  EXPECT_EQ(s.n_kv_heads, n_kv_heads);
  EXPECT_EQ(s.head_dim, head_dim);
  EXPECT_EQ(s.ffn, ffn);
}

// Sets every key of the file, and those of `more`, to values of every wrong kind: whatever comes of
// it is a model or a Status that names the file.
inline void expect_statuses(const Json& base, std::vector<std::string> more) {
  const Json wrong[] = {-1,   0,       1.5,           1e300,          "text",
                        true, nullptr, Json::array(), Json::object(), 18446744073709551615U};
  for (const auto& [key, value] : base.items()) more.push_back(key);
  for (const std::string& key : more) {
    for (const Json& value : wrong) {
      Json json = base;
      json[key] = value;
      const auto result = parse(json);
      if (!result) {
        EXPECT_THAT(result.error().message(), testing::HasSubstr("config.json")) << key;
      }
    }
  }
}

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_PUBLISHED_CONFIG_H_
