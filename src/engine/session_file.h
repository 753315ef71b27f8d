// SPDX-License-Identifier: MIT
//
// Session files: the tokens of a sequence with their keys and values, to continue it later.
//
// Based on: docs/format-session.md, which defines the bytes. Keys and values are copied layer by
// layer and page by page, with memory for one block of a page. A file may hold any bytes:
// everything is checked before it is used, and no size in a file decides what is allocated.

#ifndef QSF_ENGINE_SESSION_FILE_H_
#define QSF_ENGINE_SESSION_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/file.h"
#include "io/file_ops.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"
#include "kv/kv_policy.h"
#include "kv/sparse_prefill_state.h"
#include "kv/state_cache.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// The model and options that keys and values belong to; a file is loaded only with the same ones.
struct SessionIdentity {
  std::uint64_t fingerprint = 0;  // format/model_fingerprint.h
  std::string architecture;       // for messages
  std::uint32_t n_vocab = 0;
  // Keys are rotated with the model's factors for long contexts (decision 007).
  bool long_rotation = false;
  KvPolicyOptions policy;
  AttentionKind attention = AttentionKind::kStandard;
  PromptMaskOptions prompt_mask;
  // Of the session's adapter; 0 without one, and no scale.
  std::uint64_t adapter_fingerprint = 0;
  float adapter_scale = 0.0F;
};

// The fields of a file's attention section.
struct SavedAttention {
  AttentionKind kind = AttentionKind::kStandard;
  SparsePrefillOptions sizes;  // a mask has local or chunk, and zeros
};

// The KV cache and the attention state of a sequence.
struct SessionPlace {
  KvCache& kv;
  KvPageStore& store;
  SequenceId sequence = 0;
  SparsePrefillState* sparse_prefill = nullptr;  // null without sparse prefill
  H2oEviction* h2o_eviction = nullptr;           // null without KvPolicy::kH2o
  StateCache* states = nullptr;                  // null without layers that have one
  const std::atomic<bool>* cancel = nullptr;     // stops waits, and the work before the next layer
  // Drop the file from the page cache, which counts against a budget.
  bool drop_cached = false;
};

// Returns nothing where prompts have full attention, also because they fit one chunk of sparse
// prefill.
std::optional<SavedAttention> saved_attention(const SessionIdentity& identity,
                                              const SessionPlace& place);

// The tokens and the conversation of a session.
struct SessionText {
  std::vector<TokenId> rows;         // tokens that have keys and values
  TokenId pending_token = kNoToken;  // follows rows; its keys and values are not computed yet
  std::vector<std::byte> chat;       // a conversation (chat_transcript.h); empty: none
};

// Limit of a conversation in a file, so that a foreign file cannot demand memory.
inline constexpr std::uint64_t kMaxChatBytes = std::uint64_t{16} << 20;

// Writes a session under `path`, whole or not at all.
// Requires  rows are the tokens of the sequence's slots; place.sparse_prefill and
// place.h2o_eviction stand at their
//           number
// Fails     kIo; kUnsupported for a conversation above kMaxChatBytes; as the store does
Status write_session_file(const std::string& path, FileOps& ops, const SessionIdentity& identity,
                          const SessionPlace& place, std::span<const TokenId> rows,
                          TokenId pending_token, ByteSpan chat);

struct SessionReadOptions {
  bool verify_crc = true;  // false in fuzzers alone, which need to pass the checksum
  bool wants_chat = false;
};

// Reads a file into the sequence, which is empty.
// Requires    place.sparse_prefill and place.h2o_eviction, where they are, have no position, and
// room for those of
//             place.kv
// Guarantees  on failure the sequence is empty again, and so are those and `text`
// Fails       kCorrupt, kUnsupported, kIo; kInvalidArgument when model, types, policy, attention or
//             rotation are others, or there is no conversation in it; kOutOfBudget when it is
//             longer than the context. Messages begin with the path and name the section
Status read_session_file(const File& file, const SessionIdentity& identity,
                         const SessionPlace& place, SessionReadOptions options, SessionText& text);

}  // namespace qsf

#endif  // QSF_ENGINE_SESSION_FILE_H_
