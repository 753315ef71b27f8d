// SPDX-License-Identifier: MIT
//
// What a request for a file is answered: all of it, a range of its bytes, or that nothing changed.

#ifndef QSF_TOOLS_SERVE_WEB_FILE_ANSWER_H_
#define QSF_TOOLS_SERVE_WEB_FILE_ANSWER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {

struct FileAnswer {
  int status = 200;           // 200, 206, 304, 412, 416
  std::uint64_t first = 0;    // of the bytes that are sent
  std::uint64_t n_bytes = 0;  // 0 where none are
};

// Answers as RFC 9110 has it: If-Match and If-None-Match first, then Range, which counts only where
// If-Range is missing or names this file. A request for several ranges gets the whole file, and so
// does one that is not understood.
FileAnswer answer_file(const HttpRequest& request, std::uint64_t file_bytes, std::string_view etag);

// Returns the path of a request with its %XX decoded; empty where one is not two digits, or is NUL.
std::string decoded_path(std::string_view path);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_WEB_FILE_ANSWER_H_
