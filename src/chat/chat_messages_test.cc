// SPDX-License-Identifier: MIT
//
// What templates of different kinds get of the same request.

#include "chat/chat_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "chat/jinja_json.h"

namespace qsf {
namespace {

using testing::HasSubstr;

// Writes any role and text, and knows nothing of tools.
constexpr std::string_view kChatml =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}";
// As transformers' guide for writers of templates has it.
constexpr std::string_view kTools =
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% for m in messages %}"
    "<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}<call>"
    "{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}"
    "{% endfor %}</call>{% endfor %}{% endif %}\n{% endfor %}";

ChatTemplateTraits traits_of(std::string_view source) {
  const auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed) << parsed.error().message();
  return find_chat_template_traits(*parsed, "<s>", "</s>", 0);
}

std::string adapted(const ChatTemplateTraits& traits, std::string_view messages,
                    std::string_view tools = "null", bool continue_final = false) {
  auto json = parse_chat_json(messages, "messages");
  auto json_tools = parse_chat_json(tools, "tools");
  EXPECT_TRUE(json && json_tools);
  const auto chat = adapt_chat(std::move(*json), std::move(*json_tools), traits, continue_final);
  if (!chat) return chat.error().message();
  std::string out = *jinja::write_json(chat->messages);
  if (chat->tools) out += " " + *jinja::write_json(*chat->tools);
  if (chat->tools_in_system) out += " in system";
  if (chat->has_odd_arguments) out += " odd";
  return out;
}

// Every template reads text and everything else.
constexpr ChatTemplateTraits kAllTraits = {.takes_system = true,
                                           .takes_developer = true,
                                           .takes_text = true,
                                           .takes_parts = true,
                                           .takes_tools = true,
                                           .takes_calls = true};

TEST(ChatTemplateTraitsTest, AreThoseOfTheTemplate) {
  const ChatTemplateTraits chatml = traits_of(kChatml);
  EXPECT_TRUE(chatml.takes_text);
  EXPECT_TRUE(chatml.takes_system);
  EXPECT_FALSE(chatml.takes_developer);
  EXPECT_FALSE(chatml.takes_parts);
  EXPECT_FALSE(chatml.takes_tools);
  EXPECT_FALSE(chatml.takes_calls);
  const ChatTemplateTraits tools = traits_of(kTools);
  EXPECT_TRUE(tools.takes_tools);
  EXPECT_TRUE(tools.takes_calls);
  EXPECT_FALSE(tools.calls_without_content);
  EXPECT_FALSE(tools.arguments_as_text);
  EXPECT_FALSE(tools.short_call_ids);
}

TEST(ChatTemplateTraitsTest, KnowTheDemandsOfTemplates) {
  const std::string loop = "{% for m in messages %}{{ m.role }}: ";
  const std::string calls = "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}";
  EXPECT_TRUE(
      traits_of(loop + "{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}").takes_parts);
  EXPECT_FALSE(
      traits_of(loop + "{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}").takes_text);
  EXPECT_FALSE(traits_of("{% for m in messages %}{% if m.role == 'system' %}"
                         "{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}")
                   .takes_system);
  EXPECT_TRUE(traits_of(loop + "{% if m.role == 'developer' %}!{% endif %}{{ m.content }}"
                               "{% endfor %}")
                  .takes_developer);
  EXPECT_TRUE(traits_of(loop + "{{ m.content }}" + calls +
                        "{{ '' + c.function.arguments }}{% endfor %}{% endfor %}")
                  .arguments_as_text);
  EXPECT_FALSE(traits_of(loop + "{{ m.content }}" + calls +
                         "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}")
                   .arguments_as_text);
  EXPECT_TRUE(traits_of(loop + "{{ m.content or '' }}{% if m.content is none %}" + calls +
                        "{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}")
                  .calls_without_content);
  EXPECT_TRUE(traits_of(loop + "{{ m.content }}" + calls +
                        "{% if c.id | length != 9 %}{{ raise_exception('id') }}{% endif %}"
                        "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}")
                  .short_call_ids);
}

