// SPDX-License-Identifier: MIT
//
// Templates at work; the contract is in chat_format.h.

#include "engine/chat_format.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace qsf {

namespace {

// Messages to find out with what a template does to messages. Plain words, which no template
// changes.
constexpr std::string_view kProbeSystem = "probing system message";
constexpr std::string_view kProbeUser = "probing user message";
constexpr std::string_view kProbeAnswer = "probing assistant message";
constexpr std::string_view kProbeNext = "probing next message";

constexpr std::string_view kBlanks = " \t\r\n";

bool is_blank(char c) noexcept {
  return kBlanks.find(c) != std::string_view::npos;
}

struct NamedSource {
  std::string_view name;
  std::string_view source;
};

std::string builtin_names() {
  std::string names;
  for (const BuiltinTemplate& builtin : builtin_templates()) {
    if (!names.empty()) names += ", ";
    names += builtin.name;
  }
  return names;
}

// A template that writes messages holds a brace, a name does not.
Result<NamedSource> choose_template(const ModelSpec& spec, std::string_view name_or_source) {
  if (name_or_source.find('{') != std::string_view::npos) {
    return NamedSource{"custom", name_or_source};
  }
  if (name_or_source.empty() && !spec.chat_template.empty()) {
    return NamedSource{"model", spec.chat_template};
  }
  const std::string_view name = name_or_source.empty() ? "plain" : name_or_source;
  for (const BuiltinTemplate& builtin : builtin_templates()) {
    if (builtin.name == name) return NamedSource{builtin.name, builtin.source};
  }
  return invalid_argument("chat template: '%.*s', expected one of %s, or Jinja source",
                          static_cast<int>(name.size()), name.data(), builtin_names().c_str());
}

std::string text_of(const Tokenizer& tokenizer, TokenId id) {
  return id == kNoToken ? std::string() : std::string(tokenizer.token_text(id));
}

// Cuts `text` after its first line that is not blank. Blank lines before it become one newline, so
// that the rest is looked for at the beginning of a line; blanks at both ends go.
std::string first_line(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  const bool after_newline = text.substr(0, begin).find('\n') != std::string_view::npos;
  std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
  return (after_newline ? "\n" : "") + std::string(line);
}

// In OpenAI's Harmony form an answer has several messages, each closed by <|end|>, the token that
// find_end sees. The last one ends otherwise: with a call, or where the model returns.
std::vector<TokenId> harmony_ends(const Tokenizer& tokenizer, TokenId end) {
  if (tokenizer.token_text(end) != "<|end|>" || tokenizer.find_token("<|channel|>") == kNoToken) {
    return {};
  }
  std::vector<TokenId> ends;
  for (const std::string_view text : {"<|call|>", "<|return|>"}) {
    const TokenId id = tokenizer.find_token(text);
    if (id != kNoToken) ends.push_back(id);
  }
  return ends;
}

}  // namespace

void ChatText::append(std::string_view more, bool trusted) {
  text.append(more);
  trust.append(more.size(), trusted ? '\1' : '\0');
}

std::size_t shared_bytes(const ChatText& a, const ChatText& b) noexcept {
  const std::size_t most = std::min(a.text.size(), b.text.size());
  std::size_t n = 0;
  while (n < most && a.text[n] == b.text[n] && (a.trust[n] == b.trust[n] || is_blank(a.text[n]))) {
    ++n;
  }
  return n;
}

ChatFormat::ChatFormat(const ModelSpec& spec, const Tokenizer& tokenizer,
                       ChatTemplate chat_template, std::string_view name, std::int64_t now_seconds)
    : tokenizer_(&tokenizer),
      template_(std::move(chat_template)),
      name_(name),
      now_seconds_(now_seconds),
      bos_(spec.bos_id.value_or(tokenizer.bos())),
      bos_text_(text_of(tokenizer, bos_)) {
  const TokenId eos = tokenizer.eos();
  eos_text_ = text_of(tokenizer, eos == kNoToken && !spec.eos_ids.empty() ? spec.eos_ids[0] : eos);
}

Result<ChatFormat> ChatFormat::create(const ModelSpec& spec, const Tokenizer& tokenizer,
                                      std::string_view name_or_source, std::int64_t now_seconds) {
  QSF_ASSIGN_OR_RETURN(const NamedSource chosen, choose_template(spec, name_or_source));
  QSF_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::parse(chosen.source));
  ChatFormat format(spec, tokenizer, std::move(parsed), chosen.name, now_seconds);
  QSF_RETURN_IF_ERROR(format.find_system_place());
  QSF_RETURN_IF_ERROR(format.find_end());
  return format;
}

