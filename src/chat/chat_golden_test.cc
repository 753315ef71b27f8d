// SPDX-License-Identifier: MIT
//
// Compares the renderer with transformers, byte for byte: on templates of public models, on the
// built-in ones and on each feature of the language (testdata/chat, written by
// make_chat_golden.py). Each rendering of a template also checks that exactly the bytes of message
// contents are untrusted, and with tools that no byte of a request is trusted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chat/chat_messages.h"
#include "chat/chat_template.h"
#include "chat/chat_template_traits.h"

namespace qsf {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

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

// Marks every string of a request but those that templates compare.
void mark(OrderedJson& json) {
  for (auto& [name, value] : json.items()) {
    if (value.is_structured()) {
      mark(value);
    } else if (value.is_string() && name != "role" && name != "type" && name != "id" &&
               name != "tool_call_id") {
      value = value.get<std::string>() + std::string(kMarker);
    }
  }
}

struct Request {
  ChatJson messages;
  ChatJson tools;
  ChatJson variables;
};

Request read_request(const OrderedJson& json) {
  const auto parse = [&json](const char* name) {
    const std::string text = json.at(name).dump();
    auto parsed = parse_chat_json(text, name);
    EXPECT_TRUE(parsed) << parsed.error().message();
    return parsed ? std::move(*parsed) : ChatJson();
  };
  return {parse("messages"), parse("tools"), parse("variables")};
}

// Returns how many renderings show a marked text.
std::size_t check_requests(const OrderedJson& file, const Json& entry, const std::string& source) {
  const auto chat = ChatTemplate::parse(source);
  EXPECT_TRUE(chat) << chat.error().message();
  if (!chat) return 0;
  const std::string bos_token = entry.at("bos_token");
  const std::string eos_token = entry.at("eos_token");
  std::size_t n_marked = 0;
  for (std::size_t i = 0; i < entry.at("cases").size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const OrderedJson& asked = file.at("cases").at(i);
    const auto render = [&](const Request& request) {
      return chat->render({.json_messages = &request.messages,
                           .tools = request.tools.is_null() ? nullptr : &request.tools,
                           .variables = &request.variables,
                           .add_generation_prompt = asked.at("generate"),
                           .bos_token = bos_token,
                           .eos_token = eos_token,
                           .now_seconds = file.at("now_seconds")});
    };
    expect_outcome(entry.at("cases")[i], render(read_request(asked)));
    OrderedJson marked = asked;
    mark(marked);
    const auto pieces = render(read_request(marked));
    if (!pieces) continue;
    for (const ChatPiece& piece : *pieces) {
      const bool has_marker = piece.text.find(kMarker) != std::string::npos;
      n_marked += has_marker ? 1 : 0;
      EXPECT_FALSE(has_marker && piece.trusted) << piece.text;
    }
  }
  return n_marked;
}

TEST(ChatGoldenTest, RequestsRenderAsInTransformers) {
  const OrderedJson file = OrderedJson::parse(read_file(kFolder + "tools.json"));
  ASSERT_GE(file.at("templates").size(), 12U);
  for (const Json entry : file.at("templates")) {
    const std::string name = entry.at("name");
    SCOPED_TRACE(name);
    EXPECT_GT(check_requests(file, entry, read_file(kFolder + name + ".jinja")), 0U);
  }
}

// A request as clients send it: arguments are text, and messages with calls have no content.
OrderedJson as_sent(OrderedJson asked) {
  for (OrderedJson& message : asked.at("messages")) {
    if (!message.contains("tool_calls")) continue;
    message["content"] = nullptr;
    for (OrderedJson& call : message.at("tool_calls")) {
      OrderedJson& arguments = call.at("function").at("arguments");
      arguments = arguments.dump();
    }
  }
  return asked;
}

TEST(ChatGoldenTest, RequestsOfClientsRenderAsInTransformers) {
  const OrderedJson file = OrderedJson::parse(read_file(kFolder + "tools.json"));
  std::size_t n_equal = 0;
  for (const Json entry : file.at("templates")) {
    const std::string name = entry.at("name");
    SCOPED_TRACE(name);
    const auto chat = ChatTemplate::parse(read_file(kFolder + name + ".jinja"));
    ASSERT_TRUE(chat) << chat.error().message();
    const std::string bos_token = entry.at("bos_token");
    const std::string eos_token = entry.at("eos_token");
    const std::int64_t now_seconds = file.at("now_seconds");
    const ChatTemplateTraits traits =
        find_chat_template_traits(*chat, bos_token, eos_token, now_seconds);
    if (!traits.takes_tools || !traits.takes_calls) continue;
    for (std::size_t i = 0; i < entry.at("cases").size(); ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      const OrderedJson& asked = file.at("cases").at(i);
      if (asked.dump().find("tool_calls") == std::string::npos) continue;
      if (!entry.at("cases")[i].contains("expected")) continue;
      // Where a template leaves something out, a request does not.
      const bool has_system = asked.at("messages")[0].at("role") == "system";
      const bool has_many = asked.dump().find("callnr002") != std::string::npos;
      if ((has_system && !traits.takes_system) || (has_many && traits.single_calls)) continue;
      Request request = read_request(as_sent(asked));
      const auto adapted =
          adapt_chat(std::move(request.messages), std::move(request.tools), traits, false);
      ASSERT_TRUE(adapted) << adapted.error().message();
      expect_outcome(entry.at("cases")[i],
                     chat->render({.json_messages = &adapted->messages,
                                   .tools = adapted->tools ? &*adapted->tools : nullptr,
                                   .variables = &request.variables,
                                   .add_generation_prompt = asked.at("generate"),
                                   .bos_token = bos_token,
                                   .eos_token = eos_token,
                                   .now_seconds = now_seconds}));
      ++n_equal;
    }
  }
  EXPECT_GE(n_equal, 30U);
}

std::string shown(const ChatTemplateTraits& traits) {
  const std::pair<bool, const char*> names[] = {
      {traits.takes_system, "system"},       {traits.takes_developer, "developer"},
      {traits.takes_text, "text"},           {traits.takes_parts, "parts"},
      {traits.takes_tools, "tools"},         {traits.needs_tool_list, "tool_list"},
      {traits.takes_calls, "calls"},         {traits.calls_without_content, "without_content"},
      {traits.arguments_as_text, "as_text"}, {traits.short_call_ids, "short_ids"},
      {traits.single_calls, "single_calls"},
  };
  std::string all;
  for (const auto& [has, name] : names) {
    if (has) all += (all.empty() ? "" : " ") + std::string(name);
  }
  return all;
}

TEST(ChatGoldenTest, TemplatesOfModelsHaveTheirTraits) {
  const std::pair<const char*, const char*> expected[] = {
      {"deepseek-r1", "system text calls as_text"},
      {"deepseek-v3.1", "system text calls"},
      {"gemma-4-it", "system developer text parts tools calls"},
      {"gemma-it", "text"},
      {"glm-4.6", "system text parts tools calls"},
      {"gpt-oss", "system developer text tools calls single_calls"},
      {"granite-3.3-instruct", "system text tools"},
      {"hermes-3-tool-use", "system text tools tool_list calls"},
      {"kimi-k2-thinking", "system text parts tools calls"},
      {"llama-2-chat", "system text"},
      {"llama-3.1-instruct", "system text tools calls single_calls"},
      {"llama-3.2-instruct", "system text tools calls single_calls"},
      {"ministral-3-reasoning", "system text parts tools calls"},
      {"mistral-7b-instruct-v0.3", "text tools calls"},
      {"mistral-nemo-instruct", "system text tools calls short_ids"},
      {"mistral-small-3.2", "system text parts tools calls short_ids"},
      {"openchat-3.5", "system text"},
      {"qwen2.5-instruct", "system text tools calls"},
      {"qwen3", "system text tools calls"},
      {"qwen3-coder", "system text tools calls"},
      {"qwen3.5", "system text parts tools calls"},
  };
  for (const auto& [name, traits] : expected) {
    const auto chat = ChatTemplate::parse(read_file(kFolder + name + ".jinja"));
    ASSERT_TRUE(chat) << name;
    EXPECT_EQ(shown(find_chat_template_traits(*chat, "<s>", "</s>", 1'740'000'000)), traits)
        << name;
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
