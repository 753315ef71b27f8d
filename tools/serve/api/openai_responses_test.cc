// SPDX-License-Identifier: MIT
//
// /v1/responses from body to bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/serve/api/json_value.h"
#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kResponsesPath = "/v1/responses";
constexpr const char* kResponsesTools =
    R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"}}])";

JsonValue json_of(std::string_view text) {
  JsonValue value;
  std::string error;
  EXPECT_TRUE(parse_json(text, JsonLimits(), value, error)) << text;
  return value;
}

// The events of a stream: their names, checked against type and sequence_number.
std::vector<std::string> event_types(const FakeExchange& exchange) {
  std::vector<std::string> types;
  for (const std::string& event : exchange.writes) {
    const std::size_t end = event.find('\n');
    const std::string name = event.substr(7, end - 7);
    const JsonValue data = json_of(event.substr(end + 7, event.size() - end - 9));
    EXPECT_EQ(event.substr(0, 7), "event: ");
    EXPECT_EQ(*data.member("type")->text(), name);
    EXPECT_EQ(data.member("sequence_number")->integer(), static_cast<std::int64_t>(types.size()));
    types.push_back(name);
  }
  return types;
}

std::string data_of(const std::string& event) {
  const std::size_t begin = event.find("\ndata: ") + 7;
  return event.substr(begin, event.size() - begin - 2);
}

// A response without state has all that OpenAI's types require.
TEST(OpenAiResponsesTest, AnswersWhole) {
  FakeServer server;
  const FakeExchange& exchange = server.answer(
      kResponsesPath, R"({"model":"m","input":"hi","instructions":"be","max_output_tokens":9})",
      {"a"});
  EXPECT_EQ(server.access.asked.messages,
            R"([{"role":"system","content":"be"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(
      exchange.body,
      R"({"id":"resp_1","object":"response","created_at":1700000000,"status":"completed",)"
      R"("background":false,"error":null,"incomplete_details":null,"instructions":"be",)"
      R"("max_output_tokens":9,"model":"m","output":[{"id":"msg_2","type":"message",)"
      R"("status":"completed","role":"assistant","content":[{"type":"output_text","text":"a",)"
      R"("annotations":[],"logprobs":[]}]}],"parallel_tool_calls":true,)"
      R"("previous_response_id":null,"reasoning":{"effort":null,"summary":null},)"
      R"("service_tier":"default","store":false,"temperature":0.7,)"
      R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],)"
      R"("top_logprobs":0,"top_p":0.9,"truncation":"disabled","usage":{"input_tokens":5,)"
      R"("input_tokens_details":{"cached_tokens":2,"cache_write_tokens":0},"output_tokens":1,)"
      R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":6},)"
      R"("metadata":{}})");
}

TEST(OpenAiResponsesTest, StreamsEveryEvent) {
  FakeServer server;
  server.access.prompt_text = "<think>";
  const FakeExchange& exchange = server.answer(
      kResponsesPath, R"({"input":"hi","stream":true,)" + std::string(kResponsesTools) + "}",
      {R"(r</think>ab<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>)"});
  EXPECT_THAT(event_types(exchange),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.done", "response.content_part.done",
                          "response.output_item.done", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.function_call_arguments.delta",
                          "response.function_call_arguments.done", "response.output_item.done",
                          "response.completed"));
  const std::vector<std::string>& events = exchange.writes;
  EXPECT_EQ(data_of(events[2]),
            R"({"type":"response.output_item.added","sequence_number":2,"output_index":0,)"
            R"("item":{"id":"rs_2","type":"reasoning","status":"in_progress","summary":[],)"
            R"("content":[]}})");
  EXPECT_EQ(data_of(events[4]),
            R"({"type":"response.reasoning_text.delta","sequence_number":4,"item_id":"rs_2",)"
            R"("output_index":0,"content_index":0,"delta":"r"})");
  EXPECT_EQ(data_of(events[9]),
            R"({"type":"response.content_part.added","sequence_number":9,"item_id":"msg_3",)"
            R"("output_index":1,"content_index":0,"part":{"type":"output_text","text":"",)"
            R"("annotations":[],"logprobs":[]}})");
  EXPECT_EQ(data_of(events[11]),
            R"({"type":"response.output_text.delta","sequence_number":11,"item_id":"msg_3",)"
            R"("output_index":1,"content_index":0,"delta":"b","logprobs":[]})");
  EXPECT_EQ(data_of(events[12]),
            R"({"type":"response.output_text.done","sequence_number":12,"item_id":"msg_3",)"
            R"("output_index":1,"content_index":0,"text":"ab","logprobs":[]})");
  EXPECT_EQ(data_of(events[15]),
            R"({"type":"response.output_item.added","sequence_number":15,"output_index":2,)"
            R"("item":{"id":"fc_4","type":"function_call","status":"in_progress",)"
            R"("call_id":"call_5","name":"f","arguments":""}})");
  EXPECT_EQ(data_of(events[17]),
            R"({"type":"response.function_call_arguments.done","sequence_number":17,)"
            R"("item_id":"fc_4","output_index":2,"name":"f","arguments":"{\"x\":1}"})");
  const JsonValue last = json_of(data_of(events.back()));
  EXPECT_EQ(last.member("response")->member("output")->array()->size(), 3U);
  EXPECT_EQ(exchange.body.find("[DONE]"), std::string::npos);
}

