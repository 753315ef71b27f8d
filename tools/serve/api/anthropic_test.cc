// SPDX-License-Identifier: MIT

#include <gtest/gtest.h>

#include <string>

#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

constexpr char kAnthropicTools[] =
    R"("tools":[{"name":"now","description":"The time.","input_schema":{"type":"object"}}])";

std::string body_of(const std::string& rest) {
  return R"({"model":"tiny","max_tokens":50,"messages":[{"role":"user","content":"Hi"}])" + rest +
         "}";
}

std::string event_of(const std::string& name, const std::string& rest) {
  return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + rest + "}\n\n";
}

TEST(AnthropicTest, WholeMessage) {
  FakeServer server;
  const FakeExchange& got =
      server.answer("/v1/messages", body_of(R"(,"system":"Be kind.")"), {"Hello"});
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.header("Content-Type"), "application/json");
  EXPECT_EQ(
      got.body,
      R"({"id":"msg_1","type":"message","role":"assistant","model":"tiny","content":[{"type":"text","text":"Hello","citations":null}],"stop_reason":"end_turn","stop_sequence":null,"stop_details":null,"container":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":5,"output_tokens_details":{"thinking_tokens":0},"server_tool_use":null,"cache_creation":null,"inference_geo":null,"service_tier":"standard"}})");
  EXPECT_EQ(server.access.asked.messages,
            R"([{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}])");
  EXPECT_EQ(server.texts[0].max_tokens, 50);
  EXPECT_TRUE(server.access.adds_generation_prompt);
}

TEST(AnthropicTest, BlocksBecomeMessages) {
  FakeServer server;
  server.post("/v1/messages", R"({"model":"tiny","max_tokens":5,
      "system":[{"type":"text","text":"A","cache_control":{"type":"ephemeral"}},{"type":"text","text":"B"}],
      "messages":[
      {"role":"user","content":[{"type":"text","text":"Time?"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"s"},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"Wait."},
        {"type":"tool_use","id":"t1","name":"now","input":{"zone": "UTC"}}]},
      {"role":"user","content":[{"type":"text","text":"See:"},
        {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"12"},{"type":"text","text":"30"}]},
        {"type":"tool_result","tool_use_id":"t2","is_error":true},
        {"type":"text","text":"So?"}]},
      {"role":"assistant","content":"It is"}]})");
  EXPECT_EQ(
      server.access.asked.messages,
      R"([{"role":"system","content":"A\nB"},{"role":"user","content":"Time?"},)"
      R"({"role":"assistant","content":"Wait.","reasoning_content":"Hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"now","arguments":"{\"zone\":\"UTC\"}"}}]},)"
      R"({"role":"user","content":"See:"},{"role":"tool","content":"12\n30","tool_call_id":"t1","name":"now"},)"
      R"({"role":"tool","content":"","tool_call_id":"t2"},)"
      R"({"role":"user","content":"So?"},{"role":"assistant","content":"It is"}])");
  EXPECT_TRUE(server.access.continues_final);
  EXPECT_FALSE(server.access.adds_generation_prompt);
}

TEST(AnthropicTest, CallsAreBlocks) {
  FakeServer server;
  const FakeExchange& got = server.answer(
      "/v1/messages", body_of("," + std::string(kAnthropicTools)),
      {"Wait.\n<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}}</tool_call>"});
  EXPECT_NE(
      got.body.find(
          R"("content":[{"type":"text","text":"Wait.\n","citations":null},{"type":"tool_use","id":"toolu_2","caller":{"type":"direct"},"name":"now","input":{"a": 1}}],"stop_reason":"tool_use","stop_sequence":null)"),
      std::string::npos)
      << got.body;
  EXPECT_EQ(
      server.access.asked.tools,
      R"([{"type":"function","function":{"name":"now","description":"The time.","parameters":{"type":"object"}}}])");
  EXPECT_EQ(server.texts[0].constraint.trigger, "<tool_call>");
  EXPECT_TRUE(server.texts[0].keep_special);
}

