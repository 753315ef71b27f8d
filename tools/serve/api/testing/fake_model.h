// SPDX-License-Identifier: MIT
//
// A model whose tokens are bytes, and a server around it for tests of one request at a time.

#ifndef QSF_TOOLS_SERVE_API_TESTING_FAKE_MODEL_H_
#define QSF_TOOLS_SERVE_API_TESTING_FAKE_MODEL_H_

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/api_settings.h"
#include "tools/serve/api/router.h"
#include "tools/serve/api/testing/fake_exchange.h"

namespace qsf_tools {

// A call of a function without arguments, as Hermes models write it.
inline constexpr const char* kHermesCall = R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)";

// Token t below 256 is the byte t, and 0 ends a text; 256 begins a text, and 257 to 259 mark the
// gap to be filled.
class FakeAccess : public ModelAccess {
 public:
  static constexpr int kBos = 256;
  static constexpr int kEnd = 0;
  static constexpr int kVocab = 260;

  std::optional<ApiError> chat_prompt(const LoadedModel& /*model*/,
                                      const ChatPromptRequest& request,
                                      ChatPrompt& prompt) const override {
    asked = {std::string(request.messages), std::string(request.tools),
             std::string(request.variables)};
    continues_final = request.continue_final_message;
    adds_generation_prompt = request.add_generation_prompt;
    if (chat_error) return chat_error;
    prompt.text = prompt_text;
    const std::size_t n_tokens =
        counts_bytes ? request.messages.size() : static_cast<std::size_t>(n_prompt_tokens);
    prompt.tokens.assign(n_tokens, 'p');
    prompt.end_tokens = {7};
    prompt.end_texts = {"<end>"};
    prompt.tools_in_system = tools_in_system;
    return std::nullopt;
  }

  std::optional<ApiError> tokenize(const LoadedModel& /*model*/, std::string_view text,
                                   unsigned flags, std::vector<int>& tokens) const override {
    constexpr std::array<std::string_view, 3> kMarkers = {"<|fim_prefix|>", "<|fim_suffix|>",
                                                          "<|fim_middle|>"};
    tokens.clear();
    if ((flags & QSF_TOKENIZE_NO_BOS) == 0) tokens.push_back(kBos);
    for (std::size_t i = 0; i < kMarkers.size(); ++i) {
      if (!has_fim || (flags & QSF_TOKENIZE_PARSE_SPECIAL) == 0 || text != kMarkers[i]) continue;
      tokens.push_back(257 + static_cast<int>(i));
      return std::nullopt;
    }
    if (adds_space && !text.empty()) tokens.push_back(' ');
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return std::nullopt;
  }

  std::optional<ApiError> detokenize(const LoadedModel& model, const std::vector<int>& tokens,
                                     std::string& text) const override {
    text.clear();
    for (const int token : tokens) text += token_bytes(model, token);
    return std::nullopt;
  }

  std::string token_bytes(const LoadedModel& /*model*/, int token) const override {
    return token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  }

  std::optional<std::string> check_grammar(const LoadedModel& /*model*/,
                                           const std::string& grammar) const override {
    if (grammar.find("not-a-type") == std::string::npos) return std::nullopt;
    return "unknown type";
  }

  std::optional<ApiError> embed(const LoadedModel& /*model*/, const std::vector<int>& tokens,
                                qsf_pooling pooling, bool /*normalize*/,
                                std::vector<float>& embedding) const override {
    if (embeds_left-- == 0) return invalid_field("input", "values that are not finite");
    const float of_pooling[] = {0.75F, 1.5F, 3.0F, 0.25F};
    embedding = {static_cast<float>(tokens.size()), of_pooling[pooling]};
    return std::nullopt;
  }

  struct Asked {
    std::string messages;
    std::string tools;
    std::string variables;
  };
  mutable Asked asked;
  mutable bool continues_final = false;
  mutable bool adds_generation_prompt = false;
  mutable int embeds_left = 1000;
  std::optional<ApiError> chat_error;
  std::string prompt_text = "prompt";
  int n_prompt_tokens = 5;
  bool tools_in_system = false;
  bool counts_bytes = false;  // a prompt has as many tokens as its messages have bytes
  bool has_fim = true;
  bool adds_space = false;  // before a text
};

