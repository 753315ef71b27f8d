// SPDX-License-Identifier: MIT
//
// Compares the renderer with transformers, byte for byte: on templates of public models, on the
// built-in ones and on each feature of the language (testdata/chat, written by
// make_chat_golden.py). Each rendering of a template also checks that exactly the bytes of message
// contents are untrusted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/chat_template.h"

namespace qsf {
namespace {

using Json = nlohmann::json;

const std::string kFolder = std::string(QSF_SOURCE_DIR) + "/testdata/chat/";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Conversation {
  std::vector<std::string> roles;
  std::vector<std::string> contents;

  std::vector<ChatMessage> messages() const {
    std::vector<ChatMessage> views;
    for (std::size_t i = 0; i < roles.size(); ++i) views.push_back({roles[i], contents[i]});
    return views;
  }
};

Conversation read_conversation(const Json& json) {
  Conversation conversation;
  for (const Json& message : json) {
    conversation.roles.push_back(message.at("role"));
    conversation.contents.push_back(message.at("content"));
  }
  return conversation;
}

std::string joined(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.text;
  return text;
}

void expect_outcome(const Json& expected, const Result<std::vector<ChatPiece>>& actual) {
  if (expected.contains("expected")) {
    ASSERT_TRUE(actual) << actual.error().message();
    EXPECT_EQ(joined(*actual), expected.at("expected").get<std::string>());
    return;
  }
  ASSERT_FALSE(actual) << "rendered: " << joined(*actual) << "; expected: " << expected;
  if (!expected.contains("raises")) return;
  EXPECT_EQ(actual.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(actual.error().message(), testing::EndsWith(expected.at("raises")));
}

// U+E000, for private use: no template has it.
constexpr std::string_view kMarker = "\xEE\x80\x80";

// Renders with contents that consist of markers: untrusted text must be markers and nothing else,
// and trusted text must have none.
void expect_trust(const ChatTemplate& chat, const ChatTemplateInput& input) {
  std::vector<ChatMessage> marked;
  for (const ChatMessage& message : input.messages) {
    const bool is_known = message.role != "narrator";
    marked.push_back({is_known ? message.role : "user", "\xEE\x80\x80\xEE\x80\x80"});
  }
  ChatTemplateInput marked_input = input;
  marked_input.messages = marked;
  const auto pieces = chat.render(marked_input);
  if (!pieces) return;
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    std::string text = (*pieces)[i].text;
    EXPECT_FALSE(text.empty());
    if (i > 0) {
      EXPECT_NE((*pieces)[i].trusted, (*pieces)[i - 1].trusted);
    }
    if ((*pieces)[i].trusted) {
      EXPECT_EQ(text.find(kMarker), std::string::npos) << text;
      continue;
    }
    for (std::size_t at = text.find(kMarker); at != std::string::npos; at = text.find(kMarker)) {
      text.erase(at, kMarker.size());
    }
    EXPECT_EQ(text, "");
  }
}

void check_template(const Json& file, const Json& entry, const std::string& source) {
  const auto chat = ChatTemplate::parse(source);
  ASSERT_TRUE(chat) << chat.error().message();
  const std::string bos_token = entry.at("bos_token");
  const std::string eos_token = entry.at("eos_token");
  for (const Json& expected : entry.at("cases")) {
    SCOPED_TRACE("conversation " + expected.at("conversation").dump());
    const Conversation conversation = read_conversation(
        file.at("conversations").at(expected.at("conversation").get<std::size_t>()));
    const std::vector<ChatMessage> messages = conversation.messages();
    const ChatTemplateInput input{.messages = messages,
                                  .add_generation_prompt = expected.at("generate"),
                                  .bos_token = bos_token,
                                  .eos_token = eos_token,
                                  .now_seconds = file.at("now_seconds")};
    expect_outcome(expected, chat->render(input));
    expect_trust(*chat, input);
  }
}

TEST(ChatGoldenTest, TemplatesOfModelsRenderAsInTransformers) {
  const Json file = Json::parse(read_file(kFolder + "templates.json"));
  ASSERT_GE(file.at("templates").size(), 12U);
  for (const Json& entry : file.at("templates")) {
    const std::string name = entry.at("name");
    SCOPED_TRACE(name);
    check_template(file, entry, read_file(kFolder + name + ".jinja"));
  }
}

TEST(ChatGoldenTest, BuiltinTemplatesRenderAsInTransformers) {
  const Json file = Json::parse(read_file(kFolder + "templates.json"));
  const auto templates = builtin_templates();
  ASSERT_EQ(file.at("builtin").size(), templates.size());
  for (std::size_t i = 0; i < templates.size(); ++i) {
    SCOPED_TRACE(templates[i].name);
    ASSERT_EQ(file.at("builtin")[i].at("name").get<std::string>(), templates[i].name);
    check_template(file, file.at("builtin")[i], std::string(templates[i].source));
  }
}

TEST(ChatGoldenTest, TheLanguageIsThatOfJinja) {
  const Json file = Json::parse(read_file(kFolder + "language.json"));
  const Conversation conversation = read_conversation(file.at("messages"));
  const std::vector<ChatMessage> messages = conversation.messages();
  ASSERT_GE(file.at("cases").size(), 200U);
  for (const Json& expected : file.at("cases")) {
    SCOPED_TRACE(expected.at("template").dump());
    const auto chat = ChatTemplate::parse(expected.at("template").get<std::string>());
    if (!chat) {
      EXPECT_TRUE(expected.contains("fails")) << chat.error().message();
      continue;
    }
    expect_outcome(expected, chat->render({.messages = messages,
                                           .bos_token = "<s>",
                                           .now_seconds = file.at("now_seconds")}));
  }
}

}  // namespace
}  // namespace qsf