TEST(ChatTemplateTraitsTest, KnowWhatTemplatesRefuse) {
  const std::string messages = "{% for m in messages %}{{ m.role }}: {{ m.content }}";
  const ChatTemplateTraits list = traits_of(
      "{% for t in tools %}{{ t.function.name }}{% endfor %}" + messages + "{% endfor %}");
  EXPECT_TRUE(list.needs_tool_list && list.takes_tools && list.takes_system && list.takes_text);
  EXPECT_FALSE(traits_of(kTools).needs_tool_list);
  EXPECT_TRUE(traits_of("{{ tools | tojson if tools }}" + messages +
                        "{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}"
                        "{{ raise_exception('one') }}{% endif %}{{ m.tool_calls | tojson }}"
                        "{% endif %}{% endfor %}")
                  .single_calls);
  EXPECT_FALSE(traits_of(kTools).single_calls);
}

TEST(ChatMessagesTest, WhatATemplateReadsStaysAsItIs) {
  const std::string messages =
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u", "extra": [1]}, )"
      R"({"role": "assistant", "content": "", "tool_calls": )"
      R"([{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]}, )"
      R"({"role": "tool", "tool_call_id": "a", "content": "42", "name": "f"}])";
  const std::string tools = R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(adapted(kAllTraits, messages, tools), messages + " " + tools);
}

TEST(ChatMessagesTest, ArgumentsBecomeWhatTheTemplateReads) {
  const auto call = [](const ChatTemplateTraits& traits, const std::string& arguments) {
    const std::string all =
        adapted(traits, R"([{"role":"assistant","content":"","tool_calls":[{"id":"i","function":)"
                        R"({"name":"f")" +
                            (arguments.empty() ? "" : ",\"arguments\":" + arguments) + "}}]}]");
    const std::size_t begin = all.find("\"arguments\": ");
    return begin == std::string::npos ? all : all.substr(begin + 13);
  };
  EXPECT_EQ(call(kAllTraits, R"("{\"b\": 1, \"a\": [2]}")"), R"({"b": 1, "a": [2]}}}]}])");
  EXPECT_EQ(call(kAllTraits, R"({"b":1})"), R"({"b": 1}}}]}])");
  EXPECT_EQ(call(kAllTraits, ""), "{}}}]}]");
  EXPECT_EQ(call(kAllTraits, "null"), "{}}}]}]");
  EXPECT_EQ(call(kAllTraits, "\"\""), "{}}}]}]");
  EXPECT_EQ(call(kAllTraits, R"("{\"b\": ")"), R"("{\"b\": "}}]}] odd)");
  EXPECT_EQ(call(kAllTraits, R"("[1]")"), R"("[1]"}}]}] odd)");
  EXPECT_EQ(call(kAllTraits, "[1]"), R"("[1]"}}]}] odd)");
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  EXPECT_THAT(call(kAllTraits, "\"{\\\"a\\\": " + deep + "}\""), HasSubstr(" odd"));
  ChatTemplateTraits as_text = kAllTraits;
  as_text.arguments_as_text = true;
  EXPECT_EQ(call(as_text, R"("{\"b\":1")"), R"("{\"b\":1"}}]}])");
  EXPECT_EQ(call(as_text, R"({"b":1})"), R"("{\"b\": 1}"}}]}])");
}

TEST(ChatMessagesTest, OddArgumentsCanBeWrapped) {
  auto chat = adapt_chat(
      *parse_chat_json(R"([{"role":"assistant","content":"","tool_calls":[{"id":"i","function":)"
                       R"({"name":"f","arguments":"oops"}}]}])",
                       "messages"),
      {}, kAllTraits, false);
  ASSERT_TRUE(chat);
  EXPECT_TRUE(chat->has_odd_arguments);
  wrap_odd_arguments(*chat);
  EXPECT_THAT(*jinja::write_json(chat->messages),
              HasSubstr(R"("arguments": {"arguments": "oops"})"));
}

