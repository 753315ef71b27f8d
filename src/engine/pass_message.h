// SPDX-License-Identifier: MIT
//
// A pass as a message: all that another engine of the same file and options needs to compute it,
// without the generations and samplers behind its rows.
//
// Messages of an engine are executed in the order of their passes: each carries what became of the
// sequences since the pass before it. Engine::execute() computes one.

#ifndef QSF_ENGINE_PASS_MESSAGE_H_
#define QSF_ENGINE_PASS_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/engine.h"
#include "kv/row.h"

namespace qsf {

// What became of a sequence between two passes.
struct SequenceChange {
  enum class Kind : std::uint8_t { kCreate, kFork, kTruncate, kFree };
  Kind kind = Kind::kCreate;
  SequenceId sequence = 0;
  std::uint32_t value = 0;  // kFork: the origin; kTruncate: the slots kept
  friend bool operator==(const SequenceChange&, const SequenceChange&) = default;
};

struct PassMessage {
  PassId pass = 0;
  std::span<const SequenceChange> changes;  // to be applied first, in this order
  std::span<const Row> rows;                // in the order of the pass
};

// Appends the bytes of a message to `bytes`: little-endian, with a CRC-32 at the end.
void encode(const PassMessage& message, std::vector<std::byte>& bytes);

// A message and its memory.
struct ReceivedPass {
  PassId pass = 0;
  std::vector<SequenceChange> changes;
  std::vector<Row> rows;
  PassMessage message() const noexcept { return {pass, changes, rows}; }
};

// Fails  kCorrupt for bytes that encode() does not write, naming the offset
Result<ReceivedPass> decode_pass(ByteSpan bytes);

}  // namespace qsf

#endif  // QSF_ENGINE_PASS_MESSAGE_H_
