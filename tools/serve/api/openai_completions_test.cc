// SPDX-License-Identifier: MIT
//
// /v1/completions and /v1/embeddings from body to bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kCompletionsPath = "/v1/completions";

std::string head() {
  return R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"tiny",)"
         R"("system_fingerprint":"b)" +
         std::string(qsf_version()) + "\",";
}

std::string usage(int prompt, int completion, int cached) {
  return R"("usage":{"prompt_tokens":)" + std::to_string(prompt) + R"(,"completion_tokens":)" +
         std::to_string(completion) + R"(,"total_tokens":)" + std::to_string(prompt + completion) +
         R"(,"prompt_tokens_details":{"cached_tokens":)" + std::to_string(cached) +
         R"(},"completion_tokens_details":{"reasoning_tokens":0}})";
}

TEST(OpenAiCompletionsTest, AnswersWhole) {
  FakeServer server;
  const FakeExchange& exchange = server.answer(kCompletionsPath, R"({"prompt":"ab"})", {"xy"});
  EXPECT_THAT(server.texts[0].prompt, ElementsAre(FakeAccess::kBos, 'a', 'b'));
  EXPECT_EQ(server.texts[0].max_tokens, 16);
  EXPECT_FALSE(server.texts[0].keep_special);
  EXPECT_EQ(exchange.body, head() +
                               R"("choices":[{"index":0,"text":"xy","logprobs":null,)"
                               R"("finish_reason":"stop"}],)" +
                               usage(3, 2, 2) + "}");
}

TEST(OpenAiCompletionsTest, Streams) {
  FakeServer server;
  const FakeExchange& exchange = server.answer(
      kCompletionsPath, R"({"prompt":"a","stream":true,"stream_options":{"include_usage":true}})",
      {"x"}, TextEnd::kLength);
  EXPECT_THAT(exchange.writes,
              ElementsAre("data: " + head() +
                              R"("choices":[{"index":0,"text":"x","logprobs":null,)"
                              R"("finish_reason":null}],"usage":null})"
                              "\n\n",
                          "data: " + head() +
                              R"("choices":[{"index":0,"text":"","logprobs":null,)"
                              R"("finish_reason":"length"}],"usage":null})"
                              "\n\n",
                          "data: " + head() + R"("choices":[],)" + usage(2, 1, 2) + "}\n\n",
                          "data: [DONE]\n\n"));
}

TEST(OpenAiCompletionsTest, TakesPromptsInEveryForm) {
  const auto prompts = [](std::string_view prompt) {
    FakeServer server;
    server.post(kCompletionsPath,
                R"({"add_special_tokens":false,"prompt":)" + std::string(prompt) + "}");
    std::vector<std::vector<int>> tokens;
    for (const TextRequest& text : server.texts) tokens.push_back(text.prompt);
    if (tokens.empty()) {
      EXPECT_EQ(server.exchange->status, 400) << prompt;
    }
    return tokens;
  };
  EXPECT_THAT(prompts(R"("a")"), ElementsAre(ElementsAre('a')));
  EXPECT_THAT(prompts(R"(["a","b"])"), ElementsAre(ElementsAre('a'), ElementsAre('b')));
  EXPECT_THAT(prompts("[1,259]"), ElementsAre(ElementsAre(1, 259)));
  EXPECT_THAT(prompts(R"([[1],[2,3],"c"])"),
              ElementsAre(ElementsAre(1), ElementsAre(2, 3), ElementsAre('c')));
  for (const char* bad : {"[]", "[[]]", "null", "5", "{}", "[1,\"a\"]", "[[\"a\"]]", "[260]",
                          "[-1]", "[1.5]", "[1e30]", "\"\"", "[null]", "[[[1]]]"}) {
    EXPECT_TRUE(prompts(bad).empty()) << bad;
  }
}

TEST(OpenAiCompletionsTest, OrdersChoicesByPrompt) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kCompletionsPath, R"({"prompt":["a","b"],"n":2,"best_of":2,"echo":true})",
                    {"1", "2", "3", "4"});
  for (const char* text : {R"("index":0,"text":"a1")", R"("index":1,"text":"a2")",
                           R"("index":2,"text":"b3")", R"("index":3,"text":"b4")"}) {
    EXPECT_THAT(exchange.body, HasSubstr(text));
  }
  EXPECT_THAT(exchange.body, HasSubstr(usage(4, 4, 4)));  // each prompt counts once
}

