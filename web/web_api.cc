// SPDX-License-Identifier: MIT
//
// The engine for web/worker.js: one engine, one session and one generation at a time, by functions
// of numbers and C strings. Generation goes by steps, so that the Worker hears messages between
// them.

#include <emscripten/emscripten.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qsf/qsf.h"

namespace {

struct Free {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
  void operator()(QSFSession* session) const { qsf_session_free(session); }
  void operator()(QSFGeneration* generation) const { qsf_generation_free(generation); }
  void operator()(QSFConfig* config) const { qsf_config_free(config); }
  void operator()(char* text) const { qsf_string_free(text); }
};

struct Web {
  std::unique_ptr<QSFEngine, Free> engine;
  std::unique_ptr<QSFSession, Free> session;
  std::unique_ptr<QSFGeneration, Free> generation;
  std::vector<std::string> stops;
  std::string text;    // of the last step
  std::string answer;  // what the last call returned as text
  qsf_error error{};
};

Web& web() {
  static Web state;
  return state;
}

int invalid(const char* message) {
  Web& w = web();
  w.error.code = QSF_INVALID_ARGUMENT;
  std::snprintf(w.error.message, sizeof w.error.message, "%s", message);
  return -QSF_INVALID_ARGUMENT;
}

void take_text(int, const char* text, void*) {
  web().text += text;
}

// A text in quotes, as JSON.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\') {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      result += escaped;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

// The tokens of a text; empty after an error.
std::vector<int> tokens_of(const char* text, std::size_t n_bytes, unsigned flags) {
  Web& w = web();
  std::vector<int> tokens(n_bytes + 8);
  std::size_t n = 0;
  if (qsf_engine_tokenize(w.engine.get(), text, n_bytes, flags, tokens.data(), tokens.size(), &n,
                          &w.error) != QSF_OK) {
    n = 0;
  }
  tokens.resize(n);
  return tokens;
}

// Keeps what the session's text and the prompt have in common, but for the last token, which the
// next one is predicted from. Returns how many tokens that are; negative after an error.
int keep_common(const std::vector<int>& prompt) {
  Web& w = web();
  std::vector<int> held(qsf_session_length(w.session.get()));
  std::size_t n = 0;
  if (qsf_session_get_tokens(w.session.get(), held.data(), held.size(), &n, &w.error) != QSF_OK) {
    return -w.error.code;
  }
  const std::size_t most = std::min(n, prompt.size() - 1);
  std::size_t common = 0;
  while (common < most && held[common] == prompt[common]) ++common;
  if (common < n && qsf_session_truncate(w.session.get(), common, &w.error) != QSF_OK) {
    return -w.error.code;
  }
  return static_cast<int>(common);
}

}  // namespace

