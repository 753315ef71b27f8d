// SPDX-License-Identifier: MIT
//
// /v1/chat/completions from body to bytes, with a model whose tokens are bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/serve/api/json_value.h"
#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kChatPath = "/v1/chat/completions";
constexpr const char* kChatTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

std::string body(std::string_view more) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
         std::string(more.empty() ? "" : ",") + std::string(more) + "}";
}

std::string head(std::string_view object) {
  return R"({"id":"chatcmpl-1","object":")" + std::string(object) +
         R"(","created":1700000000,"model":"m","system_fingerprint":"b)" + qsf_version() + "\",";
}

// An event with one choice; `rest` is what stands behind the delta.
std::string chunk(int index, std::string_view delta, std::string_view rest) {
  return "data: " + head("chat.completion.chunk") + R"("choices":[{"index":)" +
         std::to_string(index) + R"(,"delta":)" + std::string(delta) + "," + std::string(rest) +
         "}\n\n";
}

constexpr const char* kGoesOn = R"("logprobs":null,"finish_reason":null}])";
constexpr const char* kStopped = R"("logprobs":null,"finish_reason":"stop"}])";

TEST(OpenAiChatTest, AnswersWhole) {
  FakeServer server;
  server.post(kChatPath, body(""));
  EXPECT_EQ(server.exchange->request().body, "");  // its memory is free while the job waits
  const FakeExchange& exchange = server.answer(kChatPath, body(""), {"H\u00e9!"});
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.header("Content-Type"), "application/json");
  EXPECT_EQ(exchange.header("X-QSF-Ignored-Fields"), "");
  EXPECT_EQ(exchange.body,
            head("chat.completion") +
                R"("choices":[{"index":0,"message":{"role":"assistant","content":"H)"
                "\u00e9"
                R"(!",)"
                R"("refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
                R"("usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9,)"
                R"("prompt_tokens_details":{"cached_tokens":2},)"
                R"("completion_tokens_details":{"reasoning_tokens":0}}})");
  EXPECT_EQ(exchange.n_ends, 1);
}

TEST(OpenAiChatTest, StreamsChunks) {
  FakeServer server;
  server.post(kChatPath, body(R"("stream":true)"));
  EXPECT_EQ(server.exchange->status, 0);
  server.job->on_admitted();
  // Headers and the role come before any text.
  EXPECT_EQ(server.exchange->status, 200);
  EXPECT_EQ(server.exchange->header("Content-Type"), "text/event-stream");
  EXPECT_EQ(server.exchange->keep_alive, ":\n\n");
  ASSERT_EQ(server.exchange->writes.size(), 1U);
  server.generate(0, "H\u00e9");
  server.job->on_end();
  EXPECT_THAT(server.exchange->writes,
              ElementsAre(chunk(0, R"({"role":"assistant","content":""})", kGoesOn),
                          chunk(0, R"({"content":"H"})", kGoesOn),
                          chunk(0,
                                R"({"content":")"
                                "\u00e9"
                                R"("})",
                                kGoesOn),
                          chunk(0, "{}", kStopped), "data: [DONE]\n\n"));
  EXPECT_EQ(server.exchange->n_ends, 1);
}

TEST(OpenAiChatTest, StreamsUsageInAChunkOfItsOwn) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kChatPath, body(R"("stream":true,"stream_options":{"include_usage":true})"),
                    {"a"}, TextEnd::kLength);
  const std::string no_usage = std::string(R"("usage":null)");
  EXPECT_THAT(
      exchange.writes,
      ElementsAre(
          chunk(0, R"({"role":"assistant","content":""})", kGoesOn + ("," + no_usage)),
          chunk(0, R"({"content":"a"})", kGoesOn + ("," + no_usage)),
          chunk(0, "{}", R"("logprobs":null,"finish_reason":"length"}],)" + no_usage),
          "data: " + head("chat.completion.chunk") +
              R"("choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,)"
              R"("prompt_tokens_details":{"cached_tokens":2},)"
              R"("completion_tokens_details":{"reasoning_tokens":0}}})"
              "\n\n",
          "data: [DONE]\n\n"));
}