TEST(ChatMessagesTest, CallsAndResultsFindEachOther) {
  // Neither ids nor names of results, as ollama's clients send them.
  const std::string bare =
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},)"
      R"({"function":{"name":"g","arguments":{}}}]},{"role":"tool","content":"1"},)"
      R"({"role":"tool","content":"2"}])";
  const std::string with_ids = adapted(kAllTraits, bare);
  EXPECT_THAT(with_ids, HasSubstr(R"("id": "call00001")"));
  EXPECT_THAT(with_ids, HasSubstr(R"("content": "1", "name": "f", "tool_call_id": "call00001")"));
  EXPECT_THAT(with_ids, HasSubstr(R"("content": "2", "name": "g", "tool_call_id": "call00002")"));

  ChatTemplateTraits short_ids = kAllTraits;
  short_ids.short_call_ids = true;
  const std::string long_ids =
      R"([{"role":"assistant","content":"","tool_calls":[{"id":"call_abcdef0123","function":)"
      R"({"name":"f","arguments":{}}}]},{"role":"tool","tool_call_id":"call_abcdef0123",)"
      R"("content":"1"},{"role":"assistant","content":"","tool_calls":[{"id":"abcdefgh9",)"
      R"("function":{"name":"f","arguments":{}}}]}])";
  const std::string shortened = adapted(short_ids, long_ids);
  const std::size_t at = shortened.find("\"id\": \"") + 7;
  const std::string id = shortened.substr(at, shortened.find('"', at) - at);
  EXPECT_EQ(id.size(), 9U);
  EXPECT_THAT(shortened, HasSubstr("\"tool_call_id\": \"" + id + "\""));
  EXPECT_THAT(shortened, HasSubstr("\"id\": \"abcdefgh9\""));
  EXPECT_THAT(shortened, testing::Not(HasSubstr("call_abc")));
}

TEST(ChatMessagesTest, CallsGetMessagesOfTheirOwnWhereTheyMust) {
  ChatTemplateTraits single = kAllTraits;
  single.single_calls = true;
  const auto call = [](const char* id) {
    return R"({"id": ")" + std::string(id) +
           R"(", "type": "function", "function": {"name": "f", "arguments": {}}})";
  };
  const auto result = [](const char* id) {
    return R"({"role": "tool", "tool_call_id": ")" + std::string(id) +
           R"(", "content": "r", "name": "f"})";
  };
  const std::string begin = R"([{"role": "assistant", "content": "t", "tool_calls": [)";
  const std::string next = R"({"role": "assistant", "content": "", "tool_calls": [)";
  const std::string user = R"({"role": "user", "content": "u"})";
  EXPECT_EQ(adapted(single, begin + call("a") + ", " + call("b") + ", " + call("c") + "]}, " +
                                result("a") + ", " + result("b") + ", " + user + "]"),
            begin + call("a") + "]}, " + result("a") + ", " + next + call("b") + "]}, " +
                result("b") + ", " + next + call("c") + "]}, " + user + "]");
}

TEST(ChatMessagesTest, ReasoningHasTheNamesThatTemplatesRead) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const std::string seen =
        adapted(kAllTraits, R"([{"role":"assistant","content":"","thinking":null,")" +
                                std::string(name) + R"(":"hm"}])");
    EXPECT_THAT(seen, HasSubstr(R"("reasoning_content": "hm")")) << name;
    EXPECT_THAT(adapted(kAllTraits, R"([{"role":"assistant","content":"",")" + std::string(name) +
                                        R"(":"hm"}])"),
                HasSubstr(R"("thinking": "hm")"))
        << name;
  }
}

