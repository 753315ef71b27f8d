// SPDX-License-Identifier: MIT

#include "tools/serve/api/llama_server.h"

#include <gtest/gtest.h>

#include <string>

#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

TEST(LlamaServerTest, Tokenize) {
  FakeServer server;
  EXPECT_EQ(server.post("/tokenize", R"({"content":"ab"})").body, R"({"tokens":[97,98]})");
  EXPECT_EQ(server.post("/tokenize", R"({"content":"a","add_special":true})").body,
            R"({"tokens":[256,97]})");
  EXPECT_EQ(server.post("/tokenize", R"({"content":""})").body, R"({"tokens":[]})");
  EXPECT_EQ(server.post("/tokenize", R"({"content":"<|fim_prefix|>"})").body,
            R"({"tokens":[257]})");
  EXPECT_EQ(server.post("/tokenize", R"({"content":"<","parse_special":false})").body,
            R"({"tokens":[60]})");
  // vLLM's form.
  EXPECT_EQ(server.post("/tokenize", R"({"model":"tiny","prompt":"a"})").body,
            R"({"count":2,"max_model_len":100,"tokens":[256,97]})");
  EXPECT_EQ(
      server.post("/tokenize", "{\"content\":\"a\xC3\xA9\",\"with_pieces\":true}").body,
      R"({"tokens":[{"id":97,"piece":"a"},{"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
}

TEST(LlamaServerTest, Detokenize) {
  FakeServer server;
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[97,98]})").body,
            R"({"content":"ab","prompt":"ab"})");
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[]})").body, R"({"content":"","prompt":""})");
  for (const char* body : {R"({"tokens":[260]})", R"({"tokens":[-1]})", R"({"tokens":["a"]})",
                           R"({"tokens":[1e30]})", R"({"tokens":1})", "{}", "", "[]"}) {
    const FakeExchange& got = server.post("/detokenize", body);
    EXPECT_EQ(got.status, 400) << body;
    EXPECT_EQ(got.n_ends, 1) << body;
  }
}

TEST(LlamaServerTest, ApplyTemplate) {
  FakeServer server;
  server.access.prompt_text = "<a>\"";
  EXPECT_EQ(server.post("/apply-template", R"({"messages":[{"role":"user","content":"Hi"}]})").body,
            R"({"prompt":"<a>\""})");
  EXPECT_EQ(server.post("/apply-template", "{}").status, 400);
}

TEST(LlamaServerTest, Props) {
  FakeServer server;
  server.settings.max_texts = 8;
  server.model.path = "/srv/models/tiny.qsf";
  server.model.info.chat_template = "{{ x }}";
  const std::string body = server.send("GET", "/props").body;
  EXPECT_TRUE(body.starts_with(
      R"({"default_generation_settings":{"n_ctx":100},"total_slots":8,"model_alias":"tiny","model_path":"tiny.qsf","chat_template":"{{ x }}",)"))
      << body;
  EXPECT_EQ(body.find("/srv"), std::string::npos);
}

TEST(LlamaServerTest, Infill) {
  FakeServer server;
  const FakeExchange& got = server.answer(
      "/infill",
      R"({"input_prefix":"a","input_suffix":"b","prompt":"c","n_predict":9,"t_max_predict_ms":500,"input_extra":[{"filename":"f.py","text":"x"}]})",
      {"Ok"}, TextEnd::kLength);
  EXPECT_EQ(
      got.body,
      R"({"index":0,"content":"Ok","stop":true,"model":"tiny","tokens_predicted":2,"tokens_evaluated":)" +
          std::to_string(server.texts[0].prompt.size()) +
          R"(,"tokens_cached":2,"truncated":false,"stop_type":"limit","stopping_word":""})");
  EXPECT_EQ(server.texts[0].max_tokens, 9);
  const FakeExchange& streamed =
      server.answer("/infill", R"({"input_prefix":"a","input_suffix":"b","stream":true})", {"O"});
  EXPECT_EQ(
      streamed.body,
      "data: {\"index\":0,\"content\":\"O\",\"stop\":false}\n\n"
      "data: {\"index\":0,\"content\":\"\",\"stop\":true,\"model\":\"tiny\",\"tokens_predicted\":1,"
      "\"tokens_evaluated\":6,\"tokens_cached\":2,\"truncated\":false,\"stop_type\":\"eos\","
      "\"stopping_word\":\"\"}\n\n");
  for (const char* body : {R"({"input_prefix":"a"})", R"({"input_suffix":"a"})",
                           R"({"input_prefix":"a","input_suffix":"b","input_extra":[1]})",
                           R"({"input_prefix":1,"input_suffix":"b"})"}) {
    EXPECT_EQ(server.post("/infill", body).status, 400) << body;
  }
  server.access.has_fim = false;
  EXPECT_EQ(server.post("/infill", R"({"input_prefix":"a","input_suffix":"b"})").status, 400);
}

