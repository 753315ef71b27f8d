// SPDX-License-Identifier: MIT
//
// The web page, embedded in the program: its files by path, and responses that carry them.
//
// page_files.txt names the files; embed_page.cmake turns them into arrays when they change. The
// page asks for nothing but paths of its own server: these files, /status, /v1/models and
// /v1/chat/completions. Its files need no API key.

#ifndef QSF_TOOLS_SERVE_PAGE_PAGE_H_
#define QSF_TOOLS_SERVE_PAGE_PAGE_H_

#include <span>
#include <string_view>

namespace qsf_tools {

struct HttpResponse;

struct PageFile {
  std::string_view path;  // of the request: "/", "/page/page.css", ...
  std::string_view content_type;
  std::string_view bytes;
  std::string_view etag;  // with its quotes
};

struct PageHeader {
  std::string_view name;
  std::string_view value;
};

// Returns all files of the page. Threads  any
std::span<const PageFile> page_files() noexcept;

// Returns the headers that every file is sent with, among them the Content-Security-Policy; its
// content type and entity tag come on top. Threads  any
std::span<const PageHeader> page_headers() noexcept;

// Returns the file of a path, or null. Threads  any
const PageFile* find_page_file(std::string_view path) noexcept;

// Returns the response to a GET of a file: 200 with its bytes, or 304 without them when
// `if_none_match`, the value of that request header, names its entity tag. Threads  any
HttpResponse page_response(const PageFile& file, std::string_view if_none_match);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_PAGE_PAGE_H_