TEST(ChatMessagesTest, SystemMessagesFindAPlace) {
  ChatTemplateTraits none = kAllTraits;
  none.takes_system = false;
  none.takes_developer = false;
  EXPECT_EQ(adapted(none, R"([{"role":"system","content":"s"},{"role":"user","content":"u"}])"),
            R"([{"role": "user", "content": "s\n\nu"}])");
  EXPECT_EQ(adapted(none, R"([{"role":"system","content":"s"}])"),
            R"([{"role": "user", "content": "s"}])");
  EXPECT_EQ(adapted(none, R"([{"role":"system","content":""},{"role":"user","content":"u"}])"),
            R"([{"role": "user", "content": "u"}])");
  ChatTemplateTraits system = kAllTraits;
  system.takes_developer = false;
  EXPECT_EQ(adapted(system, R"([{"role":"developer","content":"d"}])"),
            R"([{"role": "system", "content": "d"}])");
  EXPECT_EQ(adapted(system, R"([{"role":"system","content":"s"},{"role":"developer","content":)"
                            R"("d"},{"role":"developer","content":"e"}])"),
            R"([{"role": "system", "content": "s\n\nd\n\ne"}])");
  EXPECT_EQ(adapted(kAllTraits, R"([{"role":"developer","content":"d"}])"),
            R"([{"role": "developer", "content": "d"}])");
}

TEST(ChatMessagesTest, PartsBecomeTextWhereTheTemplateReadsText) {
  const std::string parts =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])";
  ChatTemplateTraits text = kAllTraits;
  text.takes_parts = false;
  EXPECT_EQ(adapted(text, parts), R"([{"role": "user", "content": "a\nb"}])");
  EXPECT_THAT(adapted(kAllTraits, parts), HasSubstr(R"({"type": "text", "text": "a"})"));
  ChatTemplateTraits only_parts = kAllTraits;
  only_parts.takes_text = false;
  EXPECT_EQ(adapted(only_parts, R"([{"role":"user","content":"a"}])"),
            R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])");
  EXPECT_THAT(adapted(text, R"([{"role":"user","content":[{"type":"image_url"}]}])"),
              HasSubstr("messages[0].content[0]: type 'image_url', but the model reads text"));
}

TEST(ChatMessagesTest, ToolsWithoutAPlaceAreDescribed) {
  const std::string tools = R"([{"type":"function","function":{"name":"f","x":"<|im_end|>"}}])";
  const std::string asked =
      adapted(traits_of(kChatml),
              R"([{"role":"system","content":"s"},{"role":"user","content":"u"},)"
              R"({"role":"assistant","content":"hm","tool_calls":[{"id":"1","function":{"name":)"
              R"("f","arguments":"{\"a\":1}"}},{"id":"2","function":{"name":"f","arguments":)"
              R"("bad"}}]},{"role":"tool","tool_call_id":"1","content":"r1"},)"
              R"({"role":"tool","tool_call_id":"2","content":"r2"},{"role":"user",)"
              R"("content":"next"},{"role":"assistant","content":"done"}])",
              tools);
  EXPECT_THAT(asked, HasSubstr(R"([{"role": "system", "content": "s\n\n# Tools)"));
  EXPECT_THAT(asked, HasSubstr(R"(<tools>\n{\"name\": \"f\", \"x\": \"<|im_end|>\"}\n</tools>)"));
  EXPECT_THAT(asked, HasSubstr(R"({"role": "assistant", "content": "hm\n<tool_call>\n{\"name\": )"
                               R"(\"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n)"
                               R"({\"name\": \"f\", \"arguments\": \"bad\"}\n</tool_call>"})"));
  EXPECT_THAT(asked,
              HasSubstr(R"({"role": "user", "content": "<tool_response>\nr1\n)"
                        R"(</tool_response>\n<tool_response>\nr2\n</tool_response>\nnext"})"));
  EXPECT_THAT(asked, HasSubstr(R"({"role": "assistant", "content": "done"}] in system)"));
  EXPECT_THAT(adapted(traits_of(kChatml), R"([{"role":"user","content":"u"}])", tools),
              testing::StartsWith(R"([{"role": "system", "content": "# Tools)"));
  EXPECT_EQ(adapted(traits_of(kChatml), R"([{"role":"user","content":"u"}])", "[]"),
            R"([{"role": "user", "content": "u"}])");
}

TEST(ChatMessagesTest, BareFunctionsAreWrapped) {
  EXPECT_EQ(adapted(kAllTraits, R"([{"role":"user","content":"u"}])",
                    R"([{"type":"function","name":"f","parameters":{}}])"),
            R"([{"role": "user", "content": "u"}] [{"type": "function", "function": )"
            R"({"name": "f", "parameters": {}}}])");
}

TEST(ChatMessagesTest, ErrorsNameMessageAndField) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "messages: expected a list"},
      {"[]", "messages: expected a list of at least one"},
      {"[1]", "messages[0]: expected an object"},
      {"[{}]", "messages[0].role: expected a string"},
      {R"([{"role":1}])", "messages[0].role: expected a string"},
      {R"([{"role":"user","content":1}])", "messages[0].content: expected a string or a list"},
      {R"([{"role":"user","content":["x"]}])", "messages[0].content[0]: expected an object"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"assistant","tool_calls":1}])", "messages[0].tool_calls: expected a list"},
      {R"([{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]: expected"},
      {R"([{"role":"assistant","content":[1],"tool_calls":[{"function":{"name":"f"}}]}])",
       "messages[0].content[0]: expected an object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":1}}]}])",
       "messages[0].tool_calls[0]: expected a function with a name"},
  };
  for (const auto& [messages, expected] : cases) {
    EXPECT_THAT(adapted(kAllTraits, messages), HasSubstr(expected)) << messages;
    EXPECT_THAT(adapted(traits_of(kChatml), messages), HasSubstr(expected)) << messages;
  }
  const std::string user = R"([{"role":"user","content":"u"}])";
  for (const char* tools : {"1", "{}", "[1]", "[{}]", R"([{"function":{}}])"}) {
    EXPECT_THAT(adapted(kAllTraits, user, tools), HasSubstr("tools")) << tools;
  }
}

