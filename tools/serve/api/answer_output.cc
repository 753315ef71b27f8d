// SPDX-License-Identifier: MIT
#include "tools/serve/api/answer_output.h"

#include <algorithm>
#include <utility>

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxIgnoredBytes = 1024;

// Names come from the client, so only letters, digits and a few signs of them enter a header.
std::string header_list(const std::vector<std::string>& names) {
  const auto is_safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '[' || c == ']';
  };
  std::string list;
  for (const std::string& name : names) {
    if (list.size() + name.size() > kMaxIgnoredBytes) return list + ", ...";
    if (!list.empty()) list += ", ";
    const std::size_t begin = list.size();
    list += name;
    std::replace_if(
        list.begin() + static_cast<std::ptrdiff_t>(begin), list.end(),
        [&](char c) { return !is_safe(c); }, '?');
  }
  return list;
}

}  // namespace

AnswerOutput::AnswerOutput(std::shared_ptr<HttpExchange> exchange,
                           const std::vector<std::string>& ignored_fields)
    : exchange_(std::move(exchange)), ignored_(header_list(ignored_fields)) {}

void AnswerOutput::respond(int status, std::string body) {
  respond({status, {{"Content-Type", "application/json"}}, std::move(body)});
}

void AnswerOutput::respond(HttpResponse response) {
  if (!ignored_.empty()) response.headers.push_back({"X-QSF-Ignored-Fields", ignored_});
  exchange_->respond(std::move(response));
}

void AnswerOutput::start_events(std::string keep_alive) {
  has_started_ = true;
  std::vector<HttpHeader> stream_headers = headers("text/event-stream");
  // Proxies hold back what looks like a file: nginx reads this header.
  stream_headers.push_back({"X-Accel-Buffering", "no"});
  exchange_->start(200, std::move(stream_headers), std::move(keep_alive));
}

void AnswerOutput::start_lines() {
  has_started_ = true;
  exchange_->start(200, headers("application/x-ndjson"), "");
}

void AnswerOutput::start_json() {
  has_started_ = true;
  exchange_->start(200, headers("application/json"), "");
}

void AnswerOutput::event(std::string_view data) {
  std::string bytes = "data: ";
  bytes += data;
  bytes += "\n\n";
  exchange_->write(std::move(bytes));
}

void AnswerOutput::event(std::string_view name, std::string_view data) {
  std::string bytes = "event: ";
  bytes += name;
  bytes += "\ndata: ";
  bytes += data;
  bytes += "\n\n";
  exchange_->write(std::move(bytes));
}

void AnswerOutput::line(std::string_view json) {
  std::string bytes(json);
  bytes += '\n';
  exchange_->write(std::move(bytes));
}

void AnswerOutput::piece(std::string bytes) {
  exchange_->write(std::move(bytes));
}

void AnswerOutput::finish() {
  exchange_->finish();
}

void AnswerOutput::cut() {
  exchange_->finish(false);
}

std::vector<HttpHeader> AnswerOutput::headers(std::string_view content_type) const {
  std::vector<HttpHeader> headers = {{"Content-Type", std::string(content_type)},
                                     {"Cache-Control", "no-cache"}};
  if (!ignored_.empty()) headers.push_back({"X-QSF-Ignored-Fields", ignored_});
  return headers;
}

}  // namespace qsf_tools