TEST(OpenAiResponsesTest, TellsHowItEnded) {
  FakeServer server;
  const FakeExchange& cut =
      server.answer(kResponsesPath, R"({"input":"hi","stream":true})", {"a"}, TextEnd::kLength);
  EXPECT_THAT(cut.writes.back(), HasSubstr("event: response.incomplete\n"));
  EXPECT_THAT(cut.writes.back(),
              HasSubstr(R"("incomplete_details":{"reason":"max_output_tokens"})"));
  EXPECT_THAT(cut.writes.back(), HasSubstr(R"("status":"incomplete","role":"assistant")"));
  // An empty answer has a message, too.
  EXPECT_THAT(server.answer(kResponsesPath, R"({"input":"hi"})", {""}).body,
              HasSubstr(R"("text":"")"));
}

TEST(OpenAiResponsesTest, TellsOfAnErrorBehindAPartOfTheAnswer) {
  FakeServer server;
  server.post(kResponsesPath, R"({"input":"hi","stream":true})");
  server.job->on_admitted();
  TextToken token;
  token.token = 'a';
  token.text = "a";
  server.job->on_token(0, token);
  server.job->on_error(http_error(500, "broken"));
  EXPECT_THAT(
      event_types(*server.exchange),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta", "response.failed"));
  EXPECT_EQ(
      data_of(server.exchange->writes.back()),
      R"({"type":"response.failed","sequence_number":5,"response":{"id":"resp_1",)"
      R"("object":"response","created_at":1700000000,"status":"failed","background":false,)"
      R"("error":{"code":"server_error","message":"broken"},"incomplete_details":null,)"
      R"("instructions":null,"max_output_tokens":null,"model":"tiny","output":[{"id":"msg_2",)"
      R"("type":"message","status":"incomplete","role":"assistant","content":[)"
      R"({"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}],)"
      R"("parallel_tool_calls":true,"previous_response_id":null,)"
      R"("reasoning":{"effort":null,"summary":null},"service_tier":"default","store":false,)"
      R"("temperature":0.7,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],)"
      R"("top_logprobs":0,"top_p":0.9,"truncation":"disabled","metadata":{}}})");
  server.post(kResponsesPath, R"({"input":"hi","stream":true})");
  server.job->on_admitted();
  server.job->on_error(http_error(400, "wrong"));
  EXPECT_THAT(server.exchange->writes.back(),
              HasSubstr(R"("error":{"code":"invalid_prompt","message":"wrong"})"));
}