TEST(OpenAiCompletionsTest, EchoesTokens) {
  FakeServer server;
  EXPECT_THAT(
      server.answer(kCompletionsPath, R"({"prompt":[97,98],"echo":true,"stream":true})", {"x"})
          .writes[0],
      HasSubstr(R"("text":"ab")"));
}

TEST(OpenAiCompletionsTest, WritesLogProbsSideBySide) {
  FakeServer server;
  const FakeExchange& whole =
      server.answer(kCompletionsPath, R"({"prompt":"a","logprobs":2})", {"x\u00e9y"});
  EXPECT_THAT(whole.body,
              HasSubstr(R"("text":"x)"
                        "\u00e9"
                        R"(y","logprobs":{"tokens":["x",")"
                        "\ufffd"
                        R"(",")"
                        "\ufffd"
                        R"(","y"],)"
                        R"("token_logprobs":[-0.5,-0.5,-0.5,-0.5],)"
                        R"("top_logprobs":[{"x":-0.5,"z":-1.5},{")"
                        "\ufffd"
                        R"(":-0.5,"z":-1.5},)"
                        R"({")"
                        "\ufffd"
                        R"(":-0.5,"z":-1.5},{"y":-0.5,"z":-1.5}],"text_offset":[0,1,2,2]})"));
  server.n_ids = 0;
  const FakeExchange& stream =
      server.answer(kCompletionsPath, R"({"prompt":"a","logprobs":0,"stream":true})", {"xy"});
  EXPECT_THAT(stream.writes[1], HasSubstr(R"("logprobs":{"tokens":["y"],"token_logprobs":[-0.5],)"
                                          R"("top_logprobs":[{"y":-0.5}],"text_offset":[1]})"));
}

TEST(OpenAiCompletionsTest, EchoesThePromptWithItsLogProbs) {
  // Each id that the client sent has its entry, and the first one no log probability.
  FakeServer server;
  const FakeExchange& ids = server.answer(
      kCompletionsPath, R"({"prompt":[97,195,169],"echo":true,"logprobs":1,"max_tokens":1})", {"x"},
      TextEnd::kLength);
  EXPECT_TRUE(server.texts[0].prompt_log_probs);
  EXPECT_THAT(ids.body, HasSubstr(R"("text":"a)"
                                  "\u00e9"
                                  R"(x","logprobs":{"tokens":["a",")"
                                  "\ufffd"
                                  R"(",")"
                                  "\ufffd"
                                  R"(","x"],"token_logprobs":[null,-1,-2,-0.5],)"
                                  R"("top_logprobs":[null,{"t":-0.25,")"
                                  "\ufffd"
                                  R"(":-1},{"t":-0.25,")"
                                  "\ufffd"
                                  R"(":-2},{"x":-0.5,"z":-1.5}],)"
                                  R"("text_offset":[0,1,2,2]},"finish_reason":"length")"));
  // The token that the tokenizer put before a text has none, and predicts the first one.
  FakeServer text;
  EXPECT_THAT(text.answer(kCompletionsPath,
                          R"({"prompt":["ab"," c"],"echo":true,"logprobs":0,"max_tokens":0,"n":2})",
                          {"", "", "", ""}, TextEnd::kLength)
                  .body,
              HasSubstr(R"({"index":3,"text":" c","logprobs":{"tokens":[" ","c"],)"
                        R"("token_logprobs":[-1,-2],"top_logprobs":[{" ":-1},{"c":-2}],)"
                        R"("text_offset":[0,1]},"finish_reason":"length"})"));
  EXPECT_EQ(text.texts[1].max_tokens, 0);
  FakeServer bare;
  EXPECT_THAT(bare.answer(kCompletionsPath,
                          R"({"prompt":"ab","echo":true,"logprobs":0,"add_special_tokens":false})",
                          {""}, TextEnd::kLength)
                  .body,
              HasSubstr(R"("token_logprobs":[null,-1])"));
  FakeServer plain;
  plain.post(kCompletionsPath, R"({"prompt":"ab","logprobs":0})");
  EXPECT_FALSE(plain.texts[0].prompt_log_probs);
  plain.post(kCompletionsPath, R"({"prompt":"ab","echo":true})");
  EXPECT_FALSE(plain.texts[0].prompt_log_probs);
}

