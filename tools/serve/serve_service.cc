// SPDX-License-Identifier: MIT

#include "tools/serve/serve_service.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <utility>

#include "tools/common/tool_support.h"
#include "tools/serve/api/api_error.h"
#include "tools/serve/api/llama_server.h"
#include "tools/serve/api/ollama.h"
#include "tools/serve/api/router.h"
#include "tools/serve/page/page.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxKeyFileBytes = 1'000'000;
constexpr std::size_t kMaxKeyBytes = 512;
constexpr std::string_view kBearer = "Bearer ";

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

bool is_own_path(std::string_view path) {
  return path == "/health" || path == "/v1/health" || path == "/metrics" || path == "/status";
}

// The web page answers browsers at the root; clients of ollama look there for a server.
bool is_page(const HttpRequest& request) {
  return find_page_file(request.path) != nullptr && (request.path != "/" || wants_page(request));
}

// Whether a request needs no key.
bool is_public(const HttpRequest& head) {
  return head.path == "/health" || head.path == "/v1/health" || head.path == "/" ||
         (head.method == "GET" && (head.path == "/v1/models" || head.path == "/models")) ||
         is_page(head);
}

// Host and port of "http://host:port", or nothing.
std::string_view authority_of(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

// Whether a Host header names an address or this machine. A page of another site that had its name
// point here (DNS rebinding) would send that name.
bool is_address_or_local(std::string_view host) {
  if (host.empty() || host.front() == '[') return true;
  host = host.substr(0, host.find(':'));
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  return std::all_of(host.begin(), host.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.';
  });
}

HttpResponse text_response(int status, std::string_view type, std::string body) {
  HttpResponse response;
  response.status = status;
  response.headers = {{"Content-Type", std::string(type)}, {"Cache-Control", "no-store"}};
  response.body = std::move(body);
  return response;
}

ApiError forbidden(const std::string& message) {
  ApiError error;
  error.status = 403;
  error.message = message;
  error.type = "permission_error";
  return error;
}

// Adds headers to every response of an exchange.
class ExchangeWithHeaders : public HttpExchange {
 public:
  ExchangeWithHeaders(std::shared_ptr<HttpExchange> exchange, std::vector<HttpHeader> headers)
      : exchange_(std::move(exchange)), headers_(std::move(headers)) {}

  const HttpRequest& request() const noexcept override { return exchange_->request(); }
  void drop_body() noexcept override { exchange_->drop_body(); }
  void respond(HttpResponse response) override {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    exchange_->respond(std::move(response));
  }
  void start(int status, std::vector<HttpHeader> headers, std::string keep_alive) override {
    headers.insert(headers.end(), headers_.begin(), headers_.end());
    exchange_->start(status, std::move(headers), std::move(keep_alive));
  }
  void write(std::string bytes) override { exchange_->write(std::move(bytes)); }
  void finish(bool complete) override { exchange_->finish(complete); }
  bool is_full() const noexcept override { return exchange_->is_full(); }
  bool is_gone() const noexcept override { return exchange_->is_gone(); }
  void set_on_change(void (*on_change)(void* user), void* user) override {
    exchange_->set_on_change(on_change, user);
  }

 private:
  std::shared_ptr<HttpExchange> exchange_;
  std::vector<HttpHeader> headers_;
};

}  // namespace

std::optional<std::vector<std::string>> read_api_keys(const std::string& path, std::string& error) {
  const std::optional<std::string> text = read_text(path, kMaxKeyFileBytes, error);
  if (!text) return std::nullopt;
  std::vector<std::string> keys;
  std::size_t begin = 0;
  for (int line = 1; begin < text->size(); ++line) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    std::string key = text->substr(begin, end - begin);
    begin = end + 1;
    if (key.ends_with('\r')) key.pop_back();
    if (key.empty() || key.front() == '#') continue;
    const bool printable = std::all_of(key.begin(), key.end(), [](char c) {
      return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f;
    });
    if (!printable || key.size() > kMaxKeyBytes) {
      error = path + ":" + std::to_string(line) +
              ": expected a key of at most 512 printable characters without spaces";
      return std::nullopt;
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) {
    error = path + ": no API key in it; expected one a line";
    return std::nullopt;
  }
  return keys;
}

