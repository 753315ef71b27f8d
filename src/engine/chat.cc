// SPDX-License-Identifier: MIT
//
// Turns of a conversation; the contract is in chat.h.

#include "engine/chat.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8_text.h"
#include "engine/chat_transcript.h"
#include "tokenizer/stream_decoder.h"

namespace qsf {

namespace {

constexpr std::uint32_t kReservedShare = 4;  // of the context, for an answer: at most one in
constexpr std::uint32_t kKeptShare = 2;      // what turns are dropped down to: one in

std::string as_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t n_bytes = utf8_char_bytes(text);
    out += n_bytes == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, n_bytes);
    text.remove_prefix(std::max<std::size_t>(n_bytes, 1));
  }
  return out;
}

// Passes everything on and counts the bytes: together with the tokens they tell what the answer's
// text is, so that nothing has to be gathered while it is generated.
struct CountedDelivery {
  const GenerateOptions& options;
  std::size_t n_bytes = 0;

  static void forward(TokenId token, std::string_view text, void* user) {
    auto& self = *static_cast<CountedDelivery*>(user);
    self.n_bytes += text.size();
    if (self.options.on_token != nullptr) self.options.on_token(token, text, self.options.user);
  }
  static void report(std::uint64_t done, std::uint64_t total, void* user) {
    const auto& self = *static_cast<const CountedDelivery*>(user);
    self.options.on_prompt(done, total, self.options.user);
  }
};

// The text that a generation delivered for `tokens`, whole.
std::string generated_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  StreamDecoder decoder(tokenizer, {.skip_special = true, .at_text_start = false});
  std::string text;
  for (const TokenId token : tokens) text += decoder.push(token);
  text += decoder.finish();
  return text;
}

// Takes the newest turn back when it goes out of scope, however that comes, unless it is kept.
class NewTurn {
 public:
  NewTurn(std::vector<ChatTurn>& turns, std::string user) : turns_(turns) {
    turns_.push_back({.user = std::move(user), .answer = {}});
  }
  ~NewTurn() {
    if (!kept_) turns_.pop_back();
  }
  NewTurn(const NewTurn&) = delete;
  NewTurn& operator=(const NewTurn&) = delete;
  void keep() noexcept { kept_ = true; }

 private:
  std::vector<ChatTurn>& turns_;
  bool kept_ = false;
};

bool begins_with_any(std::string_view text, std::span<const std::string> beginnings) noexcept {
  return std::any_of(beginnings.begin(), beginnings.end(), [text](const std::string& beginning) {
    return !beginning.empty() && text.starts_with(beginning);
  });
}

Result<ChatFormat> make_format(const Engine& engine, const ChatOptions& options) {
  if (engine.tokenizer() == nullptr) {
    return unsupported(
        "the model file has no tokenizer, so it cannot chat; convert the model again from a folder "
        "with a tokenizer");
  }
  return ChatFormat::create(engine.spec(), *engine.tokenizer(), options.chat_template,
                            options.now_seconds);
}

}  // namespace

Chat::Chat(Engine& engine, ChatFormat format, std::unique_ptr<Session> session)
    : engine_(engine), format_(std::move(format)), session_(std::move(session)) {}

Result<std::unique_ptr<Chat>> Chat::create(Engine& engine, const ChatOptions& options) {
  QSF_ASSIGN_OR_RETURN(ChatFormat format, make_format(engine, options));
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, engine.create_session());
  std::unique_ptr<Chat> chat(new Chat(engine, std::move(format), std::move(session)));
  chat->set_system(options.system);
  return chat;
}

Result<ChatResult> Chat::send(std::string_view text, const GenerateOptions& options) {
  if (options.max_tokens == 0) return invalid_argument("max_tokens: 0, expected at least 1");
  NewTurn turn(turns_, as_utf8(text));
  Result<ChatResult> result = answer(options);
  if (result.has_value() && (result->generated.reason != StopReason::kCancelled ||
                             result->generated.generated_tokens > 0)) {
    turn.keep();
  }
  return result;
}

Result<ChatTranscript::Prompt> Chat::prompt_without(std::size_t n_dropped) const {
  QSF_ASSIGN_OR_RETURN(ChatText text,
                       format_.render(system_, std::span(turns_).subspan(n_dropped)));
  return transcript_.continue_with(std::move(text), format_);
}

// Fewer turns make a shorter prompt, so the number to drop is found by halving: a long history is
// encoded a few times and not once for each of its turns.
Result<Chat::Fitted> Chat::fit(std::uint32_t n_reserved) const {
  const std::size_t context = engine_.max_context();
  Fitted fitted;
  QSF_ASSIGN_OR_RETURN(fitted.prompt, prompt_without(0));
  if (fitted.prompt.tokens.empty()) {
    return invalid_argument("chat template: its output has no message of the conversation");
  }
  if (fitted.prompt.tokens.size() + n_reserved <= context) return fitted;

  std::size_t too_few = 0;                    // turns whose dropping does not suffice
  std::size_t n_dropped = turns_.size() - 1;  // suffices, or is all that can be done
  if (n_dropped > 0) {
    QSF_ASSIGN_OR_RETURN(fitted.prompt, prompt_without(n_dropped));
    fitted.n_dropped = n_dropped;
  }
  while (n_dropped > too_few + 1 && fitted.prompt.tokens.size() <= context / kKeptShare) {
    const std::size_t middle = too_few + (n_dropped - too_few) / 2;
    QSF_ASSIGN_OR_RETURN(ChatTranscript::Prompt prompt, prompt_without(middle));
    if (prompt.tokens.size() > context / kKeptShare) {
      too_few = middle;
      continue;
    }
    n_dropped = middle;
    fitted = {.prompt = std::move(prompt), .n_dropped = middle};
  }
  if (fitted.prompt.tokens.size() > context) {
    return out_of_budget(
        "the message: %zu tokens with the system prompt and the template, but the context holds "
        "%zu; shorten it or open the model with a longer context",
        fitted.prompt.tokens.size(), context);
  }
  return fitted;
}

