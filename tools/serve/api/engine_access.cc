// SPDX-License-Identifier: MIT
//
// The access of jobs to models, by the C interface.

#include <memory>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/api_settings.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kShortTokenBytes = 32;

struct FreeChatPrompt {
  void operator()(QSFChatPrompt* prompt) const { qsf_chat_prompt_free(prompt); }
};

class EngineAccess : public ModelAccess {
 public:
  std::optional<ApiError> chat_prompt(const LoadedModel& model, const ChatPromptRequest& request,
                                      ChatPrompt& prompt) const override {
    qsf_chat_prompt_options options;
    qsf_chat_prompt_options_init(&options);
    options.messages = request.messages.data();
    options.messages_bytes = request.messages.size();
    options.tools = request.tools.empty() ? nullptr : request.tools.data();
    options.tools_bytes = request.tools.size();
    options.variables = request.variables.empty() ? nullptr : request.variables.data();
    options.variables_bytes = request.variables.size();
    options.now_seconds = request.now_seconds;
    options.add_generation_prompt = request.add_generation_prompt;
    options.continue_final_message = request.continue_final_message;
    qsf_error error = {};
    QSFChatPrompt* handle = nullptr;
    if (qsf_chat_prompt_create(model.engine, &options, &handle, &error) != QSF_OK) {
      return engine_error(error, "messages");
    }
    const std::unique_ptr<QSFChatPrompt, FreeChatPrompt> owner(handle);
    qsf_chat_prompt_info info = {};
    info.struct_size = sizeof(info);
    if (qsf_chat_prompt_get_info(handle, &info, &error) != QSF_OK) {
      return engine_error(error, "messages");
    }
    prompt.tokens.assign(info.tokens, info.tokens + info.n_tokens);
    prompt.text.assign(info.text, info.text_bytes);
    prompt.end_tokens.assign(info.end_tokens, info.end_tokens + info.n_end_tokens);
    prompt.end_texts.assign(info.end_texts, info.end_texts + info.n_end_texts);
    prompt.tools_in_system = info.tools_in_system != 0;
    return std::nullopt;
  }

  std::optional<ApiError> tokenize(const LoadedModel& model, std::string_view text, unsigned flags,
                                   std::vector<int>& tokens) const override {
    // A token has at least one byte, and special tokens stand around them.
    constexpr std::size_t kSpecialTokens = 8;
    tokens.resize(text.size() + kSpecialTokens);
    std::size_t n_tokens = 0;
    qsf_error error = {};
    if (qsf_engine_tokenize(model.engine, text.data(), text.size(), flags, tokens.data(),
                            tokens.size(), &n_tokens, &error) != QSF_OK) {
      return engine_error(error, "prompt");
    }
    tokens.resize(n_tokens);
    tokens.shrink_to_fit();
    return std::nullopt;
  }

  std::optional<ApiError> detokenize(const LoadedModel& model, const std::vector<int>& tokens,
                                     std::string& text) const override {
    char* decoded = nullptr;
    qsf_error error = {};
    if (qsf_engine_detokenize(model.engine, tokens.data(), tokens.size(), &decoded, &error) !=
        QSF_OK) {
      return engine_error(error, "tokens");
    }
    text = decoded;
    qsf_string_free(decoded);
    return std::nullopt;
  }

  std::string token_bytes(const LoadedModel& model, int token) const override {
    std::string bytes(kShortTokenBytes, '\0');
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::size_t n_bytes = 0;
      if (qsf_engine_get_token_bytes(model.engine, token, bytes.data(), bytes.size(), &n_bytes,
                                     nullptr) != QSF_OK) {
        return {};
      }
      const bool is_whole = n_bytes <= bytes.size();
      bytes.resize(n_bytes);
      if (is_whole) break;
    }
    return bytes;
  }

  std::optional<std::string> check_grammar(const LoadedModel& model,
                                           const std::string& grammar) const override {
    QSFGrammar* handle = nullptr;
    qsf_error error = {};
    const qsf_code code = qsf_grammar_create(model.engine, QSF_GRAMMAR_GBNF, grammar.data(),
                                             grammar.size(), &handle, &error);
    qsf_grammar_free(handle);
    if (code != QSF_INVALID_ARGUMENT && code != QSF_UNSUPPORTED) return std::nullopt;
    return error.message;
  }

  std::optional<ApiError> embed(const LoadedModel& model, const std::vector<int>& tokens,
                                qsf_pooling pooling, bool normalize,
                                std::vector<float>& embedding) const override {
    qsf_error error = {};
    if (qsf_engine_embed(model.engine, tokens.data(), tokens.size(), pooling, normalize,
                         embedding.data(), &error) != QSF_OK) {
      return engine_error(error, "input");
    }
    return std::nullopt;
  }
};

}  // namespace

const ModelAccess& engine_access() {
  static const EngineAccess access;
  return access;
}

}  // namespace qsf_tools