// Some tokenizers put a space before a text, which the client did not send.
TEST(OpenAiCompletionsTest, EntriesOfAPromptJoinToItsText) {
  FakeServer server;
  server.access.adds_space = true;
  const FakeExchange& exchange = server.answer(
      kCompletionsPath, R"({"prompt":"ab","echo":true,"logprobs":0})", {"x"}, TextEnd::kLength);
  EXPECT_THAT(exchange.body, HasSubstr(R"("text":"abx","logprobs":{"tokens":["","a","b","x"],)"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("text_offset":[0,0,1,2])"));
}

// Those that count entries find one of the token that ended the text.
TEST(OpenAiCompletionsTest, EchoesTheTokenThatEndsTheText) {
  FakeServer server;
  const FakeExchange& exchange =
      server.answer(kCompletionsPath, R"({"prompt":[97],"echo":true,"logprobs":0,"max_tokens":1})",
                    {""}, TextEnd::kStop);
  EXPECT_THAT(exchange.body, HasSubstr(R"("text":"a","logprobs":{"tokens":["a",")"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("token_logprobs":[null,-0.125])"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("text_offset":[0,1]},"finish_reason":"stop")"));
}

TEST(OpenAiCompletionsTest, StreamsThePromptFirst) {
  FakeServer server;
  const std::string prompt(90, 'p');
  const FakeExchange& exchange =
      server.answer(kCompletionsPath,
                    R"({"prompt":")" + prompt +
                        R"(","echo":true,"logprobs":0,"stream":true,"add_special_tokens":false})",
                    {"xy"}, TextEnd::kLength);
  EXPECT_THAT(exchange.writes[0], HasSubstr("\"text\":\"" + prompt + "\""));
  EXPECT_THAT(exchange.writes[0], HasSubstr(R"("token_logprobs":[])"));
  EXPECT_THAT(exchange.writes[1], HasSubstr(R"("text":"","logprobs":{"tokens":["p","p",)"));
  EXPECT_THAT(exchange.writes[1], HasSubstr(R"("token_logprobs":[null,-1,)"));
  EXPECT_THAT(exchange.writes[2], HasSubstr(R"("token_logprobs":[-64,-65,)"));
  EXPECT_THAT(exchange.writes[2], HasSubstr(R"(,88,89]},"finish_reason":null)"));
  EXPECT_THAT(exchange.writes[3], HasSubstr(R"("text":"x","logprobs":{"tokens":["x"])"));
  EXPECT_THAT(exchange.writes[4], HasSubstr(R"("text_offset":[91])"));
}

TEST(OpenAiCompletionsTest, FillsTheMiddle) {
  FakeServer server;
  server.post(kCompletionsPath, R"({"prompt":"a<|fim_prefix|>","suffix":"b"})");
  ASSERT_EQ(server.texts.size(), 1U) << server.exchange->body;
  const std::vector<int>& prompt = server.texts[0].prompt;
  EXPECT_EQ(prompt[0], FakeAccess::kBos);
  EXPECT_EQ(prompt[1], 257);
  EXPECT_EQ(prompt[2], 'a');
  EXPECT_EQ(prompt[3], '<');  // text of the user stays text
  EXPECT_EQ(prompt[prompt.size() - 3], 258);
  EXPECT_EQ(prompt[prompt.size() - 2], 'b');
  EXPECT_EQ(prompt.back(), 259);
  server.access.has_fim = false;
  EXPECT_THAT(server.post(kCompletionsPath, R"({"prompt":"a","suffix":"b"})").body,
              HasSubstr(R"("param":"suffix")"));
}