extern "C" {

// The message of the last error.
EMSCRIPTEN_KEEPALIVE const char* qsf_web_error() {
  return web().error.message;
}

// Its qsf_code.
EMSCRIPTEN_KEEPALIVE int qsf_web_error_code() {
  return web().error.code;
}

// All functions below return 0 or more, or the negative qsf_code of an error, unless they say else.

// Opens a model within `megabytes` of memory; context 0: as long as fits. `threads` compute, this
// one included.
EMSCRIPTEN_KEEPALIVE int qsf_web_open(const char* path, int megabytes, int context, int threads) {
  Web& w = web();
  if (w.engine != nullptr) return invalid("open: a model is open already; close it first");
  const std::unique_ptr<QSFConfig, Free> config(qsf_config_default());
  if (config == nullptr) return invalid("open: no memory for its options");
  qsf_config_set_ram_budget(config.get(), static_cast<std::size_t>(megabytes));
  qsf_config_set_threads(config.get(), threads);
  if (context > 0) qsf_config_set_max_seq_len(config.get(), context);
  QSFEngine* engine = nullptr;
  if (qsf_engine_open(path, config.get(), &engine, &w.error) != QSF_OK) return -w.error.code;
  w.engine.reset(engine);
  QSFSession* session = nullptr;
  if (qsf_session_create(engine, &session, &w.error) != QSF_OK) {
    w.engine.reset();
    return -w.error.code;
  }
  w.session.reset(session);
  return 0;
}

EMSCRIPTEN_KEEPALIVE void qsf_web_close() {
  Web& w = web();
  w.generation.reset();
  w.session.reset();
  w.engine.reset();
}

// JSON of the model and of what was done so far. Returns "" without a model.
EMSCRIPTEN_KEEPALIVE const char* qsf_web_info() {
  Web& w = web();
  w.answer.clear();
  qsf_model_info model{};
  qsf_engine_stats stats{};
  model.struct_size = sizeof model;
  stats.struct_size = sizeof stats;
  if (w.engine == nullptr || qsf_engine_model_info(w.engine.get(), &model, &w.error) != QSF_OK ||
      qsf_engine_get_stats(w.engine.get(), &stats, &w.error) != QSF_OK) {
    return w.answer.c_str();
  }
  char numbers[512];
  std::snprintf(numbers, sizeof numbers,
                "\"layers\":%d,\"vocabulary\":%d,\"context\":%d,\"parameters\":%" PRIu64
                ",\"fileBytes\":%" PRIu64 ",\"plannedBytes\":%" PRIu64 ",\"heapBytes\":%" PRIu64
                ",\"weightBytesRead\":%" PRIu64 ",\"readWaitNs\":%" PRIu64 "}",
                model.n_layers, model.n_vocab, model.context, model.n_parameters, model.file_bytes,
                stats.planned_bytes, stats.resident_bytes, stats.weight_bytes_read,
                stats.read_wait_ns);
  w.answer = "{\"architecture\":" + quoted(model.architecture) +
             ",\"weights\":" + quoted(model.quant_type) +
             ",\"instructionSet\":" + quoted(stats.instruction_set) +
             ",\"hasChat\":" + (model.chat_template != nullptr ? "true," : "false,") + numbers;
  return w.answer.c_str();
}

// The prompt of a conversation: `packed` has the template (its name, its source, or nothing for the
// model's own), then role and content of every message, each ended by a NUL. Returns NULL after an
// error.
EMSCRIPTEN_KEEPALIVE const char* qsf_web_chat_prompt(const char* packed, int n_messages) {
  Web& w = web();
  if (w.engine == nullptr) {
    invalid("chat: no model is open");
    return nullptr;
  }
  const char* chat_template = packed[0] != '\0' ? packed : nullptr;
  packed += std::string_view(packed).size() + 1;
  std::vector<qsf_chat_message> messages(static_cast<std::size_t>(n_messages));
  for (qsf_chat_message& message : messages) {
    message.role = packed;
    packed += std::string_view(packed).size() + 1;
    message.content = packed;
    packed += std::string_view(packed).size() + 1;
  }
  char* text = nullptr;
  if (qsf_engine_apply_chat_template(w.engine.get(), chat_template, messages.data(),
                                     messages.size(),
                                     /*add_generation_prompt=*/1, &text, &w.error) != QSF_OK) {
    return nullptr;
  }
  const std::unique_ptr<char, Free> owner(text);
  w.answer = text;
  return w.answer.c_str();
}

// Adds a stop text to the next generation.
EMSCRIPTEN_KEEPALIVE void qsf_web_add_stop(const char* text) {
  web().stops.emplace_back(text);
}

// Begins a generation. What the prompt has in common with the text so far is not computed again;
// its tokens are returned. Negative numbers of sampling: the engine's own choice.
EMSCRIPTEN_KEEPALIVE int qsf_web_begin(const char* prompt, int prompt_bytes, int parse_special,
                                       int max_tokens, double temperature, double top_p, int top_k,
                                       double seed) {
  Web& w = web();
  if (w.engine == nullptr) return invalid("generate: no model is open");
  w.generation.reset();
  w.text.clear();
  const std::vector<std::string> stops = std::move(w.stops);
  w.stops.clear();
  const unsigned flags = parse_special != 0 ? QSF_TOKENIZE_PARSE_SPECIAL : QSF_TOKENIZE_DEFAULT;
  w.error.code = QSF_OK;
  std::vector<int> tokens = tokens_of(prompt, static_cast<std::size_t>(prompt_bytes), flags);
  if (w.error.code != QSF_OK) return -w.error.code;
  if (tokens.empty()) return invalid("generate: the prompt is empty");
  const int common = keep_common(tokens);
  if (common < 0) return common;
  tokens.erase(tokens.begin(), tokens.begin() + common);

  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  if (temperature >= 0) sampling.temperature = static_cast<float>(temperature);
  if (top_p >= 0) sampling.top_p = static_cast<float>(top_p);
  if (top_k >= 0) sampling.top_k = top_k;
  if (seed >= 0) sampling.seed = static_cast<std::uint64_t>(seed);
  std::vector<const char*> stop;
  for (const std::string& text : stops) stop.push_back(text.c_str());
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt_tokens = tokens.data();
  options.n_prompt_tokens = tokens.size();
  options.max_tokens = max_tokens;
  options.sampling = &sampling;
  options.stop = stop.data();
  options.n_stop = stop.size();
  options.on_token = take_text;
  QSFGeneration* generation = nullptr;
  if (qsf_generation_create(w.session.get(), &options, &generation, &w.error) != QSF_OK) {
    return -w.error.code;
  }
  w.generation.reset(generation);
  return common;
}

// One pass: of a part of the prompt, or for a token. Returns 1 once the generation has ended.
EMSCRIPTEN_KEEPALIVE int qsf_web_step() {
  Web& w = web();
  if (w.generation == nullptr) return invalid("step: no generation was begun");
  w.text.clear();
  QSFGeneration* member = w.generation.get();
  if (qsf_engine_step(w.engine.get(), &member, 1, nullptr, &w.error) != QSF_OK) {
    return -w.error.code;
  }
  return qsf_generation_is_finished(member) != 0 ? 1 : 0;
}

// The text of the last step.
EMSCRIPTEN_KEEPALIVE const char* qsf_web_text() {
  return web().text.c_str();
}

// Ends the generation, finished or not. Returns JSON of its result; "" after an error.
EMSCRIPTEN_KEEPALIVE const char* qsf_web_end() {
  constexpr const char* kReasons[] = {"max_tokens",   "end_of_text", "stop",
                                      "context_full", "cancelled",   "callback"};
  Web& w = web();
  w.answer.clear();
  qsf_generate_result result{};
  result.struct_size = sizeof result;
  if (w.generation == nullptr) return w.answer.c_str();
  const bool ended = qsf_generation_is_finished(w.generation.get()) != 0;
  if (qsf_generation_get_result(w.generation.get(), &result, &w.error) != QSF_OK) {
    return w.answer.c_str();
  }
  char json[256];
  std::snprintf(json, sizeof json,
                "{\"reason\":\"%s\",\"promptTokens\":%d,\"tokens\":%d,\"promptMs\":%.3f,"
                "\"firstTokenMs\":%.3f,\"generateMs\":%.3f}",
                ended ? kReasons[result.reason] : "cancelled", result.prompt_tokens,
                result.generated_tokens, static_cast<double>(result.prompt_ns) / 1e6,
                static_cast<double>(result.first_token_ns) / 1e6,
                static_cast<double>(result.generate_ns) / 1e6);
  w.answer = json;
  w.generation.reset();
  return w.answer.c_str();
}

}  // extern "C"
