// SPDX-License-Identifier: MIT

#include "tools/serve/serve_options.h"

#include <limits>

#include "tools/common/option_parser.h"

namespace qsf_tools {

namespace {

constexpr const char* kDescription =
    "Serves models over HTTP, in one memory budget for all requests.\n"
    "It speaks the interfaces of OpenAI, Anthropic and ollama, and has a web page at /.\n"
    "SIGTERM and Ctrl-C end it when the running requests are answered; a second Ctrl-C ends it at "
    "once.";

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr double kMaxSeconds = 1e6;
constexpr const char* kHttp = "HTTP";
constexpr const char* kSchedule = "Requests";

void add_http_options(OptionParser& parser, ServeOptions& options) {
  parser.value("--host", options.host, "Address to listen on; 0.0.0.0 and :: for every one")
      .type_name("ADDRESS")
      .show_default()
      .group(kHttp);
  parser.value("--port", options.port, "Port to listen on; 0 for any free one")
      .integer_in(0, 65535)
      .show_default()
      .group(kHttp);
  parser
      .value("--socket", options.socket_path,
             "Listen on a Unix socket of this path instead of a port")
      .type_name("FILE")
      .group(kHttp);
  parser
      .value("--api-key", options.api_key_file,
             "File with an API key a line; requests need one of them")
      .type_name("FILE")
      .group(kHttp);
  parser
      .value("--origin", options.origins,
             "Origin whose web pages may use the server, such as https://chat.example; may be "
             "given several times")
      .group(kHttp);
  parser
      .value(
          "--web", options.web_folder,
          "Folder whose files are served under /web/, such as the engine for browsers and models "
          "for it (docs/web.md); they need no API key")
      .type_name("DIR")
      .group(kHttp);
  parser.value("--max-connections", options.max_connections, "Connections at a time")
      .integer_in(1, 100000)
      .show_default()
      .group(kHttp);
  parser
      .size_in_mb("--max-body", options.max_body_bytes,
                  "Largest body of a request in MB; suffixes k, M, G; default: 2")
      .group(kHttp);
  parser.value("--idle-timeout", options.idle_seconds, "Seconds that an idle connection is kept")
      .number_above(0.0, kMaxSeconds)
      .show_default()
      .group(kHttp);
  parser.value("--read-timeout", options.read_seconds, "Seconds that a request may take to arrive")
      .number_above(0.0, kMaxSeconds)
      .show_default()
      .group(kHttp);
  parser
      .value("--write-timeout", options.write_seconds,
             "Seconds until a client that reads nothing is given up")
      .number_above(0.0, kMaxSeconds)
      .show_default()
      .group(kHttp);
  parser
      .flag("--strict-fields", options.strict_fields,
            "Refuse requests with unknown fields; otherwise a header lists them")
      .group(kHttp);
}

void add_schedule_options(OptionParser& parser, ServeOptions& options) {
  parser.value("--texts", options.texts, "Texts that are generated at a time; more requests wait")
      .integer_in(1, 255)
      .show_default()
      .group(kSchedule);
  parser
      .value("--default-max-tokens", options.default_max_tokens,
             "Tokens that memory is reserved for where a request names no limit; it may generate "
             "more")
      .integer_in(1, kMaxInt)
      .show_default()
      .group(kSchedule);
  parser
      .value("--max-token-gap", options.max_token_gap_seconds,
             "Seconds between two tokens of a text, at most, while others' prompts are computed; "
             "default: 0.2, or 1.25 times a pass where weights are streamed")
      .number_above(0.0, kMaxSeconds)
      .group(kSchedule);
  parser.value("--queue", options.max_waiting, "Requests that may wait; more are answered 429")
      .integer_in(1, 1000000)
      .show_default()
      .group(kSchedule);
  parser
      .value("--queue-tokens", options.max_waiting_tokens,
             "Prompt tokens that may wait; more are answered 429")
      .show_default()
      .group(kSchedule);
  parser
      .value("--max-wait", options.max_wait_seconds,
             "Seconds that a request may wait until it is answered 429")
      .number_above(0.0, kMaxSeconds)
      .show_default()
      .group(kSchedule);
  parser
      .value("--session-dir", options.session_folder,
             "Folder for texts that leave memory for a while; default: $TMPDIR or /tmp, on Windows "
             "%TEMP%")
      .type_name("DIR")
      .group(kSchedule);
  parser
      .value("--grammars", options.grammars,
             "Grammars and JSON schemas in use at a time, about 2 MB each; more requests wait")
      .integer_in(1, 1024)
      .show_default()
      .group(kSchedule);
  parser
      .flag("--no-prefix-cache", options.no_prefix_cache,
            "Compute every prompt whole, also where requests begin alike")
      .group(kSchedule);
  parser
      .flag("--reuse-answers", options.reuse_answers,
            "Also reuse generated tokens of earlier turns: faster, but a text may then depend on "
            "what was cached")
      .group(kSchedule);
  parser
      .value("--cache-folder", options.cache_folder,
             "Folder for conversations that leave memory, which are then read instead of computed")
      .type_name("DIR")
      .group(kSchedule);
  parser
      .size_in_mb("--cache-folder-size", options.cache_folder_bytes,
                  "What --cache-folder may hold in MB; suffixes k, M, G; default: 4G")
      .group(kSchedule);
}

std::string check_combination(const ServeOptions& options) {
  if (!options.socket_path.empty() && options.host != "127.0.0.1") {
    return "--socket and --host exclude each other";
  }
  if (options.no_prefix_cache && options.reuse_answers) {
    return "--no-prefix-cache and --reuse-answers exclude each other";
  }
  if (!options.cache_folder.empty() && !options.has_prefix_cache()) {
    return "--cache-folder needs the prefix cache: leave out --no-prefix-cache, --kv-spill, and "
           "KV policies and attention but full";
  }
  const bool has_one_model = options.models.size() < 2 && options.models_folder.empty();
  if (!options.engine.adapters.files.empty() && !has_one_model) {
    return "--lora: an adapter belongs to one model; name that one alone, without --models-dir";
  }
  return check_engine_options(options.engine);
}

}  // namespace

// Pages of a cache that evicts positions cannot be shared.
bool ServeOptions::has_prefix_cache() const {
  return !no_prefix_cache && engine.kv_policy.policy == "full" &&
         engine.attention.attention == "full" && engine.kv_spill.empty();
}

std::optional<int> parse_serve_options(int argc, char** argv, ServeOptions& options) {
  OptionParser parser(kDescription);
  parser
      .value("MODEL", options.models,
             "Models: .qsf or .gguf files or Hugging Face folders, or NAME=PATH; the first one is "
             "loaded at once, the others when a request names them")
      .type_name("");
  parser
      .value("--models-dir", options.models_folder,
             "Folder whose .qsf and .gguf files are served too")
      .type_name("DIR");
  add_http_options(parser, options);
  add_schedule_options(parser, options);
  add_engine_options(parser, options.engine);
  parser
      .value("--kv-positions", options.engine.kv_positions,
             "Positions that the KV cache holds for all texts together; default: a whole context, "
             "and 1,024 for each further text")
      .integer_in(1, kMaxInt);
  add_i2s_layout_option(parser, options.i2s_layout);
  add_cache_options(parser, options.cache);
  parser.flag("--check-health", options.check_health,
              "Ask the server that runs on --host and --port, or --socket, whether it is ready");
  parser.flag("--log-requests", options.log_requests,
              "Write a line of JSON for each request to standard output, without its text");
  parser.flag("--quiet", options.quiet, "Print errors alone");
  if (const std::optional<int> code = parser.parse(argc, argv)) return code;
  if (const std::string problem = check_combination(options); !problem.empty()) {
    return parser.usage_error(problem);
  }
  // qsf_engine_embed takes a sequence beside the texts'.
  options.engine.sequences = options.texts + 1;
  return std::nullopt;
}

}  // namespace qsf_tools
