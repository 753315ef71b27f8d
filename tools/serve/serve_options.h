// SPDX-License-Identifier: MIT
//
// The command line of `qsf serve`.

#ifndef QSF_TOOLS_SERVE_SERVE_OPTIONS_H_
#define QSF_TOOLS_SERVE_SERVE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/engine_options.h"
#include "tools/common/model_cache.h"

namespace qsf_tools {

struct ServeOptions {
  std::vector<std::string> models;
  std::string models_folder;

  std::string host = "127.0.0.1";
  std::uint32_t port = 8080;
  std::string socket_path;
  std::string api_key_file;
  std::vector<std::string> origins;
  std::string web_folder;  // empty: none

  std::uint32_t max_connections = 256;
  std::uint64_t max_body_bytes = 2'000'000;
  double idle_seconds = 75.0;
  double read_seconds = 10.0;
  double write_seconds = 30.0;

  int texts = 16;
  int default_max_tokens = 1024;
  double max_token_gap_seconds = 0.0;
  std::uint32_t max_waiting = 256;
  std::uint64_t max_waiting_tokens = 1U << 20U;
  double max_wait_seconds = 60.0;
  std::string session_folder;
  bool no_prefix_cache = false;
  bool reuse_answers = false;
  std::string cache_folder;  // empty: none
  std::uint64_t cache_folder_bytes = 4'000'000'000;
  int grammars = 8;
  bool strict_fields = false;

  bool check_health = false;  // ask a running server, and serve nothing
  bool log_requests = false;
  bool quiet = false;
  std::string i2s_layout = "auto";
  CacheSettings cache;
  EngineOptions engine;

  bool has_prefix_cache() const;
};

// Parses the command line. Returns the exit code when the program is to end here.
std::optional<int> parse_serve_options(int argc, char** argv, ServeOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SERVE_OPTIONS_H_