bool equal_in_constant_time(std::string_view given, std::string_view secret) noexcept {
  std::size_t difference = given.size() ^ secret.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char of_secret = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<std::size_t>(static_cast<unsigned char>(given[i] ^ of_secret));
  }
  return difference == 0;
}

ServeService::ServeService(AccessSettings access, ApiSettings& api, Scheduler& scheduler,
                           const ServeMetrics& metrics)
    : access_(std::move(access)), api_(api), scheduler_(scheduler), metrics_(metrics) {}

bool ServeService::may_use(std::string_view origin) const {
  return std::find(access_.origins.begin(), access_.origins.end(), origin) != access_.origins.end();
}

bool ServeService::is_web(const HttpRequest& request) const {
  return web_ != nullptr && WebFolder::is_web(request.path);
}

// Refuses what a web page of another site sends through its visitor's browser.
std::optional<HttpResponse> ServeService::check_origin(const HttpRequest& head) const {
  const std::string_view origin = head.header("Origin");
  const std::string_view host = head.header("Host");
  const bool known_host =
      std::any_of(access_.origins.begin(), access_.origins.end(),
                  [host](const std::string& allowed) { return authority_of(allowed) == host; });
  if (access_.api_keys.empty() && !known_host && !is_address_or_local(host)) {
    return openai_error_response(forbidden("Host '" + valid_utf8(host.substr(0, 200)) +
                                           "' is not known here; name its origin with --origin"));
  }
  if (origin.empty() || may_use(origin) || authority_of(origin) == host) return std::nullopt;
  return openai_error_response(forbidden("web pages of '" + valid_utf8(origin.substr(0, 200)) +
                                         "' may not use this server; allow them with --origin"));
}

// Returns the number of the key that a request brings; nothing for a wrong key or none.
std::optional<std::size_t> ServeService::find_key(const HttpRequest& head) const {
  std::string_view given = head.header("Authorization");
  if (given.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), given.begin(), [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
      })) {
    given.remove_prefix(kBearer.size());
  } else {
    given = head.header("X-Api-Key");
  }
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < access_.api_keys.size(); ++i) {
    if (equal_in_constant_time(given, access_.api_keys[i])) found = i;
  }
  return found;
}