TEST(OpenAiChatTest, GivesEachChoiceASeedAndAnIndex) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kChatPath, body(R"("stream":true,"n":2,"seed":-1)"), {"a", "b"});
  ASSERT_EQ(server.texts.size(), 2U);
  EXPECT_EQ(server.texts[0].sampling.seed, 0xFFFFFFFFFFFFFFFFU);
  EXPECT_EQ(server.texts[1].sampling.seed, 0U);
  EXPECT_THAT(exchange.writes,
              ElementsAre(chunk(0, R"({"role":"assistant","content":""})", kGoesOn),
                          chunk(1, R"({"role":"assistant","content":""})", kGoesOn),
                          chunk(0, R"({"content":"a"})", kGoesOn), chunk(0, "{}", kStopped),
                          chunk(1, R"({"content":"b"})", kGoesOn), chunk(1, "{}", kStopped),
                          "data: [DONE]\n\n"));
  server.post(kChatPath, body(""));
  EXPECT_EQ(server.texts[0].sampling.seed, 77U);  // a random one
}

// The joined tokens of all chunks are the text; bytes of a character come with its last one.
TEST(OpenAiChatTest, StreamsLogProbsWithTheirText) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kChatPath, body(R"("stream":true,"logprobs":true)"), {"a\u00e9"});
  EXPECT_THAT(
      exchange.writes[1],
      HasSubstr(R"({"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5,)"
                R"("bytes":[97],"top_logprobs":[]}],"refusal":null},"finish_reason":null)"));
  EXPECT_THAT(exchange.writes[2],
              HasSubstr(R"({"content":")"
                        "\u00e9"
                        R"("},"logprobs":{"content":[{"token":")"
                        "\ufffd"
                        R"(","logprob":-0.5,)"
                        R"("bytes":[195],"top_logprobs":[]},{"token":")"
                        "\ufffd"
                        R"(","logprob":-0.5,)"
                        R"("bytes":[169],"top_logprobs":[]}],"refusal":null})"));
}

TEST(OpenAiChatTest, WritesTopLogProbs) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kChatPath, body(R"("logprobs":true,"top_logprobs":2)"), {"a"});
  EXPECT_EQ(server.texts[0].n_top_log_probs, 2);
  EXPECT_THAT(exchange.body,
              HasSubstr(R"("logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],)"
                        R"("top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},)"
                        R"({"token":"z","logprob":-1.5,"bytes":[122]}]}],"refusal":null})"));
}

TEST(OpenAiChatTest, SplitsReasoningOff) {
  FakeServer server;
  server.access.prompt_text = "<think>";
  const FakeExchange& whole = server.answer(kChatPath, body(""), {"so</think>a"});
  EXPECT_TRUE(server.texts[0].keep_special);
  EXPECT_THAT(whole.body, HasSubstr(R"("content":"a","refusal":null,"reasoning_content":"so"})"));
  EXPECT_THAT(whole.body, HasSubstr(R"("reasoning_tokens":2)"));
  const FakeExchange& stream = server.answer(kChatPath, body(R"("stream":true)"), {"s</think>a"});
  EXPECT_THAT(stream.writes[1], HasSubstr(R"("delta":{"reasoning_content":"s"})"));
  EXPECT_THAT(stream.writes[2], HasSubstr(R"("delta":{"content":"a"})"));
  const FakeExchange& kept =
      server.answer(kChatPath, body(R"("reasoning_format":"none")"), {"s</think>a"});
  EXPECT_FALSE(server.texts[0].keep_special);
  EXPECT_THAT(kept.body, HasSubstr(R"("content":"s</think>a")"));
}

TEST(OpenAiChatTest, AnswersWithCalls) {
  FakeServer server;
  const FakeExchange& whole = server.answer(
      kChatPath, body(kChatTools), {R"(<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>)"});
  EXPECT_THAT(whole.body,
              HasSubstr(R"("message":{"role":"assistant","content":null,"refusal":null,)"
                        R"("tool_calls":[{"id":"call_2","type":"function",)"
                        R"("function":{"name":"f","arguments":"{\"a\":1}"}}]},"logprobs":null,)"
                        R"("finish_reason":"tool_calls")"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kGrammar);
  EXPECT_EQ(server.texts[0].constraint.trigger, "<tool_call>");
  server.n_ids = 0;
  const FakeExchange& stream =
      server.answer(kChatPath, body(std::string(kChatTools) + R"(,"stream":true)"),
                    {"x" + std::string(kHermesCall) + kHermesCall});
  EXPECT_THAT(stream.writes,
              ElementsAre(chunk(0, R"({"role":"assistant","content":""})", kGoesOn),
                          chunk(0, R"({"content":"x"})", kGoesOn),
                          chunk(0,
                                R"({"tool_calls":[{"index":0,"id":"call_2","type":"function",)"
                                R"("function":{"name":"f","arguments":"{}"}}]})",
                                kGoesOn),
                          chunk(0,
                                R"({"tool_calls":[{"index":1,"id":"call_3","type":"function",)"
                                R"("function":{"name":"f","arguments":"{}"}}]})",
                                kGoesOn),
                          chunk(0, "{}", R"("logprobs":null,"finish_reason":"tool_calls"}])"),
                          "data: [DONE]\n\n"));
}