TEST(LlamaServerTest, LoraAdapters) {
  FakeServer server;
  EXPECT_EQ(server.send("GET", "/lora-adapters").body, "[]");
  server.settings.adapters = {{"red", "/srv/lora/a.qsf"}, {"blue", "b.qsf"}};
  server.settings.adapter_scale = 0.5F;
  EXPECT_EQ(
      server.send("GET", "/lora-adapters").body,
      R"([{"id":0,"path":"a.qsf","scale":0,"name":"red"},{"id":1,"path":"b.qsf","scale":0,"name":"blue"}])");
  const FakeExchange& got = server.post("/lora-adapters", R"([{"id":0,"scale":1}])");
  EXPECT_EQ(got.status, 501);
  EXPECT_NE(got.body.find("choose an adapter in each request"), std::string::npos) << got.body;
}

TEST(LlamaServerTest, LoraChoosesAnAdapter) {
  FakeServer server;
  server.settings.adapters = {{"red", "a.qsf"}, {"blue", "b.qsf"}};
  server.settings.adapter_scale = 0.5F;
  const auto adapter_of = [&server](const std::string& lora) {
    server.post("/infill", R"({"input_prefix":"a","input_suffix":"b","lora":)" + lora + "}");
    EXPECT_EQ(server.texts.size(), 1U) << lora << ": " << server.exchange->body;
    return server.texts.empty() ? std::nullopt : server.texts[0].adapter;
  };
  for (const char* none : {"[]", "null"}) EXPECT_EQ(adapter_of(none), std::nullopt) << none;
  EXPECT_EQ(adapter_of(R"([{"id":0}])"), (TextAdapter{.number = 1, .scale = 0.5F}));
  EXPECT_EQ(adapter_of(R"([{"id":1,"scale":null}])"), (TextAdapter{.number = 2, .scale = 0.5F}));
  EXPECT_EQ(adapter_of(R"([{"id":1,"scale":-2.5}])"), (TextAdapter{.number = 2, .scale = -2.5F}));
  EXPECT_EQ(adapter_of(R"([{"id":0,"scale":0},{"id":1,"scale":1}])"),
            (TextAdapter{.number = 2, .scale = 1.0F}));
  EXPECT_EQ(adapter_of(R"([{"id":1,"scale":1},{"id":0,"scale":0}])"),
            (TextAdapter{.number = 2, .scale = 1.0F}));
  EXPECT_EQ(adapter_of(R"([{"id":0,"scale":0}])"), TextAdapter());
}

TEST(LlamaServerTest, LoraThatCannotBeIsRefused) {
  FakeServer server;
  const auto refusal = [&server](const std::string& lora) {
    const FakeExchange& got =
        server.post("/v1/completions", R"({"prompt":"a","lora":)" + lora + "}");
    EXPECT_EQ(got.status, 400) << lora;
    EXPECT_NE(got.body.find(R"("param":"lora")"), std::string::npos) << got.body;
    return got.body;
  };
  EXPECT_NE(refusal(R"([{"id":0}])").find("the server has none"), std::string::npos);
  server.settings.adapters = {{"red", "a.qsf"}, {"blue", "b.qsf"}};
  for (const char* lora :
       {R"([{"id":2}])", R"([{"id":-1}])", R"([{"id":2,"scale":0}])", R"([{"id":0},{"id":2}])"}) {
    EXPECT_NE(refusal(lora).find("adapters are 0 to 1"), std::string::npos) << lora;
  }
  EXPECT_NE(refusal(R"([{"id":0},{"id":1}])").find("one adapter"), std::string::npos);
  EXPECT_NE(refusal(R"([{"id":0},{"id":0}])").find("one adapter"), std::string::npos);
  for (const char* lora :
       {R"([{"scale":1}])", R"([{"id":"0"}])", R"([{"id":0.5}])", "[0]",
        R"([{"id":0,"scale":"1"}])", R"([{"id":0,"scale":1e39}])", R"("red")", R"({"id":0})"}) {
    refusal(lora);
  }
}

// The embeddings of its model would be given for those of the adapter.
TEST(LlamaServerTest, EmbeddingsOfAdaptersAreRefused) {
  FakeServer server;
  server.settings.adapters = {{"red", "a.qsf"}};
  for (const char* path : {"/v1/embeddings", "/api/embed"}) {
    for (const char* name : {"red", "red:latest"}) {
      const FakeExchange& got =
          server.post(path, R"({"input":"a","model":")" + std::string(name) + "\"}");
      EXPECT_EQ(got.status, 400) << path << name;
      EXPECT_NE(got.body.find("without adapters"), std::string::npos) << got.body;
    }
    EXPECT_EQ(server.post(path, R"({"input":"a","model":"tiny"})").status, 200) << path;
  }
}

TEST(LlamaServerTest, Health) {
  EXPECT_EQ(health_response(true, "").body, R"({"status":"ok"})");
  const HttpResponse loading = health_response(false, "Loading model");
  EXPECT_EQ(loading.status, 503);
  EXPECT_NE(loading.body.find("Loading model"), std::string::npos);
  EXPECT_NE(loading.body.find("unavailable_error"), std::string::npos);
}

}  // namespace
}  // namespace qsf_tools
