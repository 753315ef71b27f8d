// SPDX-License-Identifier: MIT
//
// /v1/chat/completions with answers as the models of each family write them: reasoning, text and a
// call, whole and as a stream.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

using testing::HasSubstr;

struct Answer {
  std::string template_text;  // what tells the family
  std::string text;
  std::string trigger;
  std::string reasoning = {};
};

std::vector<Answer> family_answers() {
  return {
      {"<|im_start|> List of tools: [",
       "<think>Hm.</think>Ok.<|tool_call_start|>[f(a=1, b='x')]<|tool_call_end|>",
       "<|tool_call_start|>", "Hm."},
      {"<functions> <function_calls>",
       "<think>Hm.</think>Ok.<function_calls>\nf(a=1, b='x')\n</function_calls>",
       "<function_calls>", "Hm."},
      {"<|turn> <|tool_call>",
       "<|channel>thought\nHm.<channel|>Ok.<|tool_call>call:f{a:1,b:<|\"|>x<|\"|>}<tool_call|>",
       "<|tool_call>", "Hm."},
      {"<start_function_call> <escape>",
       "Ok.<start_function_call>call:f{a:1,b:<escape>x<escape>}<end_function_call>",
       "<start_function_call>"},
      {"<|START_ACTION|> <|START_RESPONSE|>",
       "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Ok.<|END_RESPONSE|><|START_ACTION|>["
       "{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"x\"}}]"
       "<|END_ACTION|>",
       "<|START_ACTION|>", "Hm."},
      {"<|/tool|> <|tool_call|>",
       "Ok.<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}]<|/tool_call|>",
       "<|tool_call|>"},
      {"<TOOLCALL>",
       "<think>Hm.</think>Ok.<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}]"
       "</TOOLCALL>",
       "<TOOLCALL>", "Hm."},
      {"[TOOL_CALLS] [ARGS]", "[THINK]Hm.[/THINK]Ok.[TOOL_CALLS]f[ARGS]{\"a\": 1, \"b\": \"x\"}",
       "[TOOL_CALLS]", "Hm."},
      {"<function= <parameter=",
       "<think>Hm.</think>Ok.<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
       "<parameter=b>\nx\n</parameter>\n</function>\n</tool_call>",
       "<tool_call>", "Hm."},
      {"<arg_key> <tool_call>",
       "<think>Hm.</think>Ok.<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
       "<arg_key>b</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
       "<tool_call>", "Hm."},
      {"<|channel|> <|message|>",
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
       "Ok.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>"
       "{\"a\": 1, \"b\": \"x\"}",
       " to=functions.", "Hm."},
      {"<tools> <tool_call>",
       "<think>Hm.</think>Ok.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": "
       "\"x\"}}"
       "\n</tool_call>",
       "<tool_call>", "Hm."},
  };
}

// Calls of these are the whole answer.
std::vector<Answer> bare_answers() {
  return {{"<|header_start|> [func_name1(", "[f(a=1, b=\"x\")]", ""},
          {"<|header_start|> \"parameters\": ",
           "{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"x\"}}", ""}};
}

std::string body_with(std::string_view more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function",)"
         R"("function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":)"
         R"("integer"},"b":{"type":"string"}}}}}])" +
         std::string(more) + "}";
}

constexpr const char* kArguments = R"("arguments":"{\"a\": 1, \"b\": \"x\"}")";

