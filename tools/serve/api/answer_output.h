// SPDX-License-Identifier: MIT
//
// The bytes of an answer on their way to the client: one JSON body, a stream of events (SSE) or
// lines of JSON.

#ifndef QSF_TOOLS_SERVE_API_ANSWER_OUTPUT_H_
#define QSF_TOOLS_SERVE_API_ANSWER_OUTPUT_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {

class AnswerOutput {
 public:
  // `ignored_fields` are listed in the header X-QSF-Ignored-Fields.
  explicit AnswerOutput(std::shared_ptr<HttpExchange> exchange,
                        const std::vector<std::string>& ignored_fields = {});

  // Sends a whole JSON body.
  void respond(int status, std::string body);
  void respond(HttpResponse response);

  // Starts a stream of text/event-stream, kept alive by comments; `keep_alive` replaces them.
  void start_events(std::string keep_alive = ":\n\n");
  // Starts a stream of application/x-ndjson. Nothing keeps it alive.
  void start_lines();
  // Starts a JSON body that is written in pieces.
  void start_json();
  bool has_started() const noexcept { return has_started_; }

  // Each is one write.
  void event(std::string_view data);                         // data: ...
  void event(std::string_view name, std::string_view data);  // event: name, data: ...
  void line(std::string_view json);
  void piece(std::string bytes);
  // Ends a stream.
  void finish();
  // Ends a stream that has no form for errors: the client sees that the connection was cut.
  void cut();

 private:
  std::vector<HttpHeader> headers(std::string_view content_type) const;

  std::shared_ptr<HttpExchange> exchange_;
  std::string ignored_;  // value of the header
  bool has_started_ = false;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_ANSWER_OUTPUT_H_
