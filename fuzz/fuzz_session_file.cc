// SPDX-License-Identifier: MIT
//
// Any bytes as a session file, checksums not enforced: refused, and the sequence is empty, or
// loaded; either way its pages hold numbers. The first byte chooses types of keys and values, and
// its upper bit whether a conversation is wanted. Needs qsf_session_files and qsf_io_testing.
// Seeds: scripts/fuzz.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <span>
#include <vector>

#include "base/check.h"
#include "engine/chat_file.h"
#include "engine/session_file.h"
#include "io/faulty_file.h"
#include "kv/kv_block.h"

namespace qsf {
namespace {

constexpr std::uint32_t kVocab = 100;
constexpr std::uint32_t kMaxSlots = 200;
constexpr std::size_t kAlign = 64;

class AlignedBytes {
 public:
  explicit AlignedBytes(std::uint64_t n_bytes)
      : n_bytes_(n_bytes), data_(::operator new (n_bytes, std::align_val_t{kAlign})) {
    std::memset(data_, 0, n_bytes);
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { ::operator delete (data_, std::align_val_t{kAlign}); }
  MutableByteSpan bytes() const { return {static_cast<std::byte*>(data_), n_bytes_}; }

 private:
  std::uint64_t n_bytes_;
  void* data_;
};

// Every value that a pass could read is a number.
void check_pages(const KvShape& shape, ByteSpan pages) {
  const auto part_bytes = static_cast<std::size_t>(shape.layer_bytes());
  for (std::size_t at = 0; at < pages.size(); at += part_bytes) {
    for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
        const std::size_t block_at = at + shape.block_offset(head, part);
        QSF_CHECK(
            kv_block_is_finite(shape, part, pages.subspan(block_at, shape.block_bytes(part))));
      }
    }
  }
}

void load(ByteSpan bytes, const KvShape& shape, bool wants_chat) {
  MemoryFileOps ops(bytes);
  const auto file = File::open("fuzz.session", ops);
  if (!file) return;
  const KvLimits limits = {
      .n_pages = kv_pages_for(kMaxSlots), .max_sequences = 1, .max_slots = kMaxSlots};
  const AlignedBytes tables(KvCache::region_bytes(limits));
  const AlignedBytes pages(ResidentKvStore::region_bytes(shape, limits.n_pages));
  auto kv = KvCache::create(shape, limits, tables.bytes());
  QSF_CHECK(kv.has_value());
  ResidentKvStore store(shape, pages.bytes());
  const auto sequence = kv->create_sequence();
  QSF_CHECK(sequence.has_value());

  SessionIdentity identity;
  identity.fingerprint = 0x0123456789ABCDEFU;
  identity.architecture = "llama";
  identity.n_vocab = kVocab;
  SessionText text;
  const Status status =
      read_session_file(*file, identity, {.kv = *kv, .store = store, .sequence = *sequence},
                        {.verify_crc = false, .wants_chat = wants_chat}, text);
  check_pages(shape, pages.bytes());
  const std::uint32_t n_slots = kv->n_slots(*sequence);
  QSF_CHECK(n_slots == text.rows.size());
  if (!status.ok()) {
    QSF_CHECK(n_slots == 0 && kv->n_free_pages() == limits.n_pages);
    return;
  }
  QSF_CHECK(n_slots > 0);
  QSF_CHECK(std::all_of(text.rows.begin(), text.rows.end(),
                        [](TokenId token) { return token < kVocab; }));
  if (!wants_chat) return;
  const auto record = decode_chat(text.chat, kVocab);
  if (record) QSF_CHECK(encode_chat(*record) == text.chat);
}

}  // namespace
}  // namespace qsf

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  if (size == 0) return 0;
  constexpr auto kTypes = static_cast<unsigned>(std::size(kAllKvTypes));
  const KvShape shape = {.n_layers = 2,
                         .n_kv_heads = 2,
                         .head_dim = 16,
                         .k_type = kAllKvTypes[(data[0] & 7U) % kTypes],
                         .v_type = kAllKvTypes[(data[0] >> 3U & 7U) % kTypes]};
  load(std::as_bytes(std::span(data + 1, size - 1)), shape, data[0] >= 128);
  return 0;
}
