// SPDX-License-Identifier: MIT
//
// Paths and methods, and the list of models.

#include "tools/serve/api/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/serve/api/testing/fake_model.h"

namespace qsf_tools {
namespace {

using testing::HasSubstr;

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    server_.settings.list_models = [] {
      ModelListing big;
      big.id = "org/big";
      big.created = 5;
      big.n_ctx = 4096;
      big.n_ctx_train = 8192;
      big.n_vocab = 1000;
      big.n_embd = 64;
      big.n_params = 123456789012U;
      big.size_bytes = 77;
      ModelListing small;
      small.id = "small";
      return std::vector<ModelListing>{big, small};
    };
  }

  FakeServer server_;
};

constexpr const char* kBig =
    R"({"id":"org/big","object":"model","created":5,"owned_by":"qsf","root":"org/big",)"
    R"("max_model_len":4096,"meta":{"n_ctx":4096,"n_ctx_train":8192,"n_vocab":1000,"n_embd":64,)"
    R"("n_params":123456789012,"size":77}})";
constexpr const char* kSmall =
    R"({"id":"small","object":"model","created":0,"owned_by":"qsf","root":"small","meta":{}})";

TEST_F(RouterTest, ListsModels) {
  const std::string all = R"({"object":"list","data":[)" + std::string(kBig) + "," + kSmall + "]}";
  for (const char* path : {"/v1/models", "/models"}) {
    const FakeExchange& exchange = server_.send("GET", path);
    EXPECT_EQ(exchange.status, 200);
    EXPECT_EQ(exchange.body, all) << path;
  }
  EXPECT_EQ(server_.send("HEAD", "/v1/models").status, 200);
}

TEST_F(RouterTest, DescribesAModel) {
  EXPECT_EQ(server_.send("GET", "/v1/models/small").body, kSmall);
  EXPECT_EQ(server_.send("GET", "/models/small").body, kSmall);
  EXPECT_EQ(server_.send("GET", "/v1/models/org/big").body, kBig);
  EXPECT_EQ(server_.send("GET", "/v1/models/org%2Fbig").body, kBig);
  for (const char* id : {"none", "%", "%2", "%zz", "small%"}) {
    const FakeExchange& exchange = server_.send("GET", "/v1/models/" + std::string(id));
    EXPECT_EQ(exchange.status, 404) << id;
    EXPECT_THAT(exchange.body, HasSubstr(R"("code":"model_not_found")"));
  }
}

TEST_F(RouterTest, AnAdapterHasAParent) {
  server_.settings.list_models = [] {
    ModelListing adapter;
    adapter.id = "red";
    adapter.parent = "small";
    return std::vector<ModelListing>{adapter};
  };
  EXPECT_EQ(
      server_.send("GET", "/v1/models/red").body,
      R"({"id":"red","object":"model","created":0,"owned_by":"qsf","root":"red","parent":"small",)"
      R"("meta":{}})");
  EXPECT_THAT(server_.send("GET", "/api/tags").body, HasSubstr(R"("parent_model":"small")"));
}

TEST_F(RouterTest, RefusesPathsAndMethods) {
  for (const char* path :
       {"//", "/v1", "/v1/", "/v1/nothing", "/v1/models/", "/v1/chat/completions/", "/v1/v1/models",
        "/V1/models", "v1/models", "", "/v2/models"}) {
    const FakeExchange& exchange = server_.send("GET", path);
    EXPECT_EQ(exchange.status, 404) << path;
    EXPECT_THAT(exchange.body, HasSubstr(R"("type":"not_found_error")"));
    EXPECT_TRUE(check_route("GET", path)) << path;
  }
  const FakeExchange& get = server_.send("GET", "/v1/chat/completions");
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.header("Allow"), "POST");
  EXPECT_EQ(server_.send("POST", "/v1/models").header("Allow"), "GET, HEAD");
  EXPECT_EQ(check_route("DELETE", "/v1/models/x")->status, 405);
  EXPECT_FALSE(check_route("POST", "/chat/completions"));
  EXPECT_FALSE(check_route("GET", "/v1/models/x"));
}

TEST_F(RouterTest, MakesErrorsOfTheServersOwn) {
  EXPECT_THAT(openai_error_body(http_error(401, "no key")),
              HasSubstr(R"("type":"authentication_error")"));
  EXPECT_THAT(openai_error_body(http_error(413, "too large")),
              HasSubstr(R"("type":"invalid_request_error")"));
  for (const int status : {400, 401, 403, 404, 405, 413, 431, 500, 501}) {
    EXPECT_EQ(error_headers(http_error(status, "")).size(), 1U) << status;
  }
  for (const int status : {408, 429, 503}) {
    EXPECT_TRUE(error_headers(http_error(status, "")).empty()) << status;
  }
  qsf_error error = {};
  error.code = QSF_UNSUPPORTED;
  EXPECT_EQ(engine_error(error, "x").status, 400);
  error.code = QSF_IO;
  EXPECT_EQ(engine_error(error, "x").status, 500);
}

}  // namespace
}  // namespace qsf_tools
