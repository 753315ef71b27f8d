// SPDX-License-Identifier: MIT
//
// The fields of OpenAI's bodies: their classes, types and ranges, and bodies that are wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tools/serve/api/json_value.h"
#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";

std::string chat_body(std::string_view more) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + std::string(more) + "}";
}

// Checks that an error has all its members, and returns its param; "(null)" for null.
std::string error_param(const FakeExchange& exchange, std::string* code = nullptr) {
  JsonValue body;
  std::string error;
  EXPECT_TRUE(parse_json(exchange.body, JsonLimits(), body, error)) << exchange.body;
  const JsonValue* details = body.member("error");
  if (details == nullptr) return "(no error)";
  for (const char* name : {"message", "type"}) {
    EXPECT_TRUE(details->member(name) != nullptr && details->member(name)->text() != nullptr);
  }
  for (const char* name : {"param", "code"}) {
    const JsonValue* member = details->member(name);
    EXPECT_TRUE(member != nullptr && (member->is_null() || member->text() != nullptr)) << name;
  }
  if (code != nullptr)
    *code = details->member("code")->text() ? *details->member("code")->text() : "";
  const std::string* param = details->member("param")->text();
  return param == nullptr ? "(null)" : *param;
}

struct Refused {
  const char* field;   // as the error names it
  const char* member;  // of the body
};

// Wrong types and values outside of their ranges.
constexpr Refused kRefused[] = {
    {"model", R"("model":1)"},
    {"temperature", R"("temperature":"hot")"},
    {"temperature", R"("temperature":-0.1)"},
    {"temperature", R"("temperature":2.1)"},
    {"temperature", R"("temperature":[])"},
    {"top_p", R"("top_p":1.1)"},
    {"top_k", R"("top_k":1.5)"},
    {"top_k", R"("top_k":-2)"},
    {"top_k", R"("top_k":1e30)"},
    {"min_p", R"("min_p":-1)"},
    {"typical_p", R"("typical_p":0)"},
    {"frequency_penalty", R"("frequency_penalty":2.5)"},
    {"presence_penalty", R"("presence_penalty":-2.5)"},
    {"repeat_penalty", R"("repeat_penalty":0)"},
    {"repetition_penalty", R"("repetition_penalty":true)"},
    {"repeat_last_n", R"("repeat_last_n":-2)"},
    {"dry_multiplier", R"("dry_multiplier":-1)"},
    {"dry_base", R"("dry_base":0.5)"},
    {"dry_allowed_length", R"("dry_allowed_length":0)"},
    {"dry_window", R"("dry_window":-2)"},
    {"dry_breakers", R"("dry_breakers":[""])"},
    {"dry_sequence_breakers", R"("dry_sequence_breakers":[1])"},
    {"xtc_probability", R"("xtc_probability":2)"},
    {"xtc_threshold", R"("xtc_threshold":-1)"},
    {"seed", R"("seed":1.5)"},
    {"seed", R"("seed":18446744073709551615)"},
    {"seed", R"("seed":"1")"},
    {"ignore_eos", R"("ignore_eos":1)"},
    {"n", R"("n":0)"},
    {"n", R"("n":17)"},
    {"n", R"("n":"1")"},
    {"max_tokens", R"("max_tokens":-2)"},
    {"max_tokens", R"("max_tokens":1e18)"},
    {"max_completion_tokens", R"("max_completion_tokens":{})"},
    {"stop", R"("stop":5)"},
    {"stop", R"("stop":[""])"},
    {"stop", R"("stop":["a",null])"},
    {"stop", R"("stop":"a\u0000b")"},
    {"stop", R"("stop":["","","","","","","","","","","","","","","","",""])"},
    {"stop_token_ids", R"("stop_token_ids":[-1])"},
    {"stop_token_ids", R"("stop_token_ids":1)"},
    {"logit_bias", R"("logit_bias":5)"},
    {"logit_bias", R"("logit_bias":{"a":1})"},
    {"logit_bias", R"("logit_bias":{"1":101})"},
    {"logit_bias", R"("logit_bias":{"1":true})"},
    {"logit_bias", R"("logit_bias":{"260":1})"},
    {"logit_bias", R"("logit_bias":[[1]])"},
    {"logit_bias", R"("logit_bias":{"99999999999":1})"},
    {"logprobs", R"("logprobs":5)"},
    {"top_logprobs", R"("logprobs":true,"top_logprobs":21)"},
    {"top_logprobs", R"("top_logprobs":1)"},
    {"stream", R"("stream":"yes")"},
    {"stream_options", R"("stream_options":true)"},
    {"stream_options.include_usage", R"("stream_options":{"include_usage":1})"},
    {"response_format", R"("response_format":"json")"},
    {"response_format.type", R"("response_format":{})"},
    {"response_format.type", R"("response_format":{"type":"xml"})"},
    {"response_format.json_schema", R"("response_format":{"type":"json_schema"})"},
    {"response_format.json_schema.schema",
     R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})"},
    {"grammar", R"("grammar":5)"},
    {"grammar", R"("grammar":"root ::= \"a\"","json_schema":{})"},
    {"json_schema", R"("json_schema":"{")"},
    {"tools", R"("tools":{})"},
    {"tools[0].type", R"("tools":[{"type":"web_search"}])"},
    {"tools[0].type", R"("tools":[5])"},
    {"tools[0].function.name", R"("tools":[{"type":"function","function":{}}])"},
    {"tools[0].function.parameters",
     R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])"},
    {"tools[1].function.name", R"("tools":[{"type":"function","function":{"name":"f"}},)"
                               R"({"type":"function","function":{"name":"f"}}])"},
    {"tool_choice", R"("tool_choice":"all")"},
    {"tool_choice", R"("tool_choice":"required")"},
    {"tool_choice", R"("tool_choice":{"type":"function","function":{"name":"f"}})"},
    {"tool_choice", R"("tool_choice":{"type":"allowed_tools"})"},
    {"tools",
     R"("tools":[{"type":"function","function":{"name":"f"}}],"grammar":"root ::= \"a\"")"},
    {"parallel_tool_calls", R"("parallel_tool_calls":"no")"},
    {"reasoning_effort", R"("reasoning_effort":1)"},
    {"reasoning_format", R"("reasoning_format":"xml")"},
    {"enable_thinking", R"("enable_thinking":"no")"},
    {"chat_template_kwargs", R"("chat_template_kwargs":[])"},
    {"continue_final_message", R"("continue_final_message":true,"add_generation_prompt":true)"},
    {"cache_salt", R"("cache_salt":1)"},
    {"service_tier", R"("service_tier":"priority")"},
    // What would change the text, and is not built.
    {"best_of", R"("best_of":2)"},
    {"store", R"("store":true)"},
    {"modalities", R"("modalities":["text","audio"])"},
    {"audio", R"("audio":{"voice":"x"})"},
    {"functions", R"("functions":[{"name":"f"}])"},
    {"function_call", R"("function_call":{"name":"f"})"},
    {"web_search_options", R"("web_search_options":{"a":1})"},
    {"verbosity", R"("verbosity":"low")"},
    {"chat_template", R"("chat_template":"{{ x }}")"},
    {"mirostat", R"("mirostat":2)"},
    {"dynatemp_range", R"("dynatemp_range":0.5)"},
    {"samplers", R"("samplers":["top_k"])"},
    {"use_beam_search", R"("use_beam_search":true)"},
    {"length_penalty", R"("length_penalty":2)"},
    {"min_tokens", R"("min_tokens":5)"},
    {"guided_regex", R"("guided_regex":"a+")"},
    {"top_n_sigma", R"("top_n_sigma":1)"},
};

