// SPDX-License-Identifier: MIT
//
// Writing session files; the contract is in session_file.h.

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "engine/session_file.h"
#include "engine/session_layout.h"
#include "io/atomic_file.h"
#include "kv/kv_block.h"

namespace qsf {

namespace {

using namespace session_layout;

// After so many bytes the file is dropped from the page cache, where that counts against a budget.
constexpr std::uint64_t kFlushBytes = std::uint64_t{8} << 20;

void write_name(ByteWriter& to, std::string_view name, std::size_t n_bytes) {
  QSF_CHECK(name.size() <= n_bytes);
  to.write_text(name);
  for (std::size_t i = name.size(); i < n_bytes; ++i) to.write(std::uint8_t{0});
}

// Sections one behind the other; header and table come last, when sizes and checksums are known.
class SectionWriter {
 public:
  SectionWriter(AtomicFile& file, std::uint32_t n_sections, bool drop_cached)
      : file_(file),
        n_sections_(n_sections),
        drop_cached_(drop_cached),
        offset_(kHeaderBytes + std::uint64_t{n_sections} * kEntryBytes) {}

  void begin(std::string_view name) {
    name_ = name;
    crc_ = 0;
    begin_ = offset_;
  }
  Status append(ByteSpan bytes) {
    QSF_RETURN_IF_ERROR(file_.write_at(offset_, bytes));
    crc_ = crc32(bytes, crc_);
    offset_ += bytes.size();
    if (!drop_cached_ || offset_ - flushed_ < kFlushBytes) return ok_status();
    flushed_ = offset_;
    return file_.drop_cached();
  }
  void end() {
    write_name(table_, name_, kNameBytes);
    table_.write(kSavedSectionVersion);
    table_.write(crc_);
    table_.write(offset_ - begin_);
  }
  Status write(std::string_view name, ByteSpan bytes) {
    begin(name);
    QSF_RETURN_IF_ERROR(append(bytes));
    end();
    return ok_status();
  }
  Status finish() {
    QSF_CHECK(table_.size() == std::size_t{n_sections_} * kEntryBytes);
    ByteWriter header;
    header.write_text(kMagic);
    header.write(kByteOrder);
    header.write(kVersion);
    header.write(n_sections_);
    header.write(offset_);
    header.write(crc32(table_.view()));
    header.write(crc32(header.view()));
    QSF_RETURN_IF_ERROR(file_.write_at(0, header.view()));
    QSF_RETURN_IF_ERROR(file_.write_at(kHeaderBytes, table_.view()));
    if (drop_cached_) QSF_RETURN_IF_ERROR(file_.drop_cached());
    return file_.commit();
  }

 private:
  AtomicFile& file_;
  std::uint32_t n_sections_;
  bool drop_cached_;
  ByteWriter table_;
  std::string name_;
  std::uint32_t crc_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t offset_;
  std::uint64_t flushed_ = 0;
};

// The pages needed to continue; how many more a sequence holds depends on the rows of a pass.
std::vector<HeldPage> pages_to_save(const SessionIdentity& identity, const SessionPlace& place) {
  const std::uint32_t first_seen =
      first_seen_slot(identity.policy, place.kv.n_slots(place.sequence), /*by_last_row=*/true);
  const std::uint32_t n_sink_slots = kv_sink_pages(place.kv.limits()) * kKvPageSlots;
  std::vector<HeldPage> pages = held_pages(place.kv, place.sequence);
  std::erase_if(pages, [&](const HeldPage& held) {
    return held.first_slot >= n_sink_slots && held.first_slot + kKvPageSlots <= first_seen;
  });
  return pages;
}

ByteWriter model_section(const SessionIdentity& identity) {
  ByteWriter to;
  to.write(identity.fingerprint);
  to.write(identity.n_vocab);
  to.write_text(identity.architecture);
  return to;
}

ByteWriter cache_section(const SessionIdentity& identity, const KvShape& shape) {
  ByteWriter to;
  to.write(shape.n_layers);
  to.write(shape.n_kv_heads);
  to.write(shape.head_dim);
  to.write(kKvPageSlots);
  to.write(std::uint32_t{identity.long_rotation ? 1U : 0U});
  write_name(to, kv_type_name(shape.k_type), kTypeNameBytes);
  write_name(to, kv_type_name(shape.v_type), kTypeNameBytes);
  return to;
}

ByteWriter policy_section(const KvPolicyOptions& policy) {
  const bool is_full = policy.policy == KvPolicy::kFull;
  ByteWriter to;
  write_name(to, saved_policy_name(policy), kNameBytes);
  to.write(is_full ? 0 : policy.window);
  to.write(is_full ? 0 : policy.sinks);
  to.write(policy.policy == KvPolicy::kH2o ? policy.heavy : 0);
  return to;
}

ByteWriter attention_section(const SavedAttention& attention) {
  const SparsePrefillOptions& options = attention.sizes;
  ByteWriter to;
  write_name(to, attention_kind_name(attention.kind), kNameBytes);
  write_name(to, h2o_ranking_name(options.ranking), kNameBytes);
  to.write(options.local);
  to.write(options.heavy);
  to.write(options.chunk);
  to.write(options.sinks);
  return to;
}

ByteWriter adapter_section(const SessionIdentity& identity) {
  ByteWriter to;
  to.write(identity.adapter_fingerprint);
  to.write(identity.adapter_scale);
  to.write(std::uint32_t{0});
  return to;
}

// The saved parts of every head beside keys and values.
template <typename State>
Status write_state(SectionWriter& writer, std::string_view name, const KvShape& shape,
                   State& state) {
  writer.begin(name);
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      for (const ByteSpan part : state.saved_parts(layer, head)) {
        QSF_RETURN_IF_ERROR(writer.append(part));
      }
    }
  }
  writer.end();
  return ok_status();
}

