// SPDX-License-Identifier: MIT
//
// What the server does with a request: checks who may ask, and hands it to the web page, to the
// files of --web, to what watches the server, or to an interface and from there to the scheduler.

#ifndef QSF_TOOLS_SERVE_SERVE_SERVICE_H_
#define QSF_TOOLS_SERVE_SERVE_SERVICE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/api/api_settings.h"
#include "tools/serve/http/http_exchange.h"
#include "tools/serve/http/http_server.h"
#include "tools/serve/schedule/scheduler.h"
#include "tools/serve/schedule/serve_metrics.h"
#include "tools/serve/web/web_folder.h"

namespace qsf_tools {

struct AccessSettings {
  std::vector<std::string> api_keys;  // empty: every request may come
  std::vector<std::string> origins;   // of web pages that may use the server
  std::size_t max_body_bytes = 2'000'000;
};

// Reads API keys, one a line; empty lines and those that begin with '#' are skipped. On failure
// returns nothing and says in `error` what is wrong.
std::optional<std::vector<std::string>> read_api_keys(const std::string& path, std::string& error);

// Returns whether two texts are equal, in a time that depends on the length of `given` alone.
bool equal_in_constant_time(std::string_view given, std::string_view secret) noexcept;

// Threads  the network thread; every reference must outlive it
class ServeService : public HttpService {
 public:
  ServeService(AccessSettings access, ApiSettings& api, Scheduler& scheduler,
               const ServeMetrics& metrics);

  // The server whose counters /metrics shows, once it listens.
  void set_server(const HttpServer* server) noexcept { server_ = server; }
  // The files under /web/; without this there are none.
  void set_web(WebFolder* web) noexcept { web_ = web; }

  std::optional<HttpResponse> check_head(const HttpRequest& head,
                                         std::size_t& max_body_bytes) override;
  void handle(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse refuse(int status, std::string_view message) override;

 private:
  std::optional<HttpResponse> check_origin(const HttpRequest& head) const;
  std::optional<std::size_t> find_key(const HttpRequest& head) const;
  bool may_use(std::string_view origin) const;
  bool is_web(const HttpRequest& request) const;
  std::optional<HttpResponse> own_response(const HttpRequest& request) const;
  HttpResponse health() const;
  HttpResponse metrics() const;
  void add_cors(const HttpRequest& request, std::vector<HttpHeader>& headers) const;

  AccessSettings access_;
  ApiSettings& api_;
  Scheduler& scheduler_;
  const ServeMetrics& metrics_;
  const HttpServer* server_ = nullptr;
  WebFolder* web_ = nullptr;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SERVE_SERVICE_H_