TEST(OpenAiFieldsTest, NamesTheFieldThatIsWrong) {
  for (const Refused& refused : kRefused) {
    FakeServer server;
    const FakeExchange& exchange = server.post(kChat, chat_body(refused.member));
    EXPECT_EQ(exchange.status, 400) << refused.member;
    EXPECT_EQ(error_param(exchange), refused.field) << refused.member;
    EXPECT_EQ(exchange.header("x-should-retry"), "false");
    EXPECT_EQ(exchange.n_ends, 1) << refused.member;
  }
}

// Values that ask for nothing, fields without effect, and null in each.
TEST(OpenAiFieldsTest, AcceptsWhatAsksForNothing) {
  for (const char* member : {R"("best_of":1)",
                             R"("store":false)",
                             R"("modalities":["text"])",
                             R"("functions":[])",
                             R"("function_call":"none")",
                             R"("logit_bias":{})",
                             R"("logprobs":false)",
                             R"("n":1)",
                             R"("mirostat":0)",
                             R"("samplers":[])",
                             R"("use_beam_search":false)",
                             R"("tools":[])",
                             R"("length_penalty":1.0)",
                             R"("min_tokens":0)",
                             R"("top_n_sigma":-1)",
                             R"("stop":[])",
                             R"("response_format":{"type":"text"})",
                             R"("verbosity":"medium")",
                             R"("grammar":"")",
                             R"("skip_special_tokens":true)",
                             R"("user":"u")",
                             R"("metadata":{"a":"b"})",
                             R"("service_tier":"auto")",
                             R"("safety_identifier":"x")",
                             R"("prompt_cache_key":"k")",
                             R"("keep_alive":"5m")",
                             R"("tool_choice":"auto")",
                             R"("top_p":0)"}) {
    FakeServer server;
    server.settings.strict_fields = true;
    const FakeExchange& exchange = server.post(kChat, chat_body(member));
    EXPECT_EQ(exchange.status, 0) << member << exchange.body;
    EXPECT_EQ(server.texts.size(), 1U) << member;
  }
  for (const Refused& refused : kRefused) {
    const std::string_view name = refused.field;
    if (name.find_first_of(".[") != std::string_view::npos) continue;
    FakeServer server;
    server.settings.strict_fields = true;
    server.post(kChat, chat_body("\"" + std::string(name) + "\":null"));
    EXPECT_EQ(server.texts.size(), 1U) << name << server.exchange->body;
  }
}

