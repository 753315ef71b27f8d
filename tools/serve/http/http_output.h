// SPDX-License-Identifier: MIT
//
// The response to one request, on its way from the service's threads to the network thread.

#ifndef QSF_TOOLS_SERVE_HTTP_HTTP_OUTPUT_H_
#define QSF_TOOLS_SERVE_HTTP_HTTP_OUTPUT_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/http/http_exchange.h"
#include "tools/serve/http/http_link.h"

namespace qsf_tools {

class HttpConnection;

// What the request asks of the form of its response.
struct HttpResponseForm {
  bool is_http_1_1 = true;
  bool is_head = false;  // no body, whatever the headers say of it
  bool keep_alive = true;
};

// Bytes to send: `bytes`, then `body` or `static_body`.
struct HttpPiece {
  std::string bytes;
  std::string body;
  std::string_view static_body = {};

  std::string_view tail() const { return body.empty() ? static_body : std::string_view(body); }
};

// Encodes a response in the calling thread and queues it. Functions of the service's side are
// called from any thread, one at a time; those of the network's side from the network thread.
class HttpOutput : public std::enable_shared_from_this<HttpOutput> {
 public:
  HttpOutput(std::shared_ptr<HttpLink> link, HttpResponseForm form);
  ~HttpOutput();

  // The service's side, as in HttpExchange.
  void respond(HttpResponse response);
  void start(int status, const std::vector<HttpHeader>& headers, std::string keep_alive);
  void write(std::string_view bytes);
  void finish(bool complete);
  bool is_full() const;
  bool is_gone() const;
  void set_on_change(void (*on_change)(void* user), void* user);
  // The service has let go of the exchange.
  void let_go();

  // The network's side.
  enum class Next : unsigned char { kNothing, kPiece, kEnd, kCut, kForgotten };
  // Moves what is queued to `piece`, whose strings must be empty. kEnd: the response is complete
  // and sent; kCut: it ends here, incomplete; kForgotten: the service let go before it responded.
  Next take(HttpPiece& piece);
  // `n_bytes` of what was taken, not counting static_body, are sent. Calls on_change when the queue
  // is full no more.
  void sent(std::size_t n_bytes);
  // The peer has gone. Calls on_change.
  void lose();
  // Calls on_change where it was set after the peer had gone.
  void notify_late();
  // Queues the comment of silence; false: there is none.
  bool write_keep_alive();
  // Whether the whole response is queued.
  bool is_finished() const;
  std::size_t queued_bytes() const;
  // Whether the connection can go on behind this response.
  bool keeps_alive() const;

  HttpConnection* connection = nullptr;  // the network thread's; null when it is done with this

 private:
  void append_head(int status, const std::vector<HttpHeader>& headers);
  void append_piece(std::string_view bytes);
  void count_queued(std::size_t n_bytes);
  void wake_locked();
  void call_on_change();

  const std::shared_ptr<HttpLink> link_;
  const HttpResponseForm form_;

  mutable std::mutex mutex_;
  HttpPiece pending_;
  std::string keep_alive_;
  std::size_t queued_bytes_ = 0;  // pending and taken, not sent
  int status_ = 0;                // 0: no response yet
  bool is_chunked_ = false;
  bool closes_ = false;  // the connection ends behind this response
  bool is_streamed_ = false;
  bool is_finished_ = false;
  bool is_cut_ = false;
  bool is_full_ = false;
  bool is_gone_ = false;
  bool is_let_go_ = false;
  bool is_woken_ = false;
  bool owes_notice_ = false;

  // Held while on_change runs, so that nobody else replaces it meanwhile.
  std::recursive_mutex on_change_mutex_;
  void (*on_change_)(void*) = nullptr;
  void* user_ = nullptr;
};

// An exchange as the service holds it.
class ServiceExchange final : public HttpExchange {
 public:
  ServiceExchange(HttpRequest request, std::shared_ptr<HttpOutput> output,
                  std::shared_ptr<HttpLink> link, ByteShare head_share, ByteShare body_share);
  ~ServiceExchange() override;

  const HttpRequest& request() const noexcept override { return request_; }
  void drop_body() noexcept override;
  void respond(HttpResponse response) override { output_->respond(std::move(response)); }
  void start(int status, std::vector<HttpHeader> headers, std::string keep_alive) override {
    output_->start(status, headers, std::move(keep_alive));
  }
  void write(std::string bytes) override { output_->write(bytes); }
  void finish(bool complete) override { output_->finish(complete); }
  bool is_full() const noexcept override { return output_->is_full(); }
  bool is_gone() const noexcept override { return output_->is_gone(); }
  void set_on_change(void (*on_change)(void*), void* user) override {
    output_->set_on_change(on_change, user);
  }

 private:
  HttpRequest request_;
  const std::shared_ptr<HttpOutput> output_;
  const std::shared_ptr<HttpLink> link_;  // keeps the budgets of the shares
  ByteShare head_share_;
  ByteShare body_share_;
};

// Returns the standard's phrase of a status, as "Not Found".
std::string_view http_reason(int status);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_HTTP_HTTP_OUTPUT_H_