TEST(OpenAiChatTest, EndsBehindTheOnlyCall) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kChatPath, body(std::string(kChatTools) + R"(,"parallel_tool_calls":false)"),
                    {std::string(kHermesCall) + kHermesCall}, TextEnd::kReceiver);
  EXPECT_FALSE(server.goes_on);
  EXPECT_THAT(exchange.body, HasSubstr(R"("id":"call_2")"));
  EXPECT_EQ(exchange.body.find("call_3"), std::string::npos);
  EXPECT_THAT(exchange.body, HasSubstr(R"("finish_reason":"tool_calls")"));
}

TEST(OpenAiChatTest, DoesNotLookForCallsThatAreNotWanted) {
  FakeServer server;
  const FakeExchange& exchange = server.answer(
      kChatPath, body(std::string(kChatTools) + R"(,"tool_choice":"none")"), {kHermesCall});
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kNone);
  EXPECT_THAT(exchange.body, HasSubstr(R"("content":"<tool_call>{\"name\")"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("finish_reason":"stop")"));
}

// The prompt opens reasoning, and the constraint is about the answer alone.
TEST(OpenAiChatTest, ConstrainsTheAnswerBehindReasoning) {
  FakeServer server;
  server.post(kChatPath, body(R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kJsonObject);
  EXPECT_EQ(server.texts[0].constraint.trigger, "");
  server.access.prompt_text = "<think>";
  server.post(kChatPath, body(R"("response_format":{"type":"json_object"})"));
  EXPECT_EQ(server.texts[0].constraint.trigger, "</think>");
}

TEST(OpenAiChatTest, KeepsTheOrderOfASchema) {
  FakeServer server;
  server.post(kChatPath,
              body(R"("response_format":{"type":"json_schema","json_schema":{"name":"x",)"
                   R"("strict":true,"schema":{"z":1,"a":{"y":[],"b":2.0}}}})"));
  ASSERT_EQ(server.texts.size(), 1U);
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kJsonSchema);
  EXPECT_EQ(server.texts[0].constraint.source, R"({"z":1,"a":{"y":[],"b":2.0}})");
  server.post(kChatPath, body(R"("grammar":"root ::= \"a\"")"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kGrammar);
  EXPECT_EQ(server.texts[0].constraint.source, "root ::= \"a\"");
}

TEST(OpenAiChatTest, ReadsMessages) {
  FakeServer server;
  const std::string text =
      R"({"messages":[{"role":"developer","content":"d"},)"
      R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"x":1},)"
      R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"f","arguments":"{bad"}}]},)"
      R"({"role":"function","name":"f","content":"r"}]})";
  server.post(kChatPath, text);
  EXPECT_EQ(server.access.asked.messages,
            R"([{"role":"developer","content":"d"},{"role":"user","content":"a\nb","x":1},)"
            R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":"{bad"}}]},)"
            R"({"role":"tool","name":"f","content":"r"}])");
  ASSERT_EQ(server.texts.size(), 1U);
  EXPECT_THAT(server.texts[0].end_tokens, ElementsAre(7));
  EXPECT_THAT(server.texts[0].stop, ElementsAre("<end>"));
  EXPECT_EQ(server.job->model(), "");
}

TEST(OpenAiChatTest, PassesVariablesToTheTemplate) {
  FakeServer server;
  server.post(kChatPath, body(R"("reasoning_effort":"none","chat_template_kwargs":{"b":[1]})"));
  EXPECT_EQ(server.access.asked.variables,
            R"({"reasoning_effort":"none","enable_thinking":false,"b":[1]})");
  server.post(kChatPath, body(R"("continue_final_message":true)"));
  EXPECT_TRUE(server.access.continues_final);
  EXPECT_FALSE(server.access.adds_generation_prompt);
}