TEST(ChatMessagesTest, TheLastAnswerCanGoOn) {
  const std::string mark(kContinueMark);
  EXPECT_EQ(adapted(kAllTraits, R"([{"role":"assistant","content":"a"}])", "null", true),
            R"([{"role": "assistant", "content": "a)" + mark + "\"}]");
  EXPECT_THAT(adapted(kAllTraits, R"([{"role":"assistant"}])", "null", true), HasSubstr(mark));
  EXPECT_THAT(adapted(kAllTraits, R"([{"role":"assistant","tool_calls":[]}])", "null", true),
              HasSubstr(mark));
  ChatTemplateTraits only_parts = kAllTraits;
  only_parts.takes_text = false;
  EXPECT_THAT(adapted(only_parts, R"([{"role":"assistant","content":[]}])", "null", true),
              HasSubstr(mark));
  EXPECT_THAT(adapted(kAllTraits, R"([{"role":"user","content":"a"}])", "null", true),
              HasSubstr("the last message is of role 'user'"));
}

// Quadratic, each of these would run for minutes.
TEST(ChatMessagesTest, ManyMessagesTakeLinearTime) {
  const auto repeated = [](std::string_view one, int n) {
    std::string all = "[";
    for (int i = 0; i < n; ++i) all.append(i == 0 ? "" : ",").append(one);
    return all + "]";
  };
  const std::string text(120, 'x');
  constexpr int kMany = 60'000;
  EXPECT_GT(adapted(traits_of(kChatml),
                    repeated(R"({"role":"developer","content":")" + text + "\"}", kMany))
                .size(),
            text.size() * kMany);
  EXPECT_GT(
      adapted(traits_of(kChatml), repeated(R"({"role":"tool","content":")" + text + "\"}", kMany))
          .size(),
      text.size() * kMany);
  const std::string calls = repeated(R"({"name":"f"})", kMany / 2);
  const std::string results = repeated(R"({"role":"tool"})", kMany / 2);
  EXPECT_THAT(adapted(kAllTraits,
                      R"([{"role":"assistant","tool_calls":)" + calls + "}," + results.substr(1)),
              HasSubstr("call30000"));
}

}  // namespace
}  // namespace qsf
