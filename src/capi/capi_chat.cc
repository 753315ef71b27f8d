// SPDX-License-Identifier: MIT
//
// The C API's chats; the contract is include/qsf/qsf.h.

#include <ctime>
#include <limits>

#include "capi/capi_handles.h"
#include "engine/chat.h"

namespace qsf::capi {

namespace {

constexpr int kUnbounded = std::numeric_limits<int>::max();

std::string_view text_or_none(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

std::int64_t now_seconds() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

qsf_chat_options default_chat_options() noexcept {
  qsf_chat_options options = {};
  options.struct_size = sizeof options;
  return options;
}

qsf_chat_send_options default_chat_send_options() noexcept {
  qsf_chat_send_options options = {};
  options.struct_size = sizeof options;
  options.max_tokens = kUnbounded;
  return options;
}

Status create(QSFEngine* engine, const qsf_chat_options* from, QSFChat** out) {
  qsf_chat_options options = default_chat_options();
  if (from != nullptr) QSF_RETURN_IF_ERROR(read_struct(from, "options", options));
  if (options.system == nullptr && options.system_bytes > 0) return null_argument("system");
  auto handle = std::make_unique<QSFChat>();
  handle->engine = engine;
  QSF_ASSIGN_OR_RETURN(
      handle->chat,
      Chat::create(*engine->engine, {.system = {options.system, options.system_bytes},
                                     .chat_template = text_or_none(options.chat_template),
                                     .now_seconds = options.now_seconds != 0 ? options.now_seconds
                                                                             : now_seconds()}));
  handle->template_name = handle->chat->format().name();
  *out = handle.release();
  return ok_status();
}

qsf_chat_result to_c(const ChatResult& result, std::size_t n_context) {
  const GenerateResult& generated = result.generated;
  qsf_chat_result out = {};
  out.reason = static_cast<qsf_stop_reason>(generated.reason);
  out.prompt_tokens = static_cast<int>(generated.prompt_tokens);
  out.reused_tokens = static_cast<int>(result.reused_tokens);
  out.generated_tokens = static_cast<int>(generated.generated_tokens);
  out.dropped_messages = static_cast<int>(result.dropped_messages);
  out.context_tokens = static_cast<int>(n_context);
  out.prompt_ns = generated.prompt_ns;
  out.first_token_ns = generated.first_token_ns;
  out.generate_ns = generated.generate_ns;
  return out;
}

Status send(QSFChat* handle, std::string_view text, const qsf_chat_send_options* from,
            qsf_chat_result* result) {
  if (text.data() == nullptr && !text.empty()) return null_argument("text");
  qsf_chat_send_options options = default_chat_send_options();
  if (from != nullptr) QSF_RETURN_IF_ERROR(read_struct(from, "options", options));
  if (result != nullptr) QSF_RETURN_IF_ERROR(write_struct(qsf_chat_result{}, "result", result));

  GenerateOptions settings;
  QSF_RETURN_IF_ERROR(read_count("max_tokens", options.max_tokens, settings.max_tokens));
  SamplingCallbacks callbacks;
  QSF_RETURN_IF_ERROR(
      read_sampling(*handle->engine, options.sampling, settings.sampling, callbacks));
  QSF_RETURN_IF_ERROR(read_stops(options.stop, options.n_stop, settings.stop));
  TokenForwarder forwarder(options.on_token, options.on_prompt, options.user_data);
  forwarder.attach(settings);
  Chat& chat = *handle->chat;
  QSF_ASSIGN_OR_RETURN(const ChatResult done, chat.send(text, settings));
  if (result == nullptr) return ok_status();
  return write_struct(to_c(done, chat.session().length()), "result", result);
}

template <typename Body>
qsf_code chat_call(QSFChat* chat, qsf_error* error, Body&& body) noexcept {
  if (chat == nullptr) return guarded(error, [] { return null_argument("chat"); });
  return engine_call(chat->engine, error, std::forward<Body>(body));
}

// The roles of a chat's own messages, as strings that outlive it.
const char* role_name(std::string_view role) {
  return role == "system" ? "system" : role == "user" ? "user" : "assistant";
}

Status read_messages(const qsf_chat_message* messages, std::size_t n_messages,
                     std::vector<ChatMessage>& out) {
  if (messages == nullptr) return null_argument("messages");
  if (n_messages == 0) return invalid_argument("n_messages: 0, expected at least 1");
  for (std::size_t i = 0; i < n_messages; ++i) {
    if (messages[i].role == nullptr) return null_argument("messages: role");
    if (messages[i].content == nullptr) return null_argument("messages: content");
    out.push_back({messages[i].role, messages[i].content});
  }
  return ok_status();
}

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void(qsf_chat_options_init)(qsf_chat_options* options) {
  init_struct(default_chat_options(), kReleasedSizes<qsf_chat_options>.front(), options);
}
void qsf_chat_options_init_sized(qsf_chat_options* options, size_t struct_size) {
  init_struct(default_chat_options(), struct_size, options);
}

void(qsf_chat_send_options_init)(qsf_chat_send_options* options) {
  init_struct(default_chat_send_options(), kReleasedSizes<qsf_chat_send_options>.front(), options);
}
void qsf_chat_send_options_init_sized(qsf_chat_send_options* options, size_t struct_size) {
  init_struct(default_chat_send_options(), struct_size, options);
}

const char* qsf_chat_template_name(int index) {
  const auto templates = qsf::builtin_templates();
  if (index < 0 || static_cast<std::size_t>(index) >= templates.size()) return nullptr;
  return templates[static_cast<std::size_t>(index)].name.data();  // a literal, so NUL-terminated
}

qsf_code qsf_chat_create(QSFEngine* engine, const qsf_chat_options* options, QSFChat** chat,
                         qsf_error* error) {
  if (chat == nullptr) return guarded(error, [] { return null_argument("chat"); });
  *chat = nullptr;
  return engine_call(engine, error, [&] { return create(engine, options, chat); });
}

void qsf_chat_free(QSFChat* chat) {
  free_owned(chat);
}

qsf_code qsf_chat_send(QSFChat* chat, const char* text, size_t text_bytes,
                       const qsf_chat_send_options* options, qsf_chat_result* result,
                       qsf_error* error) {
  return chat_call(chat, error, [&] { return send(chat, {text, text_bytes}, options, result); });
}

qsf_code qsf_chat_save(QSFChat* chat, const char* path, qsf_error* error) {
  return chat_call(chat, error, [&] {
    if (path == nullptr) return null_argument("path");
    return chat->chat->save(path);
  });
}

qsf_code qsf_chat_load(QSFChat* chat, const char* path, qsf_error* error) {
  return chat_call(chat, error, [&] {
    if (path == nullptr) return null_argument("path");
    return chat->chat->load(path);
  });
}

void qsf_chat_clear(QSFChat* chat) {
  chat_call(chat, nullptr, [&] {
    chat->chat->clear();
    return qsf::ok_status();
  });
}

qsf_code qsf_chat_set_system(QSFChat* chat, const char* system, size_t system_bytes,
                             qsf_error* error) {
  return chat_call(chat, error, [&]() -> qsf::Status {
    if (system == nullptr && system_bytes > 0) return null_argument("system");
    chat->chat->set_system({system, system_bytes});
    return qsf::ok_status();
  });
}

qsf_code qsf_chat_get_info(const QSFChat* chat, qsf_chat_info* info, qsf_error* error) {
  return guarded(error, [&] {
    if (chat == nullptr) return null_argument("chat");
    qsf_chat_info out = {};
    out.template_name = chat->template_name.c_str();
    out.system_merged = chat->chat->format().merges_system() ? 1 : 0;
    out.n_messages = static_cast<int>(chat->chat->n_messages());
    out.context_tokens = static_cast<int>(chat->chat->session().length());
    out.context = static_cast<int>(chat->chat->max_context());
    return write_struct(out, "info", info);
  });
}

qsf_code qsf_chat_get_message(const QSFChat* chat, int index, const char** role, char** content,
                              qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (role == nullptr) return null_argument("role");
    if (content == nullptr) return null_argument("content");
    *role = nullptr;
    *content = nullptr;
    if (chat == nullptr) return null_argument("chat");
    const std::size_t n_messages = chat->chat->n_messages();
    if (index < 0 || static_cast<std::size_t>(index) >= n_messages) {
      return qsf::invalid_argument("index: %d, the chat has %zu messages", index, n_messages);
    }
    const qsf::ChatMessage message = chat->chat->message(static_cast<std::size_t>(index));
    QSF_ASSIGN_OR_RETURN(*content, copy_text(message.content));
    *role = role_name(message.role);
    return qsf::ok_status();
  });
}

qsf_code qsf_engine_apply_chat_template(QSFEngine* engine, const char* chat_template,
                                        const qsf_chat_message* messages, size_t n_messages,
                                        int add_generation_prompt, char** text, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (text == nullptr) return null_argument("text");
    *text = nullptr;
    if (engine == nullptr) return null_argument("engine");
    std::vector<qsf::ChatMessage> list;
    QSF_RETURN_IF_ERROR(read_messages(messages, n_messages, list));
    QSF_ASSIGN_OR_RETURN(const std::string written,
                         qsf::apply_chat_template(*engine->engine,
                                                  {.system = {},
                                                   .chat_template = text_or_none(chat_template),
                                                   .now_seconds = now_seconds()},
                                                  list, add_generation_prompt != 0));
    QSF_ASSIGN_OR_RETURN(*text, copy_text(written));
    return qsf::ok_status();
  });
}