TEST(AnthropicTest, ToolChoices) {
  FakeServer server;
  const std::string tools = "," + std::string(kAnthropicTools);
  server.post("/v1/messages", body_of(tools + R"(,"tool_choice":{"type":"any"})"));
  EXPECT_EQ(server.texts[0].constraint.trigger, "");
  EXPECT_NE(server.texts[0].constraint.source.find("call)*"), std::string::npos);
  server.post(
      "/v1/messages",
      body_of(tools +
              R"(,"tool_choice":{"type":"tool","name":"now","disable_parallel_tool_use":true})"));
  EXPECT_EQ(server.texts[0].constraint.source.find("call)*"), std::string::npos);
  server.post("/v1/messages", body_of(tools + R"(,"tool_choice":{"type":"none"})"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kNone);
  EXPECT_EQ(
      server.post("/v1/messages", body_of(tools + R"(,"tool_choice":{"type":"tool","name":"x"})"))
          .status,
      400);
  EXPECT_EQ(server.post("/v1/messages", body_of(R"(,"tool_choice":{"type":"any"})")).status, 400);
}

TEST(AnthropicTest, StreamOfThinkingTextAndCalls) {
  FakeServer server;
  server.post("/v1/messages",
              body_of(R"(,"stream":true,"thinking":{"type":"enabled","budget_tokens":1024},)" +
                      std::string(kAnthropicTools)));
  EXPECT_EQ(server.access.asked.variables, R"({"enable_thinking":true})");
  server.job->on_admitted();
  EXPECT_EQ(server.exchange->header("Content-Type"), "text/event-stream");
  EXPECT_EQ(server.exchange->keep_alive, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  server.generate(0, "<think>H</think>A<tool_call>{\"name\":\"now\"}</tool_call>");
  server.job->on_end();
  const std::string usage_open = R"("cache_creation_input_tokens":0,"cache_read_input_tokens":)";
  EXPECT_EQ(
      server.exchange->body,
      event_of(
          "message_start",
          R"(,"message":{"id":"msg_1","type":"message","role":"assistant","model":"tiny","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null,"usage":{"input_tokens":5,)" +
              usage_open +
              R"(0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0},"server_tool_use":null,"cache_creation":null,"inference_geo":null,"service_tier":"standard"}})") +
          event_of(
              "content_block_start",
              R"(,"index":0,"content_block":{"type":"thinking","thinking":"","signature":""})") +
          event_of("content_block_delta",
                   R"(,"index":0,"delta":{"type":"thinking_delta","thinking":"H"})") +
          event_of("content_block_stop", R"(,"index":0)") +
          event_of("content_block_start",
                   R"(,"index":1,"content_block":{"type":"text","text":"","citations":null})") +
          event_of("content_block_delta",
                   R"(,"index":1,"delta":{"type":"text_delta","text":"A"})") +
          event_of("content_block_stop", R"(,"index":1)") +
          event_of(
              "content_block_start",
              R"(,"index":2,"content_block":{"type":"tool_use","id":"toolu_2","caller":{"type":"direct"},"name":"now","input":{}})") +
          event_of("content_block_delta",
                   R"(,"index":2,"delta":{"type":"input_json_delta","partial_json":"{}"})") +
          event_of("content_block_stop", R"(,"index":2)") +
          event_of(
              "message_delta",
              R"(,"delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":null,"container":null},"usage":{"input_tokens":3,)" +
                  usage_open +
                  R"(2,"output_tokens":54,"output_tokens_details":{"thinking_tokens":8},"server_tool_use":null})") +
          event_of("message_stop", ""));
  EXPECT_EQ(server.exchange->n_ends, 1);
}

TEST(AnthropicTest, AGrammarIsRead) {
  FakeServer server;
  server.post("/v1/messages", body_of(R"(,"grammar":"root ::= \"a\"")"));
  ASSERT_EQ(server.texts.size(), 1U);
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kGrammar);
}

// Who did not ask for thinking takes the first block for the answer.
TEST(AnthropicTest, ThinkingIsSentToThoseThatAsk) {
  FakeServer server;
  const FakeExchange& got = server.answer("/v1/messages", body_of(""), {"<think>H</think>A"});
  EXPECT_NE(got.body.find(R"("content":[{"type":"text","text":"A","citations":null}])"),
            std::string::npos);
  EXPECT_EQ(server.access.asked.variables, "");
  server.post("/v1/messages", body_of(R"(,"thinking":{"type":"disabled"})"));
  EXPECT_EQ(server.access.asked.variables, R"({"enable_thinking":false})");
}

TEST(AnthropicTest, ReasonsToStop) {
  FakeServer server;
  EXPECT_NE(server.answer("/v1/messages", body_of(""), {"A"}, TextEnd::kLength)
                .body.find(R"("stop_reason":"max_tokens")"),
            std::string::npos);
  const auto stopped_at = [&server](const std::string& text) {
    server.post("/v1/messages", body_of(R"(,"stop_sequences":["X"])"));
    server.job->on_admitted();
    TextResult result;
    result.end = TextEnd::kStopString;
    result.stop_string = text;
    server.job->on_text_end(0, result);
    server.job->on_end();
    return server.exchange->body;
  };
  EXPECT_NE(stopped_at("X").find(R"("stop_reason":"stop_sequence","stop_sequence":"X")"),
            std::string::npos);
  EXPECT_EQ(server.texts[0].stop, (std::vector<std::string>{"X", "<end>"}));
  // The template's own end.
  EXPECT_NE(stopped_at("<end>").find(R"("stop_reason":"end_turn","stop_sequence":null)"),
            std::string::npos);
}

TEST(AnthropicTest, CountsTokens) {
  FakeServer server;
  const FakeExchange& got =
      server.post("/v1/messages/count_tokens",
                  R"({"model":"tiny","messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.body, R"({"input_tokens":5})");
}

TEST(AnthropicTest, Errors) {
  FakeServer server;
  const FakeExchange& got = server.post("/v1/messages", R"({"model":"tiny","messages":[]})");
  EXPECT_EQ(got.status, 400);
  EXPECT_EQ(
      got.body,
      R"({"type":"error","error":{"type":"invalid_request_error","message":"'max_tokens' is missing, expected the most tokens of the answer"},"request_id":null})");

  server.post("/v1/messages", body_of(R"(,"stream":true)"));
  server.job->on_admitted();
  ApiError error;
  error.status = 500;
  error.message = "gone";
  server.job->on_error(error);
  EXPECT_TRUE(
      server.exchange->body.ends_with("event: error\ndata: "
                                      "{\"type\":\"error\",\"error\":{\"type\":\"api_error\","
                                      "\"message\":\"gone\"},\"request_id\":null}\n\n"));
  EXPECT_EQ(server.exchange->n_ends, 1);
}

TEST(AnthropicTest, HostileBodies) {
  FakeServer server;
  const auto content = [](const std::string& value) {
    return R"({"model":"m","max_tokens":1,"messages":[{"role":"user","content":)" + value + "}]}";
  };
  for (const std::string& body : {
           std::string(""),
           std::string("[]"),
           std::string("null"),
           std::string("{"),
           std::string(R"({"model":"m","max_tokens":1})"),
           std::string(R"({"model":"m","max_tokens":1,"messages":{}})"),
           std::string(R"({"model":"m","max_tokens":1,"messages":[1]})"),
           std::string(
               R"({"model":"m","max_tokens":1,"messages":[{"role":"system","content":"x"}]})"),
           std::string(
               R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":"x"}]})"),
           std::string(R"({"model":1,"max_tokens":1,"messages":[{"role":"user","content":"x"}]})"),
           content("1"),
           content("[1]"),
           content("[{}]"),
           content(R"([{"type":1}])"),
           content(R"([{"type":"text"}])"),
           content(R"([{"type":"text","text":1}])"),
           content(R"([{"type":"image","source":{}}])"),
           content(R"([{"type":"document"}])"),
           content(R"([{"type":"tool_use","id":"a","name":"b","input":{}}])"),
           content(R"([{"type":"tool_result"}])"),
           content(R"([{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}])"),
           content(R"([{"type":"tool_result","tool_use_id":"a","content":1}])"),
           body_of(R"(,"tools":[1])"),
           body_of(R"(,"tools":[{"name":"a"}])"),
           body_of(R"(,"tools":[{"type":"web_search_20250305","name":"web_search"}])"),
           body_of(R"(,"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}])"),
           body_of(R"(,"tool_choice":{"type":"x"})"),
           body_of(R"(,"thinking":{"type":"x"})"),
           body_of(R"(,"mcp_servers":[{"url":"x"}])"),
           body_of(R"(,"system":1)"),
           body_of(R"(,"stop_sequences":[1])"),
           body_of(R"(,"output_format":{"type":"json_schema"})"),
       }) {
    const FakeExchange& got = server.post("/v1/messages", body);
    EXPECT_EQ(got.status, 400) << body;
    EXPECT_TRUE(got.body.starts_with(R"({"type":"error","error":{"type":"invalid_request_error")"))
        << body << got.body;
    EXPECT_EQ(got.n_ends, 1) << body;
  }
  const std::string image = server.post("/v1/messages", content(R"([{"type":"image"}])")).body;
  EXPECT_NE(image.find("imported for text alone"), std::string::npos);
}

}  // namespace
}  // namespace qsf_tools