// A template may refuse a system message, or leave it out without a word.
Status ChatFormat::find_system_place() {
  const ChatMessage messages[] = {{"system", kProbeSystem}, {"user", kProbeUser}};
  const Result<ChatText> with = render(messages, true);
  if (with.has_value() && with->text.find(kProbeSystem) != std::string::npos) return ok_status();
  merges_system_ = true;
  const Result<ChatText> without = render(std::span(messages).subspan(1), true);
  return without.has_value() ? ok_status() : without.error();
}

// Looks at what the template writes between an answer and the next user message. A template that
// cannot write such a conversation leaves it to the model's own tokens to end an answer.
Status ChatFormat::find_end() {
  const ChatMessage messages[] = {
      {"user", kProbeUser}, {"assistant", kProbeAnswer}, {"user", kProbeNext}};
  const Result<ChatText> rendered = render(messages, false);
  if (!rendered.has_value()) return ok_status();
  const std::string_view text = rendered->text;
  const std::size_t answer = text.find(kProbeAnswer);
  if (answer == std::string_view::npos) return ok_status();
  const std::size_t begin = answer + kProbeAnswer.size();
  const std::size_t end = text.find(kProbeNext, begin);
  if (end == std::string_view::npos) return ok_status();

  const TextPiece between = {.text = text.substr(begin, end - begin), .parse_special = true};
  std::vector<TokenId> tokens;
  QSF_RETURN_IF_ERROR(tokenizer_->encode_pieces(
      {&between, 1}, {.add_bos = false, .add_eos = false, .at_text_start = false}, tokens));
  const auto control = std::find_if(tokens.begin(), tokens.end(),
                                    [this](TokenId id) { return tokenizer_->is_control(id); });
  if (control != tokens.end()) {
    end_tokens_ = harmony_ends(*tokenizer_, *control);
    if (end_tokens_.empty()) end_tokens_.push_back(*control);
  } else if (std::string line = first_line(between.text); !line.empty()) {
    end_texts_.push_back(std::move(line));
  }
  return ok_status();
}

Result<ChatText> ChatFormat::render(std::string_view system,
                                    std::span<const ChatTurn> turns) const {
  QSF_CHECK(!turns.empty());
  std::vector<ChatMessage> messages;
  std::string merged;
  if (!system.empty() && !merges_system_) messages.push_back({"system", system});
  for (const ChatTurn& turn : turns) {
    std::string_view user = turn.user;
    if (&turn == &turns.front() && merges_system_ && !system.empty()) {
      merged = std::string(system) + "\n\n" + turn.user;
      user = merged;
    }
    messages.push_back({"user", user});
    if (&turn != &turns.back()) messages.push_back({"assistant", turn.answer});
  }
  return render(messages, true);
}

Result<ChatText> ChatFormat::render(std::span<const ChatMessage> messages,
                                    bool add_generation_prompt) const {
  return render({.messages = messages,
                 .add_generation_prompt = add_generation_prompt,
                 .now_seconds = now_seconds_});
}

ChatTemplateTraits ChatFormat::find_traits() const {
  return find_chat_template_traits(template_, bos_text_, eos_text_, now_seconds_);
}

Result<ChatText> ChatFormat::render(ChatTemplateInput input) const {
  input.bos_token = bos_text_;
  input.eos_token = eos_text_;
  QSF_ASSIGN_OR_RETURN(const std::vector<ChatPiece> pieces, template_.render(input));
  ChatText out;
  for (const ChatPiece& piece : pieces) out.append(piece.text, piece.trusted);
  return out;
}

Status ChatFormat::encode(const ChatText& text, std::size_t from, std::vector<TokenId>& out) const {
  const std::string_view whole = text.text;
  std::vector<TextPiece> pieces;
  for (std::size_t begin = from; begin < whole.size();) {
    const std::size_t end =
        std::min(text.trust.find_first_not_of(text.trust[begin], begin), whole.size());
    pieces.push_back(
        {.text = whole.substr(begin, end - begin), .parse_special = text.trust[begin] != 0});
    begin = end;
  }
  const std::size_t before = out.size();
  QSF_RETURN_IF_ERROR(tokenizer_->encode_pieces(
      pieces, {.add_bos = false, .add_eos = false, .at_text_start = from == 0}, out));
  const bool has_bos = out.size() > before && out[before] == bos_;
  if (from == 0 && tokenizer_->adds_bos() && bos_ != kNoToken && !has_bos) {
    out.insert(out.begin() + static_cast<std::ptrdiff_t>(before), bos_);
  }
  return ok_status();
}

}  // namespace qsf
