// SPDX-License-Identifier: MIT

#include <gtest/gtest.h>

#include <string>

#include "tools/serve/api/ollama.h"
#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

constexpr char kTime[] = R"("created_at":"2023-11-14T22:13:20Z")";

std::string ollama_chat_body(const std::string& rest) {
  return R"({"model":"tiny:latest","messages":[{"role":"user","content":"Hi"}])" + rest + "}";
}

std::string chat_line(const std::string& message) {
  return R"({"model":"tiny",)" + std::string(kTime) + R"(,"message":{"role":"assistant",)" +
         message + "},\"done\":false}\n";
}

std::string counts(const std::string& reason, int n_generated) {
  return R"("done":true,"done_reason":")" + reason +
         R"(","total_duration":0,"load_duration":0,"prompt_eval_count":5,"prompt_eval_duration":0,"eval_count":)" +
         std::to_string(n_generated) + R"(,"eval_duration":0})";
}

TEST(OllamaTest, ChatStreamsLines) {
  FakeServer server;
  const FakeExchange& got = server.answer("/api/chat", ollama_chat_body(""), {"Ok"});
  EXPECT_EQ(got.header("Content-Type"), "application/x-ndjson");
  EXPECT_EQ(got.body, chat_line(R"("content":"O")") + chat_line(R"("content":"k")") +
                          R"({"model":"tiny",)" + kTime +
                          R"(,"message":{"role":"assistant","content":""},)" + counts("stop", 2) +
                          "\n");
  EXPECT_EQ(got.writes.size(), 3U);
  EXPECT_EQ(got.n_ends, 1);
}

TEST(OllamaTest, ChatWholeWithThinkingAndCalls) {
  FakeServer server;
  const FakeExchange& got = server.answer(
      "/api/chat",
      ollama_chat_body(
          R"(,"stream":false,"think":true,"tools":[{"type":"function","function":{"name":"now","parameters":{"type":"object"}}}])"),
      {"<think>H</think>A<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":1}}</tool_call>"},
      TextEnd::kLength);
  EXPECT_EQ(
      got.body,
      R"({"model":"tiny",)" + std::string(kTime) +
          R"(,"message":{"role":"assistant","content":"A","thinking":"H","tool_calls":[{"id":"call_1","function":{"index":0,"name":"now","arguments":{"a":1}}}]},)" +
          counts("length", 74));
  EXPECT_EQ(server.access.asked.variables, R"({"enable_thinking":true})");
}

TEST(OllamaTest, MessagesAreConverted) {
  FakeServer server;
  server.post("/api/chat", R"({"model":"tiny","messages":[
      {"role":"assistant","content":"","thinking":"H","tool_calls":[{"function":{"name":"now","arguments":{"a":1}}}]},
      {"role":"tool","content":"12","tool_name":"now"},{"role":"user","content":"So?","images":[]}]})");
  const std::string& asked = server.access.asked.messages;
  EXPECT_NE(
      asked.find(
          R"("tool_calls":[{"id":"call_0","type":"function","function":{"name":"now","arguments":"{\"a\":1}"}}])"),
      std::string::npos)
      << asked;
  EXPECT_NE(asked.find(R"("reasoning_content":"H")"), std::string::npos) << asked;
  EXPECT_NE(asked.find(R"("name":"now"})"), std::string::npos) << asked;
}

