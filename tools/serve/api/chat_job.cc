// SPDX-License-Identifier: MIT
#include "tools/serve/api/chat_job.h"

#include <algorithm>
#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/json_value.h"
#include "tools/serve/api/raw_prompt.h"

namespace qsf_tools {

namespace {

// One answer while it comes.
struct Choice {
  std::optional<AnswerParser> parser;  // none: all is text
  // Tokens that no part was made of yet: for log probabilities, and their number.
  std::vector<AnswerToken> tokens;
  int n_tokens = 0;
  bool called_tools = false;
  std::vector<AnswerToken> prompt_tokens;  // not handed to the format yet
  std::size_t n_hidden = 0;                // tokens of the prompt still to come that no text made
};

class ChatJob : public ServeJob {
 public:
  ChatJob(ChatCall call, std::unique_ptr<AnswerFormat> format,
          std::shared_ptr<HttpExchange> exchange, std::string tenant, const ApiSettings& settings)
      : call_(std::move(call)),
        format_(std::move(format)),
        exchange_(std::move(exchange)),
        settings_(settings),
        tenant_(std::move(tenant)),
        begin_ns_(settings.now_ns()) {
    if (!call_.cache_salt.empty()) tenant_ += '\n' + call_.cache_salt;
  }

  const std::string& model() const noexcept override { return call_.model; }
  const std::string& tenant() const noexcept override { return tenant_; }

  std::optional<ApiError> prepare(const LoadedModel& model,
                                  std::vector<TextRequest>& texts) override;
  bool compute_step(const LoadedModel& /*model*/) override { return false; }
  void on_admitted() override;
  void on_prompt_token(std::size_t text, const TextToken& token) override;
  bool on_token(std::size_t text, const TextToken& token) override;
  void on_text_end(std::size_t text, const TextResult& result) override;
  void on_end() override { format_->on_end(usage_); }
  void on_error(const ApiError& error) override { format_->on_error(with_bad_tool(error)); }
  bool is_full() const noexcept override { return call_.stream && exchange_->is_full(); }
  bool is_gone() const noexcept override { return exchange_->is_gone(); }

 private:
  std::optional<ApiError> check_bias(const LoadedModel& model) const;
  std::optional<ApiError> add_texts(std::vector<int> prompt, const char* param,
                                    std::vector<TextRequest>& texts);
  int context() const;
  std::optional<ApiError> render(std::string_view messages, ChatPrompt& prompt) const;
  std::optional<ApiError> drop_oldest_turns(ChatPrompt& prompt);
  std::optional<ApiError> prepare_chat(std::vector<TextRequest>& texts);
  std::optional<ApiError> prepare_raw(std::vector<TextRequest>& texts);
  std::optional<ApiError> constrain(const ChatSyntax& syntax, std::string_view prompt);
  ApiError with_bad_tool(ApiError error) const;
  std::optional<ApiError> hide_bos(const RawPrompt& raw, std::size_t n_before);
  AnswerToken answer_token(const TextToken& token) const;
  void emit_prompt(std::size_t index);
  void emit(std::size_t index, std::vector<AnswerPart>& parts);

  ChatCall call_;
  std::unique_ptr<AnswerFormat> format_;
  std::shared_ptr<HttpExchange> exchange_;
  const ApiSettings& settings_;
  std::string tenant_;
  std::uint64_t begin_ns_;

