// SPDX-License-Identifier: MIT
//
// The C API's chat prompts; the contract is include/qsf/chat_prompt.h.

#include <ctime>

#include "capi/capi_handles.h"

struct QSFChatPrompt {
  qsf::ChatPrompt prompt;
  std::vector<int> tokens;
  std::vector<int> end_tokens;
  std::vector<const char*> end_texts;
};

namespace qsf::capi {

namespace {

qsf_chat_prompt_options default_chat_prompt_options() noexcept {
  qsf_chat_prompt_options options = {};
  options.struct_size = sizeof options;
  options.add_generation_prompt = 1;
  return options;
}

Result<std::string_view> read_json(const char* name, const char* text, std::size_t n_bytes) {
  if (text != nullptr) return std::string_view(text, n_bytes);
  if (n_bytes > 0) return null_argument(name);
  return std::string_view();
}

Status create(QSFEngine* engine, const qsf_chat_prompt_options* from, QSFChatPrompt** out) {
  if (engine == nullptr) return null_argument("engine");
  qsf_chat_prompt_options options = default_chat_prompt_options();
  QSF_RETURN_IF_ERROR(read_struct(from, "options", options));
  if (options.messages == nullptr) return null_argument("messages");
  if (!engine->chat_prompts) {
    return unsupported("chat prompt: this model file has no tokenizer");
  }
  ChatPromptOptions request;
  request.messages = {options.messages, options.messages_bytes};
  QSF_ASSIGN_OR_RETURN(request.tools, read_json("tools", options.tools, options.tools_bytes));
  QSF_ASSIGN_OR_RETURN(request.variables,
                       read_json("variables", options.variables, options.variables_bytes));
  if (options.chat_template != nullptr) request.chat_template = options.chat_template;
  request.now_seconds = options.now_seconds != 0 ? options.now_seconds
                                                 : static_cast<std::int64_t>(std::time(nullptr));
  request.add_generation_prompt = options.add_generation_prompt != 0;
  request.continue_final_message = options.continue_final_message != 0;

  auto handle = std::make_unique<QSFChatPrompt>();
  QSF_ASSIGN_OR_RETURN(handle->prompt, engine->chat_prompts->make(request));
  const ChatPrompt& prompt = handle->prompt;
  handle->tokens.assign(prompt.tokens.begin(), prompt.tokens.end());
  handle->end_tokens.assign(prompt.end_tokens.begin(), prompt.end_tokens.end());
  for (const std::string& text : prompt.end_texts) handle->end_texts.push_back(text.c_str());
  *out = handle.release();
  return ok_status();
}

qsf_chat_prompt_info to_c(const QSFChatPrompt& handle) noexcept {
  qsf_chat_prompt_info info = {};
  info.tokens = handle.tokens.data();
  info.n_tokens = handle.tokens.size();
  info.text = handle.prompt.text.c_str();
  info.text_bytes = handle.prompt.text.size();
  info.end_tokens = handle.end_tokens.data();
  info.n_end_tokens = handle.end_tokens.size();
  info.end_texts = handle.end_texts.data();
  info.n_end_texts = handle.end_texts.size();
  info.merges_system = handle.prompt.merges_system ? 1 : 0;
  info.tools_in_system = handle.prompt.tools_in_system ? 1 : 0;
  return info;
}

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void(qsf_chat_prompt_options_init)(qsf_chat_prompt_options* options) {
  init_struct(default_chat_prompt_options(), kReleasedSizes<qsf_chat_prompt_options>.front(),
              options);
}
void qsf_chat_prompt_options_init_sized(qsf_chat_prompt_options* options, size_t struct_size) {
  init_struct(default_chat_prompt_options(), struct_size, options);
}

qsf_code qsf_chat_prompt_create(QSFEngine* engine, const qsf_chat_prompt_options* options,
                                QSFChatPrompt** prompt, qsf_error* error) {
  return guarded(error, [&] {
    if (prompt == nullptr) return null_argument("prompt");
    *prompt = nullptr;
    return create(engine, options, prompt);
  });
}

void qsf_chat_prompt_free(QSFChatPrompt* prompt) {
  delete prompt;
}

qsf_code qsf_chat_prompt_get_info(const QSFChatPrompt* prompt, qsf_chat_prompt_info* info,
                                  qsf_error* error) {
  return guarded(error, [&] {
    if (prompt == nullptr) return null_argument("prompt");
    return write_struct(to_c(*prompt), "info", info);
  });
}
