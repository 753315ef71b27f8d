// SPDX-License-Identifier: MIT
//
// The files of a folder under /web/, by ranges of bytes: a page with the engine in WebAssembly, and
// models for it. Their headers isolate the page, so that its threads may share memory.
//
// Which files there are is listed once, at the start: no request makes a path. Links are left out.

#ifndef QSF_TOOLS_SERVE_WEB_WEB_FOLDER_H_
#define QSF_TOOLS_SERVE_WEB_WEB_FOLDER_H_

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tools/serve/http/http_exchange.h"
#include "tools/serve/web/file_sender.h"

namespace qsf_tools {

class WebFolder {
 public:
  // What it takes beside the buffers of the HTTP server, with so many connections.
  static std::uint64_t memory_bytes(std::size_t max_connections);

  // Lists the files of a folder and of those in it. Returns null and says in `error` what is wrong.
  static std::unique_ptr<WebFolder> open(const std::string& folder, std::string& error);

  // Whether the path of a request is one of ours.
  static bool is_web(std::string_view path) { return path.starts_with("/web/"); }

  // Answers a GET or HEAD. Threads  the network thread
  void answer(std::shared_ptr<HttpExchange> exchange);

 private:
  WebFolder() = default;

  std::map<std::string, std::filesystem::path, std::less<>> files_;  // by decoded path of a request
  FileSender sender_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_WEB_WEB_FOLDER_H_
