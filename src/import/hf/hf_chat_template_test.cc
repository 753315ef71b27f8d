// SPDX-License-Identifier: MIT
//
// Chat templates from each of the files that may hold one, and files that are wrong.

#include "import/hf/hf_chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "import/hf/hf_config.h"
#include "import/testing/hf_folder.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The template that the files give, or the message of the failure.
std::string read(const HfChatTemplateTexts& texts) {
  const auto result = read_hf_chat_template(texts);
  return result ? result->text : result.error().message();
}

std::string warning(const std::string& tokenizer_config) {
  const auto result = read_hf_chat_template({.tokenizer_config = tokenizer_config});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->warnings.size(), 1U);
  return result->warnings.empty() ? "" : result->warnings[0];
}

TEST(HfChatTemplateTest, JinjaFileThenConfigThenJson) {
  const std::string config = R"({"chat_template": "config", "other": 1})";
  const std::string json = R"({"chat_template": "json"})";
  EXPECT_EQ(read({"jinja", config, json}), "jinja");
  EXPECT_EQ(read({"", config, json}), "config");
  EXPECT_EQ(read({"", "{}", json}), "json");
  EXPECT_EQ(read({"", R"({"chat_template": null})", json}), "json");
  EXPECT_EQ(read({"", "", json}), "json");
  EXPECT_EQ(read({"", "{}", "{}"}), "");
  EXPECT_EQ(read({}), "");
  // A damaged file that is not asked is not looked at.
  EXPECT_EQ(read({"jinja", "{", "["}), "jinja");
}

TEST(HfChatTemplateTest, OfSeveralTheDefaultIsTakenAndTheOthersAreNamed) {
  const std::string list = R"({"chat_template": [{"name": "tool_use", "template": "T"},
      {"name": "default", "template": "D"}, {"name": "r\u00e4g\n", "template": 1}]})";
  EXPECT_EQ(read({.tokenizer_config = list}), "D");
  EXPECT_EQ(warning(list),
            "tokenizer_config.json: the chat template \"default\" is used; ignored: "
            "\"tool_use\", \"r\\u00e4g\\n\"");
  EXPECT_EQ(read({.json = R"({"chat_template": {"rag": "R", "default": "D"}})"}), "D");
  EXPECT_EQ(read({.tokenizer_config = R"({"chat_template": [{"name": "rag", "template": "R"}]})"}),
            "");
  EXPECT_EQ(warning(R"({"chat_template": [{"name": "rag", "template": "R"}]})"),
            "tokenizer_config.json: no chat template is named \"default\": \"rag\"");
  EXPECT_EQ(warning(R"({"chat_template": []})"),
            "tokenizer_config.json: no chat template is named \"default\"");
  std::string many = R"({"chat_template": [{"name": "default", "template": "D"})";
  for (int i = 0; i < 20; ++i) many += R"(, {"name": "n", "template": "x"})";
  EXPECT_THAT(warning(many + "]}"), HasSubstr("\"n\" and 12 more"));
  const auto one = read_hf_chat_template({.tokenizer_config = R"({"chat_template": "x"})"});
  EXPECT_THAT(one->warnings, IsEmpty());
}

TEST(HfChatTemplateTest, EveryFileIsReadFromTheFolder) {
  const testing_support::TemporaryFolder folder;
  std::filesystem::copy_file(std::string(QSF_SOURCE_DIR) + "/testdata/golden/gpt2/config.json",
                             folder.file("config.json"));
  const auto chat_template = [&] { return read_hf_config(folder.path())->spec.chat_template; };
  EXPECT_EQ(chat_template(), "");
  folder.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(chat_template(), "json");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "config"},
                                     {"name": "rag", "template": "R"}]})");
  EXPECT_EQ(chat_template(), "config");
  EXPECT_THAT(read_hf_config(folder.path())->warnings, ElementsAre(HasSubstr("\"rag\"")));
  folder.write("chat_template.jinja", "jinja");
  EXPECT_EQ(chat_template(), "jinja");
}

TEST(HfChatTemplateTest, WhatIsWrongIsNamedWithItsFile) {
  EXPECT_THAT(read({.tokenizer_config = "{"}), HasSubstr("tokenizer_config.json: "));
  EXPECT_THAT(read({.json = "[]"}), HasSubstr("chat_template.json: "));
  EXPECT_EQ(read({.tokenizer_config = R"({"chat_template": 3})"}),
            "tokenizer_config.json: chat_template: expected a string or a list of named templates");
  EXPECT_THAT(read({.json = R"({"chat_template": [{"template": "x"}]})"}), HasSubstr("no name"));
  EXPECT_THAT(read({.json = R"({"chat_template": [3]})"}), HasSubstr("no name"));
  EXPECT_THAT(read({.json = R"({"chat_template": [{"name": "default"}]})"}),
              HasSubstr("\"default\" has no template"));
  EXPECT_THAT(read({.json = R"({"chat_template": {"default": 3}})"}),
              HasSubstr("\"default\" has no template"));
  EXPECT_EQ(read({.jinja = std::string_view("ab\0c", 4)}),
            "chat_template.jinja: chat template: byte 2 is NUL or invalid UTF-8; save the file as "
            "UTF-8 text");
  EXPECT_THAT(read({.json = R"({"chat_template": "ab\u0000"})"}), HasSubstr("byte 2"));
  EXPECT_THAT(read({.jinja = "\xFF"}), HasSubstr("byte 0"));
  const std::string longest(kMaxChatTemplateBytes, 'x');
  EXPECT_EQ(read({.jinja = longest}), longest);
  EXPECT_EQ(read({.jinja = longest + "x"}),
            "chat_template.jinja: chat template: 4194305 bytes, expected at most 4 MiB");
}

}  // namespace
}  // namespace qsf