Status write_tokens(SectionWriter& writer, std::span<const TokenId> rows, TokenId pending_token) {
  const auto n_rows = static_cast<std::uint32_t>(rows.size());
  ByteWriter head;
  head.write(n_rows);
  head.write(n_rows + (pending_token == kNoToken ? 0 : 1));
  writer.begin(kTokens);
  QSF_RETURN_IF_ERROR(writer.append(head.view()));
  QSF_RETURN_IF_ERROR(writer.append(std::as_bytes(rows)));
  if (pending_token != kNoToken) {
    QSF_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(&pending_token, 1))));
  }
  writer.end();
  return ok_status();
}

Status write_positions(SectionWriter& writer, const SessionPlace& place,
                       std::span<const HeldPage> pages) {
  const std::uint32_t n_slots = place.kv.n_slots(place.sequence);
  writer.begin(kPositions);
  ByteWriter head;
  head.write(static_cast<std::uint32_t>(pages.size()));
  QSF_RETURN_IF_ERROR(writer.append(head.view()));
  for (const HeldPage& saved : pages) {
    const std::span<const std::int32_t> positions = place.kv.page_positions(saved.page);
    ByteWriter page;
    page.write(saved.first_slot);
    for (std::uint32_t i = 0; i < kKvPageSlots; ++i) {
      page.write(saved.first_slot + i < n_slots ? positions[i] : std::int32_t{0});
    }
    QSF_RETURN_IF_ERROR(writer.append(page.view()));
  }
  writer.end();
  return ok_status();
}

// Unused slots of a page hold bytes of dropped tokens; the file has zeros there, so that the same
// text gives the same file.
Status write_partial_page(SectionWriter& writer, const KvShape& shape, std::uint32_t n_used,
                          const std::byte* layer_page, std::vector<std::byte>& block) {
  for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
      block.resize(static_cast<std::size_t>(shape.block_bytes(part)));
      std::memcpy(block.data(), layer_page + shape.block_offset(head, part), block.size());
      clear_kv_slots(shape, part, n_used, block);
      QSF_RETURN_IF_ERROR(writer.append(block));
    }
  }
  return ok_status();
}

// A pass that reads every layer and stores nothing: its row lies behind all pages.
Status write_layers(SectionWriter& writer, const SessionPlace& place,
                    std::span<const HeldPage> pages) {
  const KvShape& shape = place.store.shape();
  const std::uint32_t n_slots = place.kv.n_slots(place.sequence);
  Row behind;
  behind.sequence = place.sequence;
  behind.kv_slot = kv_pages_for(n_slots) * kKvPageSlots;
  std::vector<std::byte> block;
  place.store.begin_pass({&behind, 1}, place.kv, place.cancel);
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    if (place.cancel != nullptr && place.cancel->load()) return cancelled("saving was cancelled");
    const KvShape of_layer = shape.of_layer(layer);
    const KvLayerPages held = place.store.acquire_layer(layer);
    QSF_RETURN_IF_ERROR(place.store.status());
    writer.begin(layer_name(layer));
    for (const HeldPage& saved : pages) {
      const std::byte* const bytes = held.page(saved.page);
      const std::uint32_t n_used = std::min(n_slots - saved.first_slot, kKvPageSlots);
      QSF_RETURN_IF_ERROR(
          n_used == kKvPageSlots
              ? writer.append({bytes, static_cast<std::size_t>(of_layer.layer_bytes())})
              : write_partial_page(writer, of_layer, n_used, bytes, block));
    }
    writer.end();
    place.store.release_layer(layer);
  }
  return place.store.end_pass();
}

}  // namespace