TEST(OpenAiResponsesTest, ReadsItems) {
  FakeServer server;
  server.post(kResponsesPath,
              R"({"input":[{"role":"user","content":[{"type":"input_text","text":"q"}]},)"
              R"({"type":"reasoning","id":"r","summary":[],"content":[{"type":)"
              R"("reasoning_text","text":"think"}]},)"
              R"({"type":"message","id":"m","status":"completed","role":"assistant",)"
              R"("content":[{"type":"output_text","text":"a","annotations":[]}]},)"
              R"({"type":"function_call","id":"x","call_id":"c1","name":"f",)"
              R"("arguments":"{}"},)"
              R"({"type":"function_call","call_id":"c2","name":"g","arguments":"[bad"},)"
              R"({"type":"function_call_output","call_id":"c1","output":"r1"},)"
              R"({"type":"function_call_output","call_id":"c2","output":)"
              R"([{"type":"input_text","text":"r2"}]}]})");
  EXPECT_EQ(server.access.asked.messages,
            R"([{"role":"user","content":"q"},{"role":"assistant","reasoning_content":"think",)"
            R"("content":"a","tool_calls":[{"id":"c1","type":"function","function":{"name":"f",)"
            R"("arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g",)"
            R"("arguments":"[bad"}}]},{"role":"tool","tool_call_id":"c1","content":"r1"},)"
            R"({"role":"tool","tool_call_id":"c2","content":"r2"}])")
      << server.exchange->body;
}

TEST(OpenAiResponsesTest, RepeatsWhatWasAsked) {
  FakeServer server;
  const FakeExchange& exchange = server.answer(
      kResponsesPath,
      R"({"input":"hi","reasoning":{"effort":"low"},"metadata":{"a":"b"},"tool_choice":"required",)" +
          std::string(kResponsesTools) + "}",
      {kHermesCall});
  EXPECT_EQ(server.access.asked.tools,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(server.access.asked.variables, R"({"reasoning_effort":"low"})");
  EXPECT_THAT(exchange.body, HasSubstr(R"("tools":[{"type":"function","name":"f","parameters":)"
                                       R"({"type":"object"},"strict":false}])"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("tool_choice":"required")"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("metadata":{"a":"b"})"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("effort":"low")"));
  server.post(kResponsesPath, R"({"input":"hi","text":{"format":{"type":"json_schema","name":"n",)"
                              R"("schema":{"b":1,"a":2}}}})");
  EXPECT_EQ(server.texts.at(0).constraint.source, R"({"b":1,"a":2})");
}

TEST(OpenAiResponsesTest, StreamsLogProbs) {
  FakeServer server;
  const FakeExchange& exchange = server.answer(
      kResponsesPath, R"({"input":"hi","stream":true,"include":["message.output_text.logprobs"]})",
      {"a"});
  EXPECT_THAT(exchange.body, HasSubstr(R"("delta":"a","logprobs":[{"token":"a","logprob":-0.5,)"));
}

TEST(OpenAiResponsesTest, FieldsOfOtherServersThatChangeTheText) {
  FakeServer server;
  server.post(kResponsesPath, R"({"input":"a","grammar":"root ::= \"a\"","stop":["X"]})");
  ASSERT_EQ(server.texts.size(), 1U);
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kGrammar);
  EXPECT_THAT(server.texts[0].stop, testing::Contains("X"));
  EXPECT_EQ(server
                .post(kResponsesPath, R"({"input":"a","grammar":"root ::= \"a\"",
                             "text":{"format":{"type":"json_object"}}})")
                .status,
            400);
}

TEST(OpenAiResponsesTest, RefusesStateAndWhatIsWrong) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("input":"a","previous_response_id":"resp_1")", "previous_response_id"},
      {R"("input":"a","conversation":"c")", "conversation"},
      {R"("input":"a","store":true)", "store"},
      {R"("input":"a","background":true)", "background"},
      {R"("input":"a","truncation":"auto")", "truncation"},
      {R"("input":"a","prompt":{"id":"x"})", "prompt"},
      {R"("input":"a","tools":[{"type":"web_search"}])", "tools[0].type"},
      {R"("input":"a","text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"("input":"a","reasoning":5)", "reasoning"},
      {R"("input":"a","include":[1])", "include"},
      {R"("input":"a","instructions":5)", "instructions"},
      {R"("input":5)", "input"},
      {R"("input":[])", "input"},
      {R"("input":[5])", "input[0]"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type"},
      {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])", "input[0].content[0]"},
      {R"("n":1)", "input"}};
  for (const auto& [member, param] : kCases) {
    FakeServer server;
    const FakeExchange& exchange = server.post(kResponsesPath, "{" + std::string(member) + "}");
    EXPECT_EQ(exchange.status, 400) << member;
    EXPECT_THAT(exchange.body, HasSubstr(R"("param":")" + std::string(param) + "\"")) << member;
  }
}

TEST(OpenAiResponsesTest, CountsTokens) {
  FakeServer server;
  EXPECT_EQ(server.post("/v1/responses/input_tokens", R"({"input":"hi"})").body,
            R"({"object":"response.input_tokens","input_tokens":5})");
}

}  // namespace
}  // namespace qsf_tools
