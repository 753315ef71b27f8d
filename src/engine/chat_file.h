// SPDX-License-Identifier: MIT
//
// The conversation in a session file: messages, and what they became as tokens.
//
// Based on: docs/session-files.md. Keys and values are the session's business (session_file.h).

#ifndef QSF_ENGINE_CHAT_FILE_H_
#define QSF_ENGINE_CHAT_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/chat_format.h"
#include "engine/chat_transcript.h"

namespace qsf {

struct ChatRecord {
  std::int64_t now_seconds = 0;  // the date that templates may ask for
  std::string system;
  std::vector<ChatTurn> turns;
  ChatTranscript transcript;
};

std::vector<std::byte> encode_chat(const ChatRecord& record);

// Requires  nothing of the bytes
// Fails     kCorrupt when they are no such record: texts that are not UTF-8, tokens of n_vocab and
//           above, places beyond the text
Result<ChatRecord> decode_chat(ByteSpan bytes, std::uint32_t n_vocab);

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_FILE_H_