TEST(OllamaTest, OptionsAreSampling) {
  FakeServer server;
  server.post(
      "/api/chat",
      ollama_chat_body(
          R"(,"options":{"num_predict":9,"num_ctx":12,"temperature":0.5,"top_k":7,"top_p":0.25,"min_p":0.125,"typical_p":0.75,"repeat_penalty":1.5,"repeat_last_n":33,"seed":4,"stop":["X"],"presence_penalty":0.5,"frequency_penalty":0.25,"num_gpu":1},"keep_alive":"5m","truncate":true)"));
  ASSERT_EQ(server.texts.size(), 1U) << server.exchange->body;
  const TextRequest& text = server.texts[0];
  EXPECT_EQ(text.max_tokens, 7);  // what 12 leaves behind the prompt
  EXPECT_EQ(text.sampling.temperature, 0.5F);
  EXPECT_EQ(text.sampling.top_k, 7);
  EXPECT_EQ(text.sampling.top_p, 0.25F);
  EXPECT_EQ(text.sampling.min_p, 0.125F);
  EXPECT_EQ(text.sampling.typical_p, 0.75F);
  EXPECT_EQ(text.sampling.repeat_penalty, 1.5F);
  EXPECT_EQ(text.sampling.repeat_window, 33);
  EXPECT_EQ(text.sampling.presence_penalty, 0.5F);
  EXPECT_EQ(text.sampling.frequency_penalty, 0.25F);
  EXPECT_EQ(text.sampling.seed, 4U);
  EXPECT_EQ(text.stop, (std::vector<std::string>{"X", "<end>"}));
  EXPECT_EQ(server.exchange->header("X-QSF-Ignored-Fields"), "");

  server.post("/api/chat", ollama_chat_body(R"(,"options":{"num_predict":-2})"));
  EXPECT_EQ(server.texts[0].max_tokens, -1);
  // A context of the request is never larger than the model's, and bounds the prompt, too.
  EXPECT_EQ(server.post("/api/chat", ollama_chat_body(R"(,"options":{"num_ctx":5})")).status, 400);
  server.post("/api/chat", ollama_chat_body(R"(,"options":{"num_ctx":100000})"));
  EXPECT_EQ(server.texts[0].max_tokens, -1);
}

// The context of 100 tokens, here bytes, holds three short messages.
TEST(OllamaTest, TruncateDropsTheOldestTurns) {
  const auto message = [](const char* role, const char* text) {
    return R"({"role":")" + std::string(role) + R"(","content":")" + text + "\"}";
  };
  const auto ask = [](FakeServer& server, const std::string& messages, bool truncate) {
    server.access.counts_bytes = true;
    return server
        .post("/api/chat", R"({"model":"tiny","stream":false,"messages":[)" + messages +
                               (truncate ? R"(],"truncate":true})" : "]}"))
        .status;
  };
  const std::string turns = message("user", "1") + "," + message("assistant", "2") + "," +
                            message("user", "3") + "," + message("assistant", "4") + "," +
                            message("user", "5");
  FakeServer server;
  EXPECT_EQ(ask(server, turns, false), 400);
  EXPECT_EQ(server.access.asked.messages, "[" + turns + "]");

  ask(server, turns, true);
  ASSERT_EQ(server.texts.size(), 1U) << server.exchange->body;
  const std::string two_turns = "[" + message("user", "3") + "," + message("assistant", "4") + "," +
                                message("user", "5") + "]";
  EXPECT_EQ(server.texts[0].prompt.size(), two_turns.size());
  server.job->on_admitted();
  server.job->on_text_end(0, TextResult());
  server.job->on_end();
  EXPECT_NE(server.exchange->body.find(R"("dropped_messages":2)"), std::string::npos)
      << server.exchange->body;

  // The system's message stays, and costs a turn more.
  ask(server, message("system", "S") + "," + turns, true);
  ASSERT_EQ(server.texts.size(), 1U);
  const std::string last = "[" + message("system", "S") + "," + message("user", "5") + "]";
  EXPECT_EQ(server.texts[0].prompt.size(), last.size());

  // Nothing that may be left out, or not enough of it.
  EXPECT_EQ(ask(server, message("user", std::string(90, 'x').c_str()), true), 400);
  EXPECT_EQ(ask(server, turns + "," + message("user", std::string(90, 'x').c_str()), true), 400);
  // What fits stays whole.
  ask(server, message("user", "1") + "," + message("assistant", "2"), true);
  ASSERT_EQ(server.texts.size(), 1U);
  server.job->on_admitted();
  server.job->on_text_end(0, TextResult());
  server.job->on_end();
  EXPECT_EQ(server.exchange->body.find("dropped_messages"), std::string::npos);
}

