// SPDX-License-Identifier: MIT
#include "tools/serve/page/page.h"

#include <algorithm>
#include <string>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {
namespace {

// Whether a value of If-None-Match, a list of entity tags or a star, names a tag. A weak tag names
// the same bytes here.
bool names_etag(std::string_view list, std::string_view etag) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    const std::size_t first = item.find_first_not_of(" \t");
    if (first == std::string_view::npos) continue;
    item = item.substr(first, item.find_last_not_of(" \t") - first + 1);
    if (item.substr(0, 2) == "W/") item.remove_prefix(2);
    if (item == etag || item == "*") return true;
  }
  return false;
}

}  // namespace

const PageFile* find_page_file(std::string_view path) noexcept {
  const std::span<const PageFile> files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [path](const PageFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

HttpResponse page_response(const PageFile& file, std::string_view if_none_match) {
  HttpResponse response;
  for (const PageHeader& header : page_headers()) {
    response.headers.push_back({std::string(header.name), std::string(header.value)});
  }
  response.headers.push_back({"ETag", std::string(file.etag)});
  if (names_etag(if_none_match, file.etag)) {
    response.status = 304;
    return response;
  }
  response.headers.push_back({"Content-Type", std::string(file.content_type)});
  response.body = file.bytes;
  return response;
}

}  // namespace qsf_tools
