// SPDX-License-Identifier: MIT
//
// Session files: the tokens of a sequence with their keys and values, to go on from later.
//
// Based on: docs/session-files.md, which is the authority on the bytes. Keys and values go from the
// store into the file and back layer by layer and page by page, so that neither direction needs
// memory for more than one block of a page. Any bytes may come as a file: nothing is believed
// before it is checked, and no size of a file decides what is allocated.

#ifndef QSF_ENGINE_SESSION_FILE_H_
#define QSF_ENGINE_SESSION_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
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
#include "tokenizer/tokenizer.h"

namespace qsf {

// What the keys and values of a file must have come from to mean the same here.
struct SessionIdentity {
  std::uint64_t fingerprint = 0;  // format/model_fingerprint.h
  std::string architecture;       // for messages
  std::uint32_t n_vocab = 0;
  // Whether keys are rotated by the factors that a model has for long contexts (decision 007).
  bool long_rotation = false;
  KvPolicyOptions policy;
};

// Where the keys and values of a sequence are.
struct SessionPlace {
  KvCache& kv;
  KvPageStore& store;
  SequenceId sequence = 0;
  SparsePrefillState* h2o = nullptr;  // of the sequence; none where prompts take plain attention
  H2oEviction* heavy = nullptr;       // of the sequence; none but under KvPolicy::kH2o
  const std::atomic<bool>* cancel = nullptr;  // ends a wait, and the work before the next layer
  // The page cache keeps nothing of the file: it would count against a budget.
  bool drop_cached = false;
};

// What else a session is.
struct SessionText {
  std::vector<TokenId> rows;         // tokens that have keys and values
  TokenId pending_token = kNoToken;  // the last one, where it has none yet
  std::vector<std::byte> chat;       // of a conversation (chat_file.h); empty: none
};

// The conversation in a file is bound, so that one from outside cannot ask for memory.
inline constexpr std::uint64_t kMaxChatBytes = std::uint64_t{16} << 20;

// Writes a session under `path`, whole or not at all.
// Requires  rows are the tokens of the sequence's slots; place.h2o and place.heavy stand at their
//           number
// Fails     kIo; kUnsupported for a conversation above kMaxChatBytes; as the store does
Status write_session_file(const std::string& path, FileOps& ops, const SessionIdentity& identity,
                          const SessionPlace& place, std::span<const TokenId> rows,
                          TokenId pending_token, ByteSpan chat);

struct SessionReadOptions {
  bool verify_crc = true;  // false in fuzzers alone: a checksum would hide the parser from them
  bool wants_chat = false;
};

// Reads a file into the sequence, which is empty.
// Requires    place.h2o and place.heavy, where they are, have no position, and room for those of
//             place.kv
// Guarantees  on failure the sequence is empty again, and so are those and `text`
// Fails       kCorrupt, kUnsupported, kIo; kInvalidArgument when model, types, policy, attention or
//             rotation are others, or there is no conversation in it; kOutOfBudget when it is
//             longer than the context. Messages begin with the path and name the section
Status read_session_file(const File& file, const SessionIdentity& identity,
                         const SessionPlace& place, SessionReadOptions options, SessionText& text);

}  // namespace qsf

#endif  // QSF_ENGINE_SESSION_FILE_H_
