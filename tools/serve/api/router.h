// SPDX-License-Identifier: MIT
//
// Paths, methods and what answers them. Each interface has a table of routes beside its converters.

#ifndef QSF_TOOLS_SERVE_API_ROUTER_H_
#define QSF_TOOLS_SERVE_API_ROUTER_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/serve/api/api_settings.h"
#include "tools/serve/http/http_exchange.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

// A request on its way to a converter.
struct ApiRequest {
  std::shared_ptr<HttpExchange> exchange;
  std::string tenant;  // of the API key
  const ApiSettings* settings = nullptr;
  std::string_view path_rest;  // behind the path of a route that ends with '/'
};

// Returns the job that answers; null when the request was answered, perhaps with an error.
using RouteHandler = std::shared_ptr<ServeJob> (*)(const ApiRequest& request);

struct Route {
  std::string_view method;
  std::string_view path;  // one that ends with '/' also has everything below it, not itself
  RouteHandler handler;
  HttpResponse (*error_response)(const ApiError& error);  // of the interface
};

std::span<const Route> openai_routes();

// Every route of every interface, in order.
std::span<const std::span<const Route>> all_routes();

// Finds the route, or answers 404, or 405 with Allow. HEAD finds what GET does.
std::shared_ptr<ServeJob> route_request(ApiRequest request);
// Returns the refusal of a path or method before the body is read.
std::optional<HttpResponse> check_route(std::string_view method, std::string_view path);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_ROUTER_H_
