// SPDX-License-Identifier: MIT
#include "tools/serve/api/router.h"

#include <array>

#include "tools/serve/api/anthropic.h"
#include "tools/serve/api/api_error.h"
#include "tools/serve/api/llama_server.h"
#include "tools/serve/api/ollama.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

constexpr Route kOpenAiRoutes[] = {
    {"GET", "/v1/models", &handle_models, &openai_error_response},
    {"GET", "/v1/models/", &handle_model, &openai_error_response},
    {"POST", "/v1/chat/completions", &handle_chat_completions, &openai_error_response},
    {"POST", "/v1/chat/completions/input_tokens", &handle_chat_input_tokens,
     &openai_error_response},
    {"POST", "/v1/completions", &handle_completions, &openai_error_response},
    {"POST", "/v1/embeddings", &handle_embeddings, &openai_error_response},
    {"POST", "/v1/responses", &handle_responses, &openai_error_response},
    {"POST", "/v1/responses/input_tokens", &handle_responses_input_tokens, &openai_error_response},
};

// Returns whether `path` belongs to a route, and what stands behind the route's path in `rest`.
bool matches(const Route& route, std::string_view path, std::string_view& rest) {
  std::string_view pattern = route.path;
  // Base URLs come with and without it.
  constexpr std::string_view kVersion = "/v1";
  if (pattern.starts_with("/v1/") && !path.starts_with("/v1/")) {
    pattern.remove_prefix(kVersion.size());
  }
  if (pattern.size() > 1 && pattern.ends_with('/')) {
    if (!path.starts_with(pattern) || path.size() == pattern.size()) return false;
    rest = path.substr(pattern.size());
    return true;
  }
  rest = {};
  return path == pattern;
}

struct Match {
  const Route* route = nullptr;
  std::string_view rest;
  std::string allow;  // without a route: the methods of the path; empty: no such path
  HttpResponse (*error_response)(const ApiError&) = &openai_error_response;
};

Match find_route(std::string_view method, std::string_view path) {
  Match match;
  for (const std::span<const Route> routes : all_routes()) {
    for (const Route& route : routes) {
      std::string_view rest;
      if (!matches(route, path, rest)) continue;
      match.error_response = route.error_response;
      if (route.method == method || (route.method == "GET" && method == "HEAD")) {
        match.route = &route;
        match.rest = rest;
        return match;
      }
      if (!match.allow.empty()) match.allow += ", ";
      match.allow += route.method;
      if (route.method == "GET") match.allow += ", HEAD";
    }
  }
  return match;
}

HttpResponse no_route_response(const Match& match, std::string_view method, std::string_view path) {
  constexpr std::size_t kShownBytes = 128;
  const std::string shown(path.substr(0, kShownBytes));
  if (match.allow.empty()) {
    return match.error_response(http_error(404, "there is no '" + shown + "' here"));
  }
  HttpResponse response = match.error_response(
      http_error(405, "'" + shown + "' does not take " + std::string(method.substr(0, 16)) +
                          "; it takes " + match.allow));
  response.headers.push_back({"Allow", match.allow});
  return response;
}

}  // namespace

std::span<const Route> openai_routes() {
  return kOpenAiRoutes;
}

std::span<const std::span<const Route>> all_routes() {
  static const std::array kAll = {openai_routes(), anthropic_routes(), ollama_routes(),
                                  llama_server_routes()};
  return kAll;
}

std::shared_ptr<ServeJob> route_request(ApiRequest request) {
  const HttpRequest& http = request.exchange->request();
  const Match match = find_route(http.method, http.path);
  if (match.route == nullptr) {
    request.exchange->respond(no_route_response(match, http.method, http.path));
    return nullptr;
  }
  request.path_rest = match.rest;
  std::shared_ptr<ServeJob> job = match.route->handler(request);
  // The job has all it needs.
  if (job != nullptr) request.exchange->drop_body();
  return job;
}

std::optional<HttpResponse> check_route(std::string_view method, std::string_view path) {
  const Match match = find_route(method, path);
  if (match.route != nullptr) return std::nullopt;
  return no_route_response(match, method, path);
}

}  // namespace qsf_tools
