// SPDX-License-Identifier: MIT

#include "engine/chat_file.h"

#include <string_view>
#include <utility>

#include "base/utf8_text.h"

namespace qsf {

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
    return corrupt("section chat: no whole messages; the file is damaged: compute the text anew");
  }
  QSF_ASSIGN_OR_RETURN(record.transcript, ChatTranscript::read(from, n_vocab));
  if (from.remaining() == 0) return record;
  return corrupt(
      "section chat: %zu bytes follow its end; the file is damaged: compute the text anew",
      from.remaining());
}

}  // namespace qsf