std::optional<SavedAttention> saved_attention(const SessionIdentity& identity,
                                              const SessionPlace& place) {
  if (place.sparse_prefill != nullptr) {
    return SavedAttention{AttentionKind::kSparsePrefill, place.sparse_prefill->shape().options};
  }
  SavedAttention mask = {identity.attention, {.local = 0, .heavy = 0, .chunk = 0, .sinks = 0}};
  switch (identity.attention) {
    case AttentionKind::kChunked: mask.sizes.chunk = identity.prompt_mask.chunk; return mask;
    case AttentionKind::kSymmetric: mask.sizes.local = identity.prompt_mask.window; return mask;
    default: return std::nullopt;
  }
}

Status write_session_file(const std::string& path, FileOps& ops, const SessionIdentity& identity,
                          const SessionPlace& place, std::span<const TokenId> rows,
                          TokenId pending_token, ByteSpan chat) {
  QSF_CHECK(rows.size() == place.kv.n_slots(place.sequence));
  const auto n_rows = static_cast<std::uint32_t>(rows.size());
  QSF_CHECK(place.sparse_prefill == nullptr || place.sparse_prefill->stands_at(n_rows));
  QSF_CHECK(place.h2o_eviction == nullptr || place.h2o_eviction->stands_at(n_rows));
  QSF_CHECK(place.states == nullptr || place.states->n_rows(place.sequence) == n_rows);
  if (chat.size() > kMaxChatBytes) {
    return unsupported("%s: a conversation of %zu bytes, at most %llu can be saved", path.c_str(),
                       chat.size(), static_cast<unsigned long long>(kMaxChatBytes));
  }
  const KvShape& shape = place.store.shape();
  const std::vector<HeldPage> pages = pages_to_save(identity, place);
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  const std::optional<SavedAttention> attention = saved_attention(identity, place);
  const std::uint32_t n_optional =
      (chat.empty() ? 0 : 1) + (attention.has_value() ? 1 : 0) +
      (place.sparse_prefill == nullptr ? 0 : 1) + (place.h2o_eviction == nullptr ? 0 : 1) +
      (place.states == nullptr ? 0 : 1) + (identity.adapter_fingerprint == 0 ? 0 : 1);
  SectionWriter writer(file, 5 + n_optional + shape.n_layers, place.drop_cached);
  QSF_RETURN_IF_ERROR(writer.write(kModel, model_section(identity).view()));
  QSF_RETURN_IF_ERROR(writer.write(kCache, cache_section(identity, shape).view()));
  QSF_RETURN_IF_ERROR(writer.write(kPolicy, policy_section(identity.policy).view()));
  if (attention.has_value()) {
    QSF_RETURN_IF_ERROR(writer.write(kAttention, attention_section(*attention).view()));
  }
  QSF_RETURN_IF_ERROR(write_tokens(writer, rows, pending_token));
  QSF_RETURN_IF_ERROR(write_positions(writer, place, pages));
  if (!chat.empty()) QSF_RETURN_IF_ERROR(writer.write(kChat, chat));
  if (identity.adapter_fingerprint != 0) {
    QSF_RETURN_IF_ERROR(writer.write(kAdapter, adapter_section(identity).view()));
  }
  if (place.sparse_prefill != nullptr) {
    QSF_RETURN_IF_ERROR(write_state(writer, kSparsePrefillState, shape, *place.sparse_prefill));
  }
  if (place.h2o_eviction != nullptr) {
    QSF_RETURN_IF_ERROR(write_state(writer, kH2oEviction, shape, *place.h2o_eviction));
  }
  if (place.states != nullptr) {
    QSF_RETURN_IF_ERROR(writer.write(kStates, std::as_bytes(place.states->saved(place.sequence))));
  }
  QSF_RETURN_IF_ERROR(write_layers(writer, place, pages));
  return writer.finish();
}

}  // namespace qsf