TEST(OpenAiChatTest, RefusesPromptsThatFillTheContext) {
  FakeServer server;
  server.access.n_prompt_tokens = 100;
  const FakeExchange& exchange = server.post(kChatPath, body(R"("stream":true)"));
  EXPECT_EQ(exchange.status, 400);
  EXPECT_EQ(exchange.header("x-should-retry"), "false");
  JsonValue parsed;
  std::string error;
  ASSERT_TRUE(parse_json(exchange.body, JsonLimits(), parsed, error));
  const JsonValue& details = *parsed.member("error");
  EXPECT_EQ(*details.member("code")->text(), "context_length_exceeded");
  EXPECT_EQ(*details.member("type")->text(), "exceed_context_size_error");
  EXPECT_EQ(details.member("n_prompt_tokens")->integer(), 100);
  EXPECT_EQ(details.member("n_ctx")->integer(), 100);
  EXPECT_THAT(*details.member("message")->text(),
              HasSubstr("This model's maximum context length is 100 tokens."));
  server.access.n_prompt_tokens = 99;
  server.post(kChatPath, body(R"("max_tokens":50)"));
  EXPECT_EQ(server.texts.at(0).max_tokens, 1);
  server.post(kChatPath, body(R"("max_tokens":-1)"));
  EXPECT_EQ(server.texts.at(0).max_tokens, -1);
}

TEST(OpenAiChatTest, TellsErrorsBehindTheHeaders) {
  FakeServer server;
  server.post(kChatPath, body(R"("stream":true)"));
  server.job->on_admitted();
  server.job->on_error(http_error(500, "the file was cut"));
  EXPECT_EQ(server.exchange->writes.back(),
            R"(data: {"error":{"message":"the file was cut","type":"server_error","param":null,)"
            R"("code":null}})"
            "\n\n");
  EXPECT_EQ(server.exchange->n_ends, 1);
  EXPECT_EQ(server.exchange->body.find("[DONE]"), std::string::npos);
  // Before them it is a response with its status.
  server.post(kChatPath, body(R"("stream":true)"));
  ApiError full = http_error(429, "the queue is full");
  full.retry_after_seconds = 7;
  server.job->on_error(full);
  EXPECT_EQ(server.exchange->status, 429);
  EXPECT_EQ(server.exchange->header("Retry-After"), "7");
  EXPECT_EQ(server.exchange->header("x-should-retry"), "");
  EXPECT_THAT(server.exchange->body, HasSubstr(R"("type":"rate_limit_error")"));
}

TEST(OpenAiChatTest, StopsForAClientThatHasGone) {
  FakeServer server;
  server.post(kChatPath, body(R"("stream":true)"));
  server.job->on_admitted();
  EXPECT_FALSE(server.job->is_full());
  server.exchange->full = true;
  EXPECT_TRUE(server.job->is_full());
  server.exchange->gone = true;
  EXPECT_TRUE(server.job->is_gone());
  server.generate(0, "a");
  EXPECT_FALSE(server.goes_on);
  // A whole answer needs no room before its end.
  server.post(kChatPath, body(""));
  server.exchange->full = true;
  EXPECT_FALSE(server.job->is_full());
}

TEST(OpenAiChatTest, NamesTheToolWithABadSchema) {
  FakeServer server;
  const std::string second = R"({"type":"function","function":{"name":"g","parameters":)"
                             R"({"type":"not-a-type"}}})";
  std::string tools = kChatTools;
  tools.insert(tools.size() - 1, "," + second);
  server.post(kChatPath, body(tools));
  ASSERT_NE(server.job, nullptr);
  EXPECT_EQ(server.texts.at(0).constraint.param, "tools");
  ApiError refused = invalid_field("tools", "line 1: unknown type");
  server.job->on_error(refused);
  EXPECT_THAT(server.exchange->body, HasSubstr(R"("param":"tools[1].function.parameters")"));
  EXPECT_THAT(server.exchange->body, HasSubstr("the tool 'g': unknown type"));
  server.post(kChatPath, body(R"("grammar":"root ::= ")"));
  EXPECT_EQ(server.texts.at(0).constraint.param, "grammar");
}

TEST(OpenAiChatTest, KeepsTenantsApart) {
  FakeServer server;
  server.post(kChatPath, body(""));
  EXPECT_EQ(server.job->tenant(), "key1");
  server.post(kChatPath, body(R"("cache_salt":"s")"));
  EXPECT_NE(server.job->tenant(), "key1");
  EXPECT_NE(server.job->tenant(), "key1s");
}

TEST(OpenAiChatTest, CountsTokensOfAPrompt) {
  FakeServer server;
  const FakeExchange& exchange = server.post(std::string(kChatPath) + "/input_tokens", body(""));
  EXPECT_EQ(exchange.body, R"({"object":"response.input_tokens","input_tokens":5})");
}

}  // namespace
}  // namespace qsf_tools