// Sends one request through the routes, and plays the scheduler.
class FakeServer {
 public:
  FakeServer() {
    model.id = "tiny";
    model.info.context = 100;
    model.info.n_vocab = FakeAccess::kVocab;
    model.info.hidden_size = 2;
    settings.access = &access;
    settings.now_seconds = [] { return std::int64_t{1700000000}; };
    settings.now_ns = [] { return std::uint64_t{5}; };
    settings.make_id = [this](std::string_view prefix) {
      return std::string(prefix) + std::to_string(++n_ids);
    };
    settings.make_seed = [] { return std::uint64_t{77}; };
  }

  FakeExchange& send(std::string method, std::string path, std::string body = {}) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.body = std::move(body);
    exchange = std::make_shared<FakeExchange>(std::move(request));
    texts.clear();
    job = route_request({exchange, "key1", &settings, {}});
    if (job == nullptr) return *exchange;
    if (const std::optional<ApiError> error = job->prepare(model, texts)) {
      job->on_error(*error);
      job = nullptr;
    } else if (texts.empty()) {
      while (job->compute_step(model)) ++n_steps;
      job = nullptr;
    }
    return *exchange;
  }

  FakeExchange& post(std::string path, std::string body) {
    return send("POST", std::move(path), std::move(body));
  }

  // Generates `answer` as text `index`, a token a byte, whole characters at once.
  void generate(std::size_t index, std::string_view answer, TextEnd end = TextEnd::kStop) {
    if (texts[index].prompt_log_probs) prompt_tokens(index);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const bool is_whole =
          i + 1 == answer.size() || (static_cast<unsigned char>(answer[i + 1]) & 0xC0) != 0x80;
      const std::array<qsf_log_prob, 2> top = {
          {{static_cast<unsigned char>(answer[i]), -0.5F}, {'z', -1.5F}}};
      TextToken token;
      token.token = static_cast<unsigned char>(answer[i]);
      token.log_prob = -0.5F;
      if (job != nullptr && texts[index].n_top_log_probs > 0) token.top = top;
      if (is_whole) {
        token.text = answer.substr(begin, i + 1 - begin);
        begin = i + 1;
      }
      goes_on = job->on_token(index, token);
      if (!goes_on) break;
    }
    if (texts[index].prompt_log_probs && end == TextEnd::kStop) {
      TextToken token;
      token.token = FakeAccess::kEnd;
      token.is_end = true;
      token.log_prob = -0.125F;
      job->on_token(index, token);
    }
    TextResult result;
    result.end = end;
    result.prompt_tokens = static_cast<int>(texts[index].prompt.size());
    result.cached_tokens = 2;
    result.generated_tokens = static_cast<int>(answer.size());
    job->on_text_end(index, result);
  }

  // Tells the tokens of the prompt: the i-th one's log probability is -i.
  void prompt_tokens(std::size_t index) {
    const TextRequest& text = texts[index];
    const std::array<qsf_log_prob, 1> top = {{{'t', -0.25F}}};
    for (std::size_t i = 0; i < text.prompt.size(); ++i) {
      TextToken token;
      token.token = text.prompt[i];
      token.log_prob = i == 0 ? std::numeric_limits<float>::quiet_NaN() : -static_cast<float>(i);
      if (i > 0 && text.n_top_log_probs > 0) token.top = top;
      job->on_prompt_token(index, token);
    }
  }

  // Sends a request and generates each of `answers`.
  FakeExchange& answer(std::string path, std::string body, std::vector<std::string> answers,
                       TextEnd end = TextEnd::kStop) {
    post(std::move(path), std::move(body));
    if (job == nullptr) return *exchange;
    job->on_admitted();
    for (std::size_t i = 0; i < answers.size(); ++i) generate(i, answers[i], end);
    job->on_end();
    return *exchange;
  }

  FakeAccess access;
  ApiSettings settings;
  LoadedModel model;
  std::shared_ptr<FakeExchange> exchange;
  std::shared_ptr<ServeJob> job;  // null: ended
  std::vector<TextRequest> texts;
  int n_ids = 0;
  int n_steps = 0;  // between the first and the last
  bool goes_on = true;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_TESTING_FAKE_MODEL_H_
