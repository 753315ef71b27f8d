// SPDX-License-Identifier: MIT
//
// Transcripts and conversations, and their bytes in session files.

#include "engine/chat_transcript.h"

#include <utility>

#include "base/utf8_text.h"

namespace qsf {

Result<ChatTranscript::Prompt> ChatTranscript::continue_with(ChatText text,
                                                             const ChatFormat& format) const {
  const std::size_t n_shared = shared_bytes(text_, text);
  Prompt prompt;
  prompt.n_marks = marks_.size();
  while (prompt.n_marks > 0 && marks_[prompt.n_marks - 1].n_bytes > n_shared) --prompt.n_marks;
  const Mark from = prompt.n_marks == 0 ? Mark{0, 0} : marks_[prompt.n_marks - 1];
  prompt.tokens.assign(tokens_.begin(),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(from.n_tokens));
  QSF_RETURN_IF_ERROR(format.encode(text, from.n_bytes, prompt.tokens));
  prompt.text = std::move(text);
  return prompt;
}

void ChatTranscript::record(Prompt prompt, std::string_view answer,
                            std::span<const TokenId> answer_tokens, bool whole) {
  marks_.resize(prompt.n_marks);
  text_ = std::move(prompt.text);
  tokens_ = std::move(prompt.tokens);
  marks_.push_back({text_.text.size(), tokens_.size()});
  text_.append(answer, false);
  tokens_.insert(tokens_.end(), answer_tokens.begin(), answer_tokens.end());
  if (whole) marks_.push_back({text_.text.size(), tokens_.size()});
}

void ChatTranscript::clear() noexcept {
  text_ = {};
  tokens_.clear();
  marks_.clear();
}

void ChatTranscript::write(ByteWriter& to) const {
  const auto write_count = [&to](std::size_t n) { to.write(static_cast<std::uint32_t>(n)); };
  write_count(text_.text.size());
  to.write_text(text_.text);
  to.write_text(text_.trust);
  write_count(tokens_.size());
  to.write_bytes(std::as_bytes(std::span(tokens_)));
  write_count(marks_.size());
  for (const Mark& mark : marks_) {
    write_count(mark.n_bytes);
    write_count(mark.n_tokens);
  }
}

Result<ChatTranscript> ChatTranscript::read(ByteReader& from, std::uint32_t n_vocab) {
  ChatTranscript transcript;
  const auto n_bytes = from.read<std::uint32_t>();
  transcript.text_.text = from.read_text(n_bytes);
  transcript.text_.trust = from.read_text(n_bytes);
  const bool is_trust =
      transcript.text_.trust.find_first_not_of(std::string_view("\0\1", 2)) == std::string::npos;
  const ByteSpan tokens = from.read_bytes(std::uint64_t{4} * from.read<std::uint32_t>());
  bool is_whole = from.ok() && is_trust;
  for (std::size_t at = 0; at < tokens.size(); at += 4) {
    transcript.tokens_.push_back(load_le<TokenId>(tokens, at));
    is_whole = is_whole && transcript.tokens_.back() < n_vocab;
  }
  const auto n_marks = from.read<std::uint32_t>();
  Mark last = {0, 0};
  for (std::uint32_t i = 0; i < n_marks && is_whole; ++i) {
    const Mark mark = {from.read<std::uint32_t>(), from.read<std::uint32_t>()};
    is_whole = from.ok() && mark.n_bytes >= last.n_bytes && mark.n_tokens >= last.n_tokens &&
               mark.n_bytes <= transcript.text_.text.size() &&
               mark.n_tokens <= transcript.tokens_.size();
    transcript.marks_.push_back(mark);
    last = mark;
  }
  if (is_whole && from.ok()) return transcript;
  return corrupt("section chat: no whole transcript; the file is damaged: recompute the text");
}

namespace {

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t n_bytes = utf8_char_bytes(text);
    if (n_bytes == 0) return false;
    text.remove_prefix(n_bytes);
  }
  return true;
}

void write_text(ByteWriter& to, std::string_view text) {
  to.write(static_cast<std::uint32_t>(text.size()));
  to.write_text(text);
}

// Returns whether there was a text, in UTF-8.
bool read_text(ByteReader& from, std::string& text) {
  text = from.read_text(from.read<std::uint32_t>());
  return from.ok() && is_utf8(text);
}

}  // namespace

std::vector<std::byte> encode_chat(const ChatRecord& record) {
  ByteWriter to;
  to.write(record.now_seconds);
  write_text(to, record.system);
  to.write(static_cast<std::uint32_t>(record.turns.size()));
  for (const ChatTurn& turn : record.turns) {
    write_text(to, turn.user);
    write_text(to, turn.answer);
  }
  record.transcript.write(to);
  return std::move(to.bytes());
}

Result<ChatRecord> decode_chat(ByteSpan bytes, std::uint32_t n_vocab) {
  ByteReader from(bytes);
  ChatRecord record;
  record.now_seconds = from.read<std::int64_t>();
  bool is_whole = read_text(from, record.system);
  const auto n_turns = from.read<std::uint32_t>();
  for (std::uint32_t i = 0; i < n_turns && is_whole; ++i) {
    ChatTurn turn;
    is_whole = read_text(from, turn.user) && read_text(from, turn.answer);
    record.turns.push_back(std::move(turn));
  }
  if (!is_whole || !from.ok() || record.turns.empty()) {
    return corrupt("section chat: no whole messages; the file is damaged: recompute the text");
  }
  QSF_ASSIGN_OR_RETURN(record.transcript, ChatTranscript::read(from, n_vocab));
  if (from.remaining() == 0) return record;
  return corrupt("section chat: %zu bytes follow its end; the file is damaged: recompute the text",
                 from.remaining());
}

}  // namespace qsf