TEST(OpenAiFamilyCallsTest, WholeAndStreamed) {
  for (const Answer& answer : family_answers()) {
    SCOPED_TRACE(answer.template_text);
    FakeServer server;
    server.model.info.chat_template = answer.template_text.c_str();
    const std::string whole =
        server.answer("/v1/chat/completions", body_with(""), {answer.text}).body;
    EXPECT_THAT(whole, HasSubstr(R"("content":"Ok.")"));
    EXPECT_THAT(whole, HasSubstr(R"("function":{"name":"f",)" + std::string(kArguments)));
    EXPECT_THAT(whole, HasSubstr(R"("finish_reason":"tool_calls")"));
    if (!answer.reasoning.empty()) {
      EXPECT_THAT(whole, HasSubstr(R"("reasoning_content":")" + answer.reasoning + "\""));
    }
    EXPECT_TRUE(server.texts[0].keep_special);
    EXPECT_EQ(server.texts[0].constraint.trigger, answer.trigger);

    std::string stream;
    for (const std::string& write :
         server.answer("/v1/chat/completions", body_with(R"(,"stream":true)"), {answer.text})
             .writes) {
      stream += write;
    }
    EXPECT_THAT(stream, HasSubstr(kArguments));
    EXPECT_THAT(stream, HasSubstr(R"("finish_reason":"tool_calls")"));
    EXPECT_EQ(stream.find("<|"), std::string::npos) << stream;
  }
}

TEST(OpenAiFamilyCallsTest, CallsWithoutMarkers) {
  for (const Answer& answer : bare_answers()) {
    SCOPED_TRACE(answer.template_text);
    FakeServer server;
    server.model.info.chat_template = answer.template_text.c_str();
    const std::string whole =
        server.answer("/v1/chat/completions", body_with(""), {answer.text}).body;
    EXPECT_THAT(whole, HasSubstr(R"("content":null)"));
    EXPECT_THAT(whole, HasSubstr(kArguments));
    EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kNone);
    server.post("/v1/chat/completions", body_with(R"(,"tool_choice":"required")"));
    EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kGrammar);
    EXPECT_EQ(server.texts[0].constraint.trigger, "");
  }
}

// Where a template has no place for tools, the prompt asks for calls as Hermes writes them.
TEST(OpenAiFamilyCallsTest, ToolsThatThePromptDescribes) {
  FakeServer server;
  server.model.info.chat_template =
      "'<\xEF\xBD\x9Ctool\xE2\x96\x81"
      "call\xE2\x96\x81"
      "begin'";
  server.access.tools_in_system = true;
  const std::string whole =
      server
          .answer("/v1/chat/completions", body_with(""),
                  {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}\n"
                   "</tool_call>"})
          .body;
  EXPECT_THAT(whole, HasSubstr(kArguments));
  EXPECT_EQ(server.texts[0].constraint.trigger, "<tool_call>");
}

// A body of 2 MB may ask for a grammar of many GB.
TEST(OpenAiFamilyCallsTest, ToolsWhoseGrammarIsTooLongAreRefused) {
  std::string properties;
  for (int i = 0; i < 500; ++i) {
    properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"$ref":"#/$defs/d"})";
  }
  const std::string body =
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function",)"
      R"("function":{"name":"f","parameters":{"$defs":{"d":{"const":")" +
      std::string(500'000, 'd') + R"("}},"properties":{)" + properties + "}}}}]}";
  for (const char* chat_template :
       {"<|turn> <|tool_call>", "<arg_key> <tool_call>", "<tools> <tool_call>"}) {
    FakeServer server;
    server.model.info.chat_template = chat_template;
    const FakeExchange& refused = server.post("/v1/chat/completions", body);
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("the grammar of calls of the tools has more than 262144 "
                                        "bytes; name fewer tools, or shorter parameters"));
    EXPECT_THAT(refused.body, HasSubstr(R"("param":"tools")"));
    EXPECT_TRUE(server.texts.empty());
  }
}

// A constraint of the answer waits for the marker that these models put before it.
TEST(OpenAiFamilyCallsTest, ConstraintsBehindTheMarkerOfTheAnswer) {
  FakeServer server;
  server.model.info.chat_template = "<|START_ACTION|> <|START_RESPONSE|>";
  server.post("/v1/chat/completions", R"({"model":"m","messages":[{"role":"user","content":"hi"}],)"
                                      R"("response_format":{"type":"json_object"}})");
  EXPECT_EQ(server.texts[0].constraint.trigger, "<|START_RESPONSE|>");
}

}  // namespace
}  // namespace qsf_tools