TEST(OpenAiCompletionsTest, RefusesWhatIsNotBuilt) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("n":1,"best_of":2)", "best_of"},
      {R"("echo":true,"suffix":"x")", "echo"},
      {R"("echo":true,"suffix":"x","logprobs":1)", "echo"},
      {R"("logprobs":6)", "logprobs"},
      {R"("logprobs":true)", "logprobs"},
      {R"("n":17)", "n"},
      {R"("mirostat":1)", "mirostat"}};
  for (const auto& [member, param] : kCases) {
    FakeServer server;
    const FakeExchange& exchange =
        server.post(kCompletionsPath, R"({"prompt":"a",)" + std::string(member) + "}");
    EXPECT_EQ(exchange.status, 400) << member;
    EXPECT_THAT(exchange.body, HasSubstr(R"("param":")" + std::string(param) + "\"")) << member;
  }
  FakeServer server;
  EXPECT_THAT(server.post(kCompletionsPath, R"({"prompt":["a","b","c","d","e"],"n":16})").body,
              HasSubstr(R"("param":"n")"));
}

TEST(OpenAiEmbeddingsTest, WritesFloats) {
  FakeServer server;
  const FakeExchange& exchange = server.post("/v1/embeddings", R"({"input":["a","bc"]})");
  EXPECT_EQ(exchange.body,
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[2,0.25]},)"
            R"({"object":"embedding","index":1,"embedding":[3,0.25]}],"model":"tiny",)"
            R"("usage":{"prompt_tokens":5,"total_tokens":5}})");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.header("Content-Type"), "application/json");
  EXPECT_EQ(server.n_steps, 1);  // others compute between the inputs
}

TEST(OpenAiEmbeddingsTest, WritesBase64) {
  FakeServer server;
  // 00 00 80 3F 00 00 C0 3F: 1.0 and 1.5
  EXPECT_THAT(
      server
          .post("/v1/embeddings", R"({"input":[[65]],"encoding_format":"base64","pooling":"last"})")
          .body,
      HasSubstr(R"("embedding":"AACAPwAAwD8=")"));
}

// Without the field the model's own.
TEST(OpenAiEmbeddingsTest, PoolsAsTheRequestSays) {
  FakeServer server;
  const std::pair<const char*, const char*> kCases[] = {{"mean", "0.75"}, {"first", "3"}};
  for (const auto& [name, value] : kCases) {
    const std::string body = R"({"input":"a","pooling":")" + std::string(name) + "\"}";
    EXPECT_THAT(server.post("/v1/embeddings", body).body,
                HasSubstr(R"("embedding":[2,)" + std::string(value) + "]"));
  }
}

TEST(OpenAiEmbeddingsTest, RefusesWhatTheModelCannot) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"input":"a","dimensions":3})", "dimensions"},
      {R"({"input":[260]})", "input"},
      {R"({"input":[]})", "input"},
      {R"({})", "input"},
      {R"({"input":"a","encoding_format":"hex"})", "encoding_format"},
      {R"({"input":"a","pooling":"cls"})", "pooling"}};
  for (const auto& [body, param] : kCases) {
    FakeServer server;
    const FakeExchange& exchange = server.post("/v1/embeddings", body);
    EXPECT_EQ(exchange.status, 400) << body;
    EXPECT_THAT(exchange.body, HasSubstr(R"("param":")" + std::string(param) + "\"")) << body;
  }
  FakeServer server;
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"a","dimensions":2})").status, 200);
  EXPECT_THAT(server.post("/v1/embeddings", R"({"input":")" + std::string(100, 'a') + "\"}").body,
              HasSubstr(R"("code":"context_length_exceeded")"));
  std::string many = "[\"a\"";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":)" + many + "]}").status, 400);
}

TEST(OpenAiEmbeddingsTest, CutsTheConnectionWhereAnErrorComesLate) {
  FakeServer server;
  server.access.embeds_left = 0;
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":["a","b"]})").status, 400);
  server.access.embeds_left = 1;
  const FakeExchange& exchange = server.post("/v1/embeddings", R"({"input":["a","b"]})");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_TRUE(exchange.is_cut);
  EXPECT_EQ(exchange.n_ends, 1);
}

}  // namespace
}  // namespace qsf_tools