TEST(OpenAiFieldsTest, ReportsUnknownFields) {
  FakeServer server;
  const std::string body =
      chat_body(R"("frobnicate":1,"a b\r\nX-Evil: 1":2,"stream_options":{"new":1},"stream":true)");
  server.answer(kChat, body, {"a"});
  EXPECT_EQ(server.exchange->header("X-QSF-Ignored-Fields"), "frobnicate, a?b??X-Evil??1");
  EXPECT_EQ(server.settings.counters.ignored_fields, 2U);
  server.settings.strict_fields = true;
  std::string code;
  const FakeExchange& strict = server.post(kChat, body);
  EXPECT_EQ(strict.status, 400);
  EXPECT_EQ(error_param(strict, &code), "frobnicate");
  EXPECT_EQ(code, "unknown_parameter");
  EXPECT_THAT(strict.body, HasSubstr("Unknown parameter: 'frobnicate'."));
  // Members of messages may be anything.
  server.post(kChat, R"({"messages":[{"role":"user","content":"a","x":1}]})");
  EXPECT_EQ(server.texts.size(), 1U);
}

TEST(OpenAiFieldsTest, ListsNotMoreThanAHeaderHolds) {
  FakeServer server;
  std::string members;
  for (int i = 0; i < 1000; ++i) members += "\"field" + std::to_string(i) + "\":0,";
  server.answer(kChat, chat_body(members + R"("n":1)"), {"a"});
  EXPECT_EQ(server.exchange->status, 200);
  EXPECT_LE(server.exchange->header("X-QSF-Ignored-Fields").size(), 1100U);
  EXPECT_EQ(server.settings.counters.ignored_fields, 1000U);
}

TEST(OpenAiFieldsTest, ReadsSampling) {
  FakeServer server;
  server.settings.sampling.temperature = 0.3F;
  server.post(kChat,
              chat_body(R"("top_k":-1,"top_p":0.5,"min_p":0.1,"typical_p":0.9,"repeat_last_n":-1,)"
                        R"("repetition_penalty":1.5,"frequency_penalty":-2,"presence_penalty":2,)"
                        R"("dry_multiplier":0.8,"dry_base":2,"dry_allowed_length":3,)"
                        R"("dry_penalty_last_n":10,"dry_sequence_breakers":["\n"],)"
                        R"("xtc_probability":0.5,"xtc_threshold":0.2,"seed":5,"ignore_eos":true,)"
                        R"("logit_bias":{"65":-100,"66":1.5},"stop":"END","stop_token_ids":[3],)"
                        R"("max_tokens":9,"max_completion_tokens":8)"));
  ASSERT_EQ(server.texts.size(), 1U) << server.exchange->body;
  const TextRequest& text = server.texts[0];
  const qsf_sampling& sampling = text.sampling;
  EXPECT_EQ(sampling.temperature, 0.3F);  // the server's
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.top_p, 0.5F);
  EXPECT_EQ(sampling.min_p, 0.1F);
  EXPECT_EQ(sampling.typical_p, 0.9F);
  EXPECT_EQ(sampling.repeat_window, std::numeric_limits<int>::max());
  EXPECT_EQ(sampling.repeat_penalty, 1.5F);
  EXPECT_EQ(sampling.frequency_penalty, -2);
  EXPECT_EQ(sampling.presence_penalty, 2);
  EXPECT_EQ(sampling.dry_multiplier, 0.8F);
  EXPECT_EQ(sampling.dry_base, 2);
  EXPECT_EQ(sampling.dry_allowed_length, 3);
  EXPECT_EQ(sampling.dry_window, 10);
  EXPECT_EQ(sampling.xtc_probability, 0.5F);
  EXPECT_EQ(sampling.xtc_threshold, 0.2F);
  EXPECT_EQ(sampling.seed, 5U);
  EXPECT_TRUE(text.ignore_end);
  ASSERT_EQ(text.logit_bias.size(), 2U);
  EXPECT_EQ(text.logit_bias[1].token, 66);
  EXPECT_EQ(text.logit_bias[1].bias, 1.5F);
  EXPECT_THAT(text.dry_breakers, ElementsAre("\n"));
  EXPECT_THAT(text.stop, ElementsAre("END", "<end>"));
  EXPECT_THAT(text.end_tokens, ElementsAre(3, 7));
  EXPECT_EQ(text.max_tokens, 8);
  server.post(kChat, chat_body(R"("logit_bias":[[65,false],[66,2]])"));
  EXPECT_EQ(server.texts.at(0).logit_bias.at(0).bias, -HUGE_VALF);
}

