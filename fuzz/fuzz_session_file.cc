// SPDX-License-Identifier: MIT
//
// Any bytes as a session file, checksums not enforced: refused, and the sequence is empty, or
// loaded; either way its pages hold numbers, and what attention remembers can be gone on with.
// The first byte chooses types of keys and values; the second whether a conversation is wanted (1),
// attention h2o (2) and kv policy h2o (4). Needs qsf_session_files and qsf_io_testing.
// Seeds: scripts/check/fuzz.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "engine/chat_transcript.h"
#include "engine/session_file.h"
#include "io/testing/faulty_file.h"
#include "kv/kv_block.h"

namespace qsf {
namespace {

constexpr std::uint32_t kVocab = 100;
constexpr std::uint32_t kMaxSlots = 200;
constexpr std::size_t kAlign = 64;
constexpr KvPolicyOptions kHeavy = {
    .policy = KvPolicy::kH2o, .window = 40, .sinks = 2, .heavy = 20};
constexpr SparsePrefillOptions kChunks = {.local = 5, .heavy = 6, .chunk = 80, .sinks = 2};

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

// A state from a file is one that attention could have left: it takes another chunk, and its
// members have rows.
void go_on(SparsePrefillState& state, std::uint32_t n_rows) {
  QSF_CHECK(state.stands_at(n_rows));
  for (std::uint32_t layer = 0; layer < state.shape().n_layers; ++layer) {
    for (std::uint32_t head = 0; head < state.shape().n_kv_heads; ++head) {
      for (const std::int32_t position : state.members(layer, head)) {
        QSF_CHECK(position >= 0 && static_cast<std::uint32_t>(position) < n_rows);
      }
    }
    const std::uint32_t end = state.chunk_start(layer) + kChunks.chunk;
    if (end > state.shape().kv_size) continue;
    state.mark_scored(layer, end);
    QSF_CHECK(state.close_chunk(layer).ok());
    QSF_CHECK(state.members(layer, 0).size() == state.shape().memory_size());
  }
}

// The same with the current block, to which rows are appended.
void go_on(H2oEviction& heavy, const SessionPlace& place) {
  const KvShape& shape = heavy.shape().kv;
  const std::uint32_t n_rows = place.kv.n_slots(place.sequence);
  QSF_CHECK(heavy.check(n_rows).ok());
  const std::uint32_t end = heavy.block_start(0) + kEvictionBlock;
  if (end > heavy.shape().kv_size) return;
  QSF_CHECK(place.kv.append(place.sequence, end - n_rows).has_value());
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      heavy.close_head(layer, head, place.kv, place.sequence, place.store.acquire_layer(layer));
    }
    heavy.mark_scored(layer, end);
  }
  QSF_CHECK(heavy.check(end).ok());
}

struct Wanted {
  bool chat;
  bool sparse;  // attention h2o
  bool heavy;   // kv policy h2o
};

void load(ByteSpan bytes, const KvShape& shape, Wanted wanted) {
  MemoryFileOps ops(bytes);
  const auto file = File::open("fuzz.session", ops);
  if (!file) return;
  KvLimits limits = {.n_pages = 1, .max_sequences = 1, .max_slots = kMaxSlots};
  if (wanted.heavy) limits.recent_slots = kHeavy.window + 2 * kEvictionBlock - 1;
  limits.n_pages = kv_pages_per_sequence(limits);
  const AlignedBytes tables(KvCache::region_bytes(limits));
  const AlignedBytes pages(ResidentKvStore::region_bytes(shape, limits.n_pages));
  auto kv = KvCache::create(shape, limits, tables.bytes());
  QSF_CHECK(kv.has_value());
  ResidentKvStore store(shape, pages.bytes());
  const auto sequence = kv->create_sequence();
  QSF_CHECK(sequence.has_value());
  const SparsePrefillShape sparse_prefill_shape = {shape.n_layers, shape.n_kv_heads, kMaxSlots,
                                                   kChunks};
  const AlignedBytes remembered(SparsePrefillState::region_bytes(sparse_prefill_shape));
  std::optional<SparsePrefillState> h2o;
  if (wanted.sparse)
    h2o.emplace(SparsePrefillState::create(sparse_prefill_shape, remembered.bytes()).value());
  const H2oEvictionShape eviction_shape = {.kv = shape, .kv_size = kMaxSlots, .options = kHeavy};
  const AlignedBytes kept(H2oEviction::region_bytes(eviction_shape));
  std::optional<H2oEviction> heavy;
  if (wanted.heavy) heavy.emplace(H2oEviction::create(eviction_shape, kept.bytes()).value());

  SessionIdentity identity;
  identity.fingerprint = 0x0123456789ABCDEFU;
  identity.architecture = "llama";
  identity.n_vocab = kVocab;
  if (heavy) identity.policy = kHeavy;
  SessionText text;
  const SessionPlace place = {.kv = *kv,
                              .store = store,
                              .sequence = *sequence,
                              .sparse_prefill = h2o ? &*h2o : nullptr,
                              .h2o_eviction = heavy ? &*heavy : nullptr};
  const Status status = read_session_file(*file, identity, place,
                                          {.verify_crc = false, .wants_chat = wanted.chat}, text);
  check_pages(shape, pages.bytes());
  const std::uint32_t n_slots = kv->n_slots(*sequence);
  QSF_CHECK(n_slots == text.rows.size());
  if (!status.ok()) {
    QSF_CHECK(n_slots == 0 && kv->n_free_pages() == limits.n_pages);
    QSF_CHECK(!h2o || h2o->stands_at(0));
    QSF_CHECK(!heavy || heavy->stands_at(0));
    return;
  }
  QSF_CHECK(n_slots > 0);
  QSF_CHECK(std::all_of(text.rows.begin(), text.rows.end(),
                        [](TokenId token) { return token < kVocab; }));
  if (h2o) go_on(*h2o, n_slots);
  if (heavy) go_on(*heavy, place);
  if (!wanted.chat) return;
  const auto record = decode_chat(text.chat, kVocab);
  if (record) QSF_CHECK(encode_chat(*record) == text.chat);
}

}  // namespace
}  // namespace qsf

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  if (size < 2) return 0;
  constexpr auto kTypes = static_cast<unsigned>(std::size(kAllKvTypes));
  const KvShape shape = {.n_layers = 2,
                         .n_kv_heads = 2,
                         .head_dim = 16,
                         .k_type = kAllKvTypes[(data[0] & 7U) % kTypes],
                         .v_type = kAllKvTypes[(data[0] >> 3U & 7U) % kTypes]};
  load(std::as_bytes(std::span(data + 2, size - 2)), shape,
       {.chat = (data[1] & 1U) != 0, .sparse = (data[1] & 2U) != 0, .heavy = (data[1] & 4U) != 0});
  return 0;
}