TEST(OllamaTest, Formats) {
  FakeServer server;
  server.post("/api/chat", ollama_chat_body(R"(,"format":"json")"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kJsonObject);
  server.post("/api/chat", ollama_chat_body(R"(,"format":{"type":"integer"})"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kJsonSchema);
  EXPECT_EQ(server.texts[0].constraint.source, R"({"type":"integer"})");
  server.post("/api/chat", ollama_chat_body(R"(,"format":"")"));
  EXPECT_EQ(server.texts[0].constraint.kind, TextConstraint::Kind::kNone);
}

TEST(OllamaTest, Generate) {
  FakeServer server;
  const FakeExchange& got = server.answer(
      "/api/generate", R"({"model":"tiny","system":"S","prompt":"P","stream":false})", {"Ok"});
  EXPECT_EQ(got.body, R"({"model":"tiny",)" + std::string(kTime) + R"(,"response":"Ok",)" +
                          counts("stop", 2));
  EXPECT_EQ(server.access.asked.messages,
            R"([{"role":"system","content":"S"},{"role":"user","content":"P"}])");
  server.post("/api/generate", R"({"model":"tiny","prompt":"ab","raw":true})");
  EXPECT_EQ(server.texts[0].prompt, (std::vector<int>{FakeAccess::kBos, 'a', 'b'}));
  server.post("/api/generate", R"({"model":"tiny","prompt":"a","suffix":"b"})");
  EXPECT_EQ(server.texts[0].prompt.size(), 6U);  // with the marks of the gap
}

TEST(OllamaTest, NothingToAnswerLoadsTheModel) {
  FakeServer server;
  EXPECT_EQ(
      server.post("/api/chat", R"({"model":"tiny","messages":[]})").body,
      R"({"model":"tiny",)" + std::string(kTime) +
          R"(,"message":{"role":"assistant","content":""},"done_reason":"load","done":true})");
  EXPECT_EQ(server.post("/api/generate", R"({"model":"tiny"})").body,
            R"({"model":"tiny",)" + std::string(kTime) +
                R"(,"response":"","done_reason":"load","done":true})");
}

TEST(OllamaTest, ModelsWithoutLoading) {
  FakeServer server;
  server.settings.list_models = [] {
    ModelListing loaded;
    loaded.id = "tiny";
    loaded.created = 0;
    loaded.is_loaded = true;
    loaded.n_ctx = 100;
    loaded.n_params = 135'000'000;
    loaded.size_bytes = 77;
    loaded.architecture = "llama";
    loaded.quant_type = "4bit";
    loaded.has_chat_template = true;
    ModelListing other;
    other.id = "other";
    return std::vector<ModelListing>{loaded, other};
  };
  const std::string details =
      R"("details":{"parent_model":"","format":"qsf","family":"llama","families":["llama"],"parameter_size":"135M","quantization_level":"4bit"})";
  const std::string tags = server.send("GET", "/api/tags").body;
  EXPECT_TRUE(tags.starts_with(
      R"({"models":[{"name":"tiny","model":"tiny","modified_at":"1970-01-01T00:00:00Z","size":77,"digest":")"))
      << tags;
  EXPECT_NE(tags.find(details), std::string::npos) << tags;
  EXPECT_NE(tags.find("\"other\""), std::string::npos);
  const std::string ps = server.send("GET", "/api/ps").body;
  EXPECT_NE(ps.find(R"("expires_at":"2123-10-21T22:13:20Z","size_vram":0,"context_length":100})"),
            std::string::npos)
      << ps;
  EXPECT_EQ(ps.find("\"other\""), std::string::npos);
  const FakeExchange& shown = server.post("/api/show", R"({"model":"tiny:latest"})");
  EXPECT_EQ(
      shown.body,
      R"({"modelfile":"","parameters":"","template":"",)" + details +
          R"(,"model_info":{"general.architecture":"llama","general.parameter_count":135000000,"llama.context_length":100},"capabilities":["completion","tools"],"modified_at":"1970-01-01T00:00:00Z"})");
  const FakeExchange& missing = server.post("/api/show", R"({"name":"none"})");
  EXPECT_EQ(missing.status, 404);
  EXPECT_TRUE(missing.body.starts_with(R"({"error":"The model 'none' does not exist)"));
}

TEST(OllamaTest, Probes) {
  FakeServer server;
  EXPECT_EQ(server.send("GET", "/").body, "Ollama is running");
  EXPECT_EQ(server.send("HEAD", "/").status, 200);
  EXPECT_EQ(server.send("GET", "/api/version").body, R"({"version":"0.13.0"})");
  HttpRequest request;
  EXPECT_FALSE(wants_page(request));
  request.headers.push_back({"accept", "*/*"});
  EXPECT_FALSE(wants_page(request));
  request.headers[0].value = "text/html,application/xhtml+xml;q=0.9";
  EXPECT_TRUE(wants_page(request));
}

TEST(OllamaTest, Embeddings) {
  FakeServer server;
  EXPECT_EQ(
      server.post("/api/embed", R"({"model":"tiny","input":["ab","c"]})").body,
      R"({"model":"tiny","embeddings":[[3,0.25],[2,0.25]],"total_duration":0,"load_duration":0,"prompt_eval_count":5})");
  EXPECT_EQ(server.post("/api/embeddings", R"({"model":"tiny","prompt":"ab"})").body,
            R"({"embedding":[3,0.25]})");
  const std::string longer = R"({"model":"tiny","input":")" + std::string(200, 'a') + "\"";
  EXPECT_EQ(server.post("/api/embed", longer + "}").status, 400);
  EXPECT_NE(server.post("/api/embed", longer + R"(,"truncate":true})").body.find("[[100,"),
            std::string::npos);
}

TEST(OllamaTest, Errors) {
  FakeServer server;
  for (
      const std::string& body : {
          std::string("{"),
          std::string("[]"),
          std::string("{}"),
          std::string(R"({"model":1})"),
          std::string(R"({"model":"tiny","messages":1})"),
          std::string(R"({"model":"tiny","messages":[1]})"),
          std::string(
              R"({"model":"tiny","messages":[{"role":"user","content":"x","images":["eA=="]}]})"),
          std::string(
              R"({"model":"tiny","messages":[{"role":"assistant","content":"x","tool_calls":[{}]}]})"),
          std::string(
              R"({"model":"tiny","messages":[{"role":"assistant","content":"x","tool_calls":1}]})"),
          ollama_chat_body(R"(,"format":1)"),
          ollama_chat_body(R"(,"format":"xml")"),
          ollama_chat_body(R"(,"think":3)"),
          ollama_chat_body(R"(,"options":[])"),
          ollama_chat_body(R"(,"options":{"num_predict":"x"})"),
          ollama_chat_body(R"(,"options":{"mirostat":2})"),
          ollama_chat_body(R"(,"stream":"yes")"),
      }) {
    const FakeExchange& got = server.post("/api/chat", body);
    EXPECT_EQ(got.status, 400) << body;
    EXPECT_TRUE(got.body.starts_with(R"({"error":")")) << got.body;
    EXPECT_EQ(got.n_ends, 1) << body;
  }
  EXPECT_EQ(server.post("/api/generate", R"({"model":"tiny","prompt":"a","context":[1]})").status,
            400);
  EXPECT_EQ(server.post("/api/generate", R"({"model":"tiny","prompt":"a","template":"x"})").status,
            400);
  EXPECT_EQ(server.post("/api/embed", R"({"model":"tiny"})").status, 400);

  server.post("/api/chat", ollama_chat_body(""));
  server.job->on_admitted();
  ApiError error;
  error.message = "gone";
  server.job->on_error(error);
  EXPECT_EQ(server.exchange->body, "{\"error\":\"gone\"}\n");
  EXPECT_EQ(server.exchange->n_ends, 1);
}

}  // namespace
}  // namespace qsf_tools