TEST(OpenAiFieldsTest, RefusesMessagesThatAreWrong) {
  const Refused kMessages[] = {
      {"messages", R"({})"},
      {"messages", R"({"messages":null})"},
      {"messages", R"({"messages":"hi"})"},
      {"messages", R"({"messages":[]})"},
      {"messages[0]", R"({"messages":["hi"]})"},
      {"messages[0].role", R"({"messages":[{"content":"hi"}]})"},
      {"messages[0].role", R"({"messages":[{"role":"king","content":"hi"}]})"},
      {"messages[1].content", R"({"messages":[{"role":"user","content":""},{"role":"user"}]})"},
      {"messages[0].content", R"({"messages":[{"role":"user","content":5}]})"},
      {"messages[0].content", R"({"messages":[{"role":"system","content":null}]})"},
      {"messages[0].content[0]", R"({"messages":[{"role":"user","content":["a"]}]})"},
      {"messages[0].content[0].type",
       R"({"messages":[{"role":"user","content":[{"type":"smell"}]}]})"},
      {"messages[0].content[0].text",
       R"({"messages":[{"role":"user","content":[{"type":"text","text":1}]}]})"},
      {"messages[0].tool_calls", R"({"messages":[{"role":"assistant","tool_calls":{}}]})"},
      {"messages[0].tool_calls[0].function.name",
       R"({"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]})"},
  };
  for (const Refused& refused : kMessages) {
    FakeServer server;
    EXPECT_EQ(error_param(server.post(kChat, refused.member)), refused.field) << refused.member;
    EXPECT_EQ(server.exchange->status, 400);
  }
}

TEST(OpenAiFieldsTest, SaysThatTheModelReadsTextAlone) {
  for (const char* type : {"image_url", "input_audio", "file"}) {
    FakeServer server;
    const FakeExchange& exchange = server.post(
        kChat, R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":")" +
                   std::string(type) + R"("}]}]})");
    EXPECT_EQ(exchange.status, 400);
    EXPECT_EQ(error_param(exchange), "messages[0].content[1]");
    EXPECT_THAT(exchange.body, HasSubstr("the model was imported for text alone"));
  }
}

// Whatever arrives, there is one answer, and it is no error of the server's.
TEST(OpenAiFieldsTest, AnswersEveryPrefix) {
  const std::string kBodies[] = {
      chat_body(R"("stream":true,"stop":["a","\u00e9"],"logit_bias":{"1":2},"tools":[{"type":)"
                R"("function","function":{"name":"f"}}],"n":2,"temperature":1.5e-1)"),
      R"({"prompt":["a",[1,2]],"n":2,"echo":true,"suffix":"x","logprobs":1})",
      R"({"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},)"
      R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"}],"tools":[]})"};
  const char* const kPaths[] = {kChat, "/v1/completions", "/v1/responses"};
  for (const char* path : kPaths) {
    for (const std::string& body : kBodies) {
      for (std::size_t size = 0; size < body.size(); ++size) {
        FakeServer server;
        const FakeExchange& exchange = server.post(path, body.substr(0, size));
        ASSERT_EQ(exchange.status, 400) << size;
        ASSERT_EQ(exchange.n_ends, 1);
      }
    }
  }
}

TEST(OpenAiFieldsTest, RefusesHostileBodies) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::string many = R"({"messages":[)";
  for (int i = 0; i < 600'000; ++i) many += "0,";
  many += "0]}";
  const std::string kBodies[] = {"",
                                 "[]",
                                 "null",
                                 "5",
                                 "\"a\"",
                                 "{\"messages\":" + deep + "}",
                                 many,
                                 R"({"messages":[],"messages":[]})",
                                 "{\"a\":\"\xFF\"}",
                                 R"({"a":"\ud800"})",
                                 "{\"a\":NaN}",
                                 "{\"a\":1e400}"};
  for (const char* path : {kChat, "/v1/completions", "/v1/embeddings", "/v1/responses",
                           "/v1/responses/input_tokens", "/v1/chat/completions/input_tokens"}) {
    for (const std::string& body : kBodies) {
      FakeServer server;
      const FakeExchange& exchange = server.post(path, body);
      EXPECT_EQ(exchange.status, 400) << path << " " << body.substr(0, 50);
      error_param(exchange);
    }
  }
}

}  // namespace
}  // namespace qsf_tools