  const LoadedModel* model_ = nullptr;
  std::vector<Choice> choices_;
  std::vector<AnswerPart> parts_;  // of one call, kept for its memory
  AnswerUsage usage_;
};

std::optional<ApiError> ChatJob::prepare(const LoadedModel& model,
                                         std::vector<TextRequest>& texts) {
  model_ = &model;
  usage_.load_ns = model.load_ns;
  if (std::optional<ApiError> error = check_bias(model)) return error;
  if (!call_.seed) call_.seed = settings_.make_seed();
  return call_.raw.empty() ? prepare_chat(texts) : prepare_raw(texts);
}

std::optional<ApiError> ChatJob::check_bias(const LoadedModel& model) const {
  for (const qsf_logit_bias& bias : call_.text.logit_bias) {
    if (bias.token < model.info.n_vocab) continue;
    return invalid_field("logit_bias", "'logit_bias' names token " + std::to_string(bias.token) +
                                           ", but the model's tokens end at " +
                                           std::to_string(model.info.n_vocab - 1));
  }
  return std::nullopt;
}

// The most tokens of a prompt and its answer.
int ChatJob::context() const {
  const int context = model_->info.context;
  return call_.max_context > 0 ? std::min(context, call_.max_context) : context;
}

// Appends the n texts of one prompt.
std::optional<ApiError> ChatJob::add_texts(std::vector<int> prompt, const char* param,
                                           std::vector<TextRequest>& texts) {
  if (prompt.empty()) return invalid_field(param, "the prompt has no tokens");
  const int n_prompt = static_cast<int>(prompt.size());
  const int room = context() - n_prompt;
  if (room <= 0) return context_exceeded(n_prompt, context(), param);
  usage_.prompt_tokens += n_prompt;
  for (int i = 0; i < call_.n; ++i) {
    TextRequest& text = texts.emplace_back(call_.text);
    text.prompt = prompt;
    text.sampling.seed = *call_.seed + static_cast<std::uint64_t>(i);
    // Ends with `length`, as a full context.
    const bool is_bounded = text.max_tokens >= 0 || context() < model_->info.context;
    if (is_bounded && (text.max_tokens < 0 || text.max_tokens > room)) text.max_tokens = room;
  }
  return std::nullopt;
}

std::optional<ApiError> ChatJob::render(std::string_view messages, ChatPrompt& prompt) const {
  ChatPromptRequest request;
  request.messages = messages;
  request.tools = call_.tools;
  request.variables = call_.variables;
  request.add_generation_prompt = call_.add_generation_prompt;
  request.continue_final_message = call_.continue_final_message;
  request.now_seconds = settings_.now_seconds();
  return settings_.access->chat_prompt(*model_, request, prompt);
}

// Leaves as many of the oldest turns out of a prompt that exceeds the context as it takes, and
// keeps the system's messages before them. A turn is a user's message and what follows it:
// templates insist on that order. A prompt that is too long even so stays as it is.
std::optional<ApiError> ChatJob::drop_oldest_turns(ChatPrompt& prompt) {
  const auto limit = static_cast<std::size_t>(context());
  JsonValue parsed;
  std::string problem;
  if (prompt.tokens.size() < limit || !parse_json(call_.messages, {}, parsed, problem)) {
    return std::nullopt;
  }
  const JsonArray& messages = *parsed.array();
  const auto is_of = [&messages](std::size_t i, std::string_view role) {
    const JsonValue* value = messages[i].member("role");
    return value != nullptr && value->text() != nullptr && *value->text() == role;
  };
  std::size_t n_system = 0;
  while (n_system < messages.size() &&
         (is_of(n_system, "system") || is_of(n_system, "developer"))) {
    ++n_system;
  }
  std::vector<std::size_t> begins;  // of all turns but the oldest
  for (std::size_t i = n_system + 1; i < messages.size(); ++i) {
    if (is_of(i, "user")) begins.push_back(i);
  }
  std::size_t low = 0;
  std::size_t high = begins.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    JsonArray kept(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(n_system));
    kept.insert(kept.end(), messages.begin() + static_cast<std::ptrdiff_t>(begins[middle]),
                messages.end());
    ChatPrompt shorter;
    if (auto error = render(JsonValue(std::move(kept)).to_text(), shorter)) return error;
    if (shorter.tokens.size() < limit) {
      prompt = std::move(shorter);
      usage_.dropped_messages = static_cast<int>(begins[middle] - n_system);
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::nullopt;
}

std::optional<ApiError> ChatJob::prepare_chat(std::vector<TextRequest>& texts) {
  ChatPrompt prompt;
  if (auto error = render(call_.messages, prompt)) return error;
  if (call_.drops_oldest) {
    if (auto error = drop_oldest_turns(prompt)) return error;
  }
  // Long conversations are not kept beside their tokens.
  call_.messages = std::string();
  call_.tools = std::string();
  TextRequest& text = call_.text;
  text.end_tokens.insert(text.end_tokens.end(), prompt.end_tokens.begin(), prompt.end_tokens.end());
  text.stop.insert(text.stop.end(), prompt.end_texts.begin(), prompt.end_texts.end());

  const char* source = model_->info.chat_template;
  const ChatSyntax& syntax = prompt.tools_in_system
                                 ? *described_tools_syntax()
                                 : *detect_chat_syntax(source == nullptr ? "" : source);
  if (auto error = constrain(syntax, prompt.text)) return error;
  const bool has_tools =
      !call_.tool_use.tools.empty() && call_.tool_use.choice != ToolChoice::kNone;
  const bool is_parsed = has_tools || call_.split_reasoning;
  text.keep_special = is_parsed;  // markers of calls and of reasoning
  if (auto error = add_texts(std::move(prompt.tokens), "messages", texts)) return error;
  choices_.resize(texts.size());
  const bool in_reasoning = ends_in_reasoning(syntax, prompt.text);
  for (Choice& choice : choices_) {
    if (is_parsed) choice.parser.emplace(syntax, call_.tool_use, in_reasoning);
  }
  return std::nullopt;
}

// Sets the grammar of tool calls, or where the constraint of the call begins.
std::optional<ApiError> ChatJob::constrain(const ChatSyntax& syntax, std::string_view prompt) {
  TextConstraint& constraint = call_.text.constraint;
  const bool is_constrained = constraint.kind != TextConstraint::Kind::kNone;
  std::optional<ToolGrammar> grammar = tool_grammar(syntax, call_.tool_use, prompt);
  if (!grammar) {
    if (is_constrained) constraint.trigger = answer_trigger(syntax, prompt);
    return std::nullopt;
  }
  if (is_constrained) {
    return invalid_field("tools",
                         "tools cannot be called by an answer that 'response_format' or 'grammar' "
                         "constrains; name one of them, or set 'tool_choice' to 'none'");
  }
  if (grammar->grammar.size() > kMaxToolGrammarBytes) {
    return invalid_field("tools", "the grammar of calls of the tools has more than " +
                                      std::to_string(kMaxToolGrammarBytes) +
                                      " bytes; name fewer tools, or shorter parameters");
  }
  constraint.kind = TextConstraint::Kind::kGrammar;
  constraint.source = std::move(grammar->grammar);
  constraint.trigger = std::move(grammar->trigger);
  constraint.param = "tools";
  return std::nullopt;
}

// The token that the tokenizer puts before a text is none of the client's.
std::optional<ApiError> ChatJob::hide_bos(const RawPrompt& raw, std::size_t n_before) {
  if (!call_.text.prompt_log_probs || raw.tokens || !raw.add_bos) return std::nullopt;
  std::vector<int> added;
  if (auto error = settings_.access->tokenize(*model_, "", QSF_TOKENIZE_DEFAULT, added)) {
    return error;
  }
  for (std::size_t i = n_before; i < choices_.size(); ++i) choices_[i].n_hidden = added.size();
  return std::nullopt;
}

std::optional<ApiError> ChatJob::prepare_raw(std::vector<TextRequest>& texts) {
  for (RawPrompt& raw : call_.raw) {
    const std::size_t n_before = texts.size();
    std::vector<int> tokens;
    if (auto error = raw_tokens(settings_, *model_, raw, call_.text.end_tokens, tokens)) {
      return error;
    }
    if (auto error = add_texts(std::move(tokens), "prompt", texts)) return error;
    choices_.resize(texts.size());
    if (auto error = hide_bos(raw, n_before)) return error;
  }
  return std::nullopt;
}

void ChatJob::on_admitted() {
  AnswerStart start;
  start.model = model_;
  start.model_name = call_.model.empty() ? model_->id : call_.model;
  start.n_choices = choices_.size();
  start.prompt_tokens = usage_.prompt_tokens;
  format_->on_start(start);
}

AnswerToken ChatJob::answer_token(const TextToken& token) const {
  const auto candidate = [this](int id, float log_prob) {
    return AnswerToken::Candidate{id, settings_.access->token_bytes(*model_, id), log_prob};
  };
  AnswerToken answer;
  answer.drawn = candidate(token.token, token.log_prob);
  for (const qsf_log_prob& top : token.top) {
    answer.top.push_back(candidate(top.token, top.log_prob));
  }
  return answer;
}

// Where the grammar of all tools was refused, names the tool whose schema cannot be used.
ApiError ChatJob::with_bad_tool(ApiError error) const {
  if (model_ == nullptr || error.status != 400 || error.param != call_.text.constraint.param ||
      error.param != "tools") {
    return error;
  }
  // Others wait meanwhile, and schemas may be made to take long.
  constexpr std::uint64_t kMaxNs = 200'000'000;
  const std::uint64_t begin_ns = settings_.now_ns();
  const std::vector<ToolDefinition>& tools = call_.tool_use.tools;
  for (std::size_t i = 0; i < tools.size() && settings_.now_ns() - begin_ns < kMaxNs; ++i) {
    const std::optional<std::string> reason =
        settings_.access->check_grammar(*model_, tool_schema_grammar(tools[i]));
    if (!reason) continue;
    error.param = "tools[" + std::to_string(i) + "].function.parameters";
    error.message = "the tool '" + tools[i].name + "': " + *reason;
    break;
  }
  return error;
}

void ChatJob::on_prompt_token(std::size_t text, const TextToken& token) {
  constexpr std::size_t kTokensAtOnce = 64;
  Choice& choice = choices_[text];
  if (choice.n_hidden > 0) {
    --choice.n_hidden;
    return;
  }
  choice.prompt_tokens.push_back(answer_token(token));
  if (choice.prompt_tokens.size() == kTokensAtOnce) emit_prompt(text);
}

void ChatJob::emit_prompt(std::size_t index) {
  std::vector<AnswerToken>& tokens = choices_[index].prompt_tokens;
  if (!tokens.empty()) format_->on_prompt(index, tokens);
  tokens.clear();
}

bool ChatJob::on_token(std::size_t text, const TextToken& token) {
  Choice& choice = choices_[text];
  emit_prompt(text);
  if (!token.is_rest && !token.is_end) ++choice.n_tokens;
  if (call_.text.log_probs && !token.is_rest) choice.tokens.push_back(answer_token(token));
  parts_.clear();
  if (choice.parser) {
    choice.parser->push(token.text, parts_);
  } else {
    AnswerPart& part = parts_.emplace_back();
    part.text = token.text;
  }
  emit(text, parts_);
  const bool has_its_call = choice.called_tools && !call_.tool_use.parallel;
  return !has_its_call && !exchange_->is_gone();
}

// Hands parts to the format. The tokens since the last part belong to the first text; those of
// reasoning and of calls are in no list of log probabilities.
void ChatJob::emit(std::size_t index, std::vector<AnswerPart>& parts) {
  Choice& choice = choices_[index];
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) {
      // Behind its only call an answer ends.
      if (choice.called_tools && !call_.tool_use.parallel) continue;
      choice.called_tools = true;
      format_->on_part(index, part, {});
    } else if (!part.text.empty()) {
      if (part.kind == AnswerPart::Kind::kReasoning) usage_.reasoning_tokens += choice.n_tokens;
      const bool is_text = part.kind == AnswerPart::Kind::kText;
      format_->on_part(
          index, part,
          is_text ? std::span<const AnswerToken>(choice.tokens) : std::span<const AnswerToken>());
    } else {
      continue;
    }
    choice.tokens.clear();
    choice.n_tokens = 0;
  }
}

void ChatJob::on_text_end(std::size_t text, const TextResult& result) {
  Choice& choice = choices_[text];
  parts_.clear();
  if (choice.parser) choice.parser->finish(parts_);
  emit(text, parts_);
  emit_prompt(text);
  // Those that count tokens find each of them, also one without text.
  if (call_.text.prompt_log_probs && !choice.tokens.empty()) {
    format_->on_part(text, AnswerPart(), choice.tokens);
  }
  usage_.generated_tokens += result.generated_tokens;
  // The answers of one prompt share it.
  if (text % static_cast<std::size_t>(call_.n) == 0) usage_.cached_tokens += result.cached_tokens;
  usage_.prompt_ns = std::max(usage_.prompt_ns, result.prompt_ns);
  usage_.generate_ns = std::max(usage_.generate_ns, result.generate_ns);
  usage_.total_ns = settings_.now_ns() - begin_ns_;
  format_->on_choice_end(text, {result, choice.called_tools});
}

}  // namespace

std::shared_ptr<ServeJob> make_chat_job(ChatCall call, std::unique_ptr<AnswerFormat> format,
                                        std::shared_ptr<HttpExchange> exchange, std::string tenant,
                                        const ApiSettings& settings) {
  return std::make_shared<ChatJob>(std::move(call), std::move(format), std::move(exchange),
                                   std::move(tenant), settings);
}

}  // namespace qsf_tools
