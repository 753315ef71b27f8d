// SPDX-License-Identifier: MIT
#include "tools/serve/web/web_folder.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/common/file_path.h"
#include "tools/common/system_files.h"
#include "tools/serve/web/file_answer.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFiles = 1000;
constexpr std::string_view kPrefix = "/web/";

std::string_view content_type(const std::string& extension) {
  struct Type {
    std::string_view extension;
    std::string_view type;
  };
  constexpr std::array kTypes = {Type{".html", "text/html; charset=utf-8"},
                                 Type{".js", "text/javascript; charset=utf-8"},
                                 Type{".mjs", "text/javascript; charset=utf-8"},
                                 Type{".css", "text/css; charset=utf-8"},
                                 Type{".wasm", "application/wasm"},
                                 Type{".json", "application/json"},
                                 Type{".svg", "image/svg+xml"},
                                 Type{".png", "image/png"},
                                 Type{".txt", "text/plain; charset=utf-8"}};
  for (const Type& known : kTypes) {
    if (known.extension == extension) return known.type;
  }
  return "application/octet-stream";
}

// Size and time of a regular file; nothing of a link or what is no file.
struct Version {
  std::uint64_t bytes = 0;
  std::int64_t changed = 0;
  bool operator==(const Version&) const = default;
};

std::optional<Version> version_of(const fs::path& path) {
  std::error_code error;
  if (is_link(path_text(path)) || !fs::is_regular_file(path, error)) return std::nullopt;
  Version version;
  version.bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  version.changed = fs::last_write_time(path, error).time_since_epoch().count();
  if (error) return std::nullopt;
  return version;
}

// Opens a file whose version does not change meanwhile; one that is replaced is tried again.
std::optional<Version> open_file(const fs::path& path, std::ifstream& file) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const std::optional<Version> before = version_of(path);
    if (!before) return std::nullopt;
    file = std::ifstream();
    file.rdbuf()->pubsetbuf(nullptr, 0);  // it is read in large pieces
    file.open(path, std::ios::binary);
    if (!file.is_open()) return std::nullopt;
    if (version_of(path) == before) return before;
  }
  return std::nullopt;
}

HttpResponse no_file() {
  HttpResponse response;
  response.status = 404;
  response.headers = {{"Content-Type", "text/plain; charset=utf-8"}, {"Cache-Control", "no-store"}};
  response.body = "no such file in the folder of --web\n";
  return response;
}

std::vector<HttpHeader> headers_of(const fs::path& path, const std::string& etag) {
  return {{"ETag", etag},
          {"Accept-Ranges", "bytes"},
          {"Cache-Control", "no-cache"},
          {"Content-Type", std::string(content_type(path.extension().string()))},
          {"X-Content-Type-Options", "nosniff"},
          {"Cross-Origin-Opener-Policy", "same-origin"},
          {"Cross-Origin-Embedder-Policy", "require-corp"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

}  // namespace

std::uint64_t WebFolder::memory_bytes(std::size_t max_connections) {
  constexpr std::uint64_t kBytesOfList = 512U << 10U;
  constexpr std::uint64_t kBytesOfPart = 2048;  // an open file, and what its response is made of
  return kBytesOfList + max_connections * kBytesOfPart;
}

std::unique_ptr<WebFolder> WebFolder::open(const std::string& folder, std::string& error) {
  std::unique_ptr<WebFolder> web(new WebFolder);
  const fs::path root = file_path(folder);
  std::error_code failure;
  fs::recursive_directory_iterator at(root, failure);
  for (const fs::recursive_directory_iterator end; !failure && at != end; at.increment(failure)) {
    if (is_link(path_text(at->path()))) {
      at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file(failure)) continue;
    if (web->files_.size() == kMaxFiles) {
      error = "--web: " + folder + ": more than " + std::to_string(kMaxFiles) +
              " files; name a folder with nothing but what is to be served";
      return nullptr;
    }
    const std::u8string name = at->path().lexically_relative(root).generic_u8string();
    web->files_.emplace(std::string(kPrefix) + std::string(name.begin(), name.end()), at->path());
  }
  if (failure) {
    error = "--web: " + folder + ": " + failure.message();
    return nullptr;
  }
  return web;
}

void WebFolder::answer(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const auto found = files_.find(decoded_path(request.path));
  std::ifstream file;
  std::optional<Version> version;
  if (found != files_.end()) version = open_file(found->second, file);
  if (!version) return exchange->respond(no_file());

  char etag[64];
  std::snprintf(etag, sizeof etag, "\"%" PRIx64 "-%" PRIx64 "\"", version->bytes,
                static_cast<std::uint64_t>(version->changed));
  const FileAnswer answer = answer_file(request, version->bytes, etag);
  std::vector<HttpHeader> headers = headers_of(found->second, etag);
  const std::string of_all = "/" + std::to_string(version->bytes);
  if (answer.status == 416) headers.push_back({"Content-Range", "bytes *" + of_all});
  if (answer.status == 206) {
    headers.push_back({"Content-Range", "bytes " + std::to_string(answer.first) + "-" +
                                            std::to_string(answer.first + answer.n_bytes - 1) +
                                            of_all});
  }
  if (answer.status != 200 && answer.status != 206) {
    return exchange->respond({.status = answer.status, .headers = std::move(headers)});
  }
  headers.push_back({"Content-Length", std::to_string(answer.n_bytes)});
  const bool is_head = request.method == "HEAD";
  file.seekg(static_cast<std::streamoff>(answer.first));
  exchange->start(answer.status, std::move(headers), {});
  if (is_head) return exchange->finish();
  sender_.send(std::move(exchange), std::move(file), answer.n_bytes);
}

}  // namespace qsf_tools