Result<ChatResult> Chat::answer(const GenerateOptions& options) {
  const std::uint32_t n_reserved =
      std::min(options.max_tokens, engine_.max_context() / kReservedShare);
  QSF_ASSIGN_OR_RETURN(Fitted fitted, fit(n_reserved));
  const std::span<const TokenId> tokens = fitted.prompt.tokens;

  // At least one row is computed: the answer begins with the logits after the last one.
  const std::span<const TokenId> held = session_->tokens();
  const auto differ = std::mismatch(tokens.begin(), tokens.end() - 1, held.begin(), held.end());
  ChatResult result;
  const auto n_same = static_cast<std::size_t>(differ.first - tokens.begin());
  const std::size_t n_kept = session_->longest_kept(n_same);
  result.dropped_messages = static_cast<std::uint32_t>(2 * fitted.n_dropped);
  QSF_RETURN_IF_ERROR(session_->truncate(n_kept));
  result.reused_tokens = static_cast<std::uint32_t>(session_->n_computed());

  CountedDelivery delivery{.options = options};
  GenerateOptions settings = options;
  settings.echo_prompt = false;
  settings.on_token = CountedDelivery::forward;
  if (options.on_prompt != nullptr) settings.on_prompt = CountedDelivery::report;
  settings.user = &delivery;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(settings.end_tokens, format_.end_tokens());
  append(settings.stop, format_.end_texts());
  QSF_ASSIGN_OR_RETURN(result.generated, session_->generate(tokens.subspan(n_kept), settings));
  GenerateResult& generated = result.generated;
  if (generated.prompt_tokens != 0) {  // not cancelled before its end
    generated.prompt_tokens += static_cast<std::uint32_t>(n_kept - result.reused_tokens);
  }
  if (generated.generated_tokens == 0 && generated.reason == StopReason::kCancelled) {
    result.dropped_messages = 0;
    return result;
  }

  turns_.erase(turns_.begin(), turns_.begin() + static_cast<std::ptrdiff_t>(fitted.n_dropped));
  const std::span<const TokenId> rows = session_->tokens().subspan(tokens.size());
  std::vector<TokenId> answer_tokens(rows.begin(), rows.end());
  if (generated.pending_token != kNoToken) answer_tokens.push_back(generated.pending_token);
  std::string& text = turns_.back().answer;
  text = generated_text(*engine_.tokenizer(), answer_tokens);
  // Beyond what was delivered stands a stop text, also where another reason is given for the end.
  // The template's own end of an answer is an end like that of a control token.
  const bool whole = text.size() <= delivery.n_bytes;
  if (!whole && generated.reason == StopReason::kStopString &&
      !begins_with_any(std::string_view(text).substr(delivery.n_bytes), options.stop)) {
    generated.reason = StopReason::kEndOfText;
  }
  text.resize(std::min(text.size(), delivery.n_bytes));
  transcript_.record(std::move(fitted.prompt), text, answer_tokens, whole);
  return result;
}

Status Chat::save(const std::string& path) {
  if (turns_.empty()) {
    return invalid_argument("%s: the chat has no answer yet; there is nothing to save",
                            path.c_str());
  }
  return session_->save(path, encode_chat({.now_seconds = format_.now_seconds(),
                                           .system = system_,
                                           .turns = turns_,
                                           .transcript = transcript_}));
}

Status Chat::load(const std::string& path) {
  if (!turns_.empty()) {
    return invalid_argument("%s: the chat has %zu messages; load into a new one", path.c_str(),
                            n_messages());
  }
  // Rows of a message that got no answer.
  QSF_RETURN_IF_ERROR(session_->truncate(0));
  std::vector<std::byte> bytes;
  QSF_RETURN_IF_ERROR(session_->load(path, &bytes));
  Result<ChatRecord> record = decode_chat(bytes, engine_.spec().n_vocab);
  if (!record.has_value()) {
    QSF_RETURN_IF_ERROR(session_->truncate(0));
    return std::move(record).error().with_context(path);
  }
  format_.set_now_seconds(record->now_seconds);
  system_ = std::move(record->system);
  turns_ = std::move(record->turns);
  transcript_ = std::move(record->transcript);
  return ok_status();
}

void Chat::clear() noexcept {
  turns_.clear();
  transcript_.clear();
}

void Chat::set_system(std::string_view text) {
  system_ = as_utf8(text);
}

std::size_t Chat::n_messages() const noexcept {
  return (system_.empty() ? 0 : 1) + 2 * turns_.size();
}

ChatMessage Chat::message(std::size_t index) const noexcept {
  QSF_CHECK(index < n_messages());
  if (!system_.empty() && index-- == 0) return {"system", system_};
  const ChatTurn& turn = turns_[index / 2];
  return index % 2 == 0 ? ChatMessage{"user", turn.user} : ChatMessage{"assistant", turn.answer};
}

Result<std::string> apply_chat_template(const Engine& engine, const ChatOptions& options,
                                        std::span<const ChatMessage> messages,
                                        bool add_generation_prompt) {
  QSF_ASSIGN_OR_RETURN(const ChatFormat format, make_format(engine, options));
  QSF_ASSIGN_OR_RETURN(ChatText text, format.render(messages, add_generation_prompt));
  return std::move(text.text);
}

}  // namespace qsf