std::optional<HttpResponse> ServeService::check_head(const HttpRequest& head,
                                                     std::size_t& max_body_bytes) {
  max_body_bytes = access_.max_body_bytes;
  if (std::optional<HttpResponse> refused = check_origin(head)) return refused;
  if (head.method == "OPTIONS" && !head.header("Origin").empty()) {
    HttpResponse preflight;
    preflight.status = 204;
    add_cors(head, preflight.headers);
    preflight.headers.push_back({"Access-Control-Allow-Methods", "GET, POST, OPTIONS"});
    preflight.headers.push_back(
        {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key"});
    preflight.headers.push_back({"Access-Control-Max-Age", "600"});
    return preflight;
  }
  std::optional<HttpResponse> refused;
  if (is_own_path(head.path) || is_page(head) || is_web(head)) {
    max_body_bytes = 0;
    if (head.method != "GET" && head.method != "HEAD") {
      ApiError error;
      error.status = 405;
      error.message = head.path + ": method not allowed, expected GET";
      refused = openai_error_response(error);
      refused->headers.push_back({"Allow", "GET, HEAD"});
    }
  } else {
    refused = check_route(head.method, head.path);
  }
  if (!refused && !access_.api_keys.empty() && !is_public(head) && !is_web(head) &&
      !find_key(head)) {
    ApiError error;
    error.status = 401;
    error.message = "Incorrect API key provided; send one as Authorization: Bearer KEY";
    error.type = "authentication_error";
    error.code = "invalid_api_key";
    refused = openai_error_response(error);
    refused->headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  if (refused) add_cors(head, refused->headers);
  return refused;
}

void ServeService::add_cors(const HttpRequest& request, std::vector<HttpHeader>& headers) const {
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || !may_use(origin)) return;
  headers.push_back({"Access-Control-Allow-Origin", std::string(origin)});
  headers.push_back({"Vary", "Origin"});
}

void ServeService::handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  if (std::optional<HttpResponse> own = own_response(request)) {
    add_cors(request, own->headers);
    exchange->respond(std::move(*own));
    return;
  }
  const bool is_file = is_web(request);
  std::vector<HttpHeader> cors;
  add_cors(request, cors);
  if (!cors.empty()) {
    exchange = std::make_shared<ExchangeWithHeaders>(std::move(exchange), std::move(cors));
  }
  if (is_file) {
    web_->answer(std::move(exchange));
    return;
  }
  exchange->set_on_change([](void* user) { static_cast<Scheduler*>(user)->wake(); }, &scheduler_);
  ApiRequest api;
  const std::optional<std::size_t> key = find_key(exchange->request());
  api.tenant = key ? "key-" + std::to_string(*key) : "none";
  api.exchange = std::move(exchange);
  api.settings = &api_;
  const std::shared_ptr<ServeJob> job = route_request(std::move(api));
  if (job == nullptr) return;
  if (const std::optional<ApiError> error = scheduler_.submit(job)) job->on_error(*error);
}

std::optional<HttpResponse> ServeService::own_response(const HttpRequest& request) const {
  if (request.path == "/health" || request.path == "/v1/health") return health();
  if (request.path == "/metrics") return metrics();
  if (request.path == "/status") {
    const std::uint64_t connections = server_ != nullptr ? server_->counters().connections_open : 0;
    return text_response(200, "application/json", metrics_.status_json(now_ns(), connections));
  }
  if (!is_page(request)) return std::nullopt;
  return page_response(*find_page_file(request.path), request.header("If-None-Match"));
}

HttpResponse ServeService::health() const {
  const ServerState state = metrics_.state(now_ns());
  return health_response(state == ServerState::kReady,
                         "the server is " + std::string(to_string(state)));
}

HttpResponse ServeService::metrics() const {
  std::string lines;
  std::uint64_t connections = 0;
  if (server_ != nullptr) {
    const HttpCounters http = server_->counters();
    connections = http.connections_open;
    lines =
        "# HELP qsf_requests_total Responses begun, by HTTP status\n"
        "# TYPE qsf_requests_total counter\n";
    for (std::size_t status = 0; status < http.responses.size(); ++status) {
      if (http.responses[status] == 0) continue;
      lines += "qsf_requests_total{status=\"" + std::to_string(status) + "\"} " +
               std::to_string(http.responses[status]) + "\n";
    }
    constexpr std::array kReasons = {"bad_request", "too_large", "timeout",
                                     "evicted",     "no_room",   "slow_reader"};
    lines +=
        "# HELP qsf_refused_total Requests and connections refused by the HTTP server\n"
        "# TYPE qsf_refused_total counter\n";
    for (std::size_t i = 0; i < http.refused.size(); ++i) {
      lines += std::string("qsf_refused_total{reason=\"") + kReasons[i] + "\"} " +
               std::to_string(http.refused[i]) + "\n";
    }
  }
  lines +=
      "# HELP qsf_ignored_fields_total Unknown fields of requests\n"
      "# TYPE qsf_ignored_fields_total counter\n"
      "qsf_ignored_fields_total " +
      std::to_string(api_.counters.ignored_fields.load(std::memory_order_relaxed)) + "\n";
  return text_response(200, "text/plain; version=0.0.4",
                       metrics_.prometheus(now_ns(), connections, lines));
}

HttpResponse ServeService::refuse(int status, std::string_view message) {
  return openai_error_response(http_error(status, message));
}

}  // namespace qsf_tools
