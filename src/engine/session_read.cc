// SPDX-License-Identifier: MIT
//
// Reading session files; the contract is in session_file.h.
//
// Everything but the layers is checked before the sequence is changed. Layers are read directly to
// their pages, and a damaged layer is cleared again: a page that another text uses must hold finite
// numbers.

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"
#include "engine/session_file.h"
#include "engine/session_layout.h"
#include "kv/kv_block.h"

namespace qsf {
namespace {

using namespace session_layout;
using ull = unsigned long long;

constexpr std::size_t kCopyBytes = 65536;

struct Section {
  std::string name;
  std::uint32_t version = 0;
  std::uint32_t crc = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Returns the text of a zero-padded field, or nothing when it is not one.
std::optional<std::string> padded_text(ByteSpan field) {
  const std::string_view all = as_text(field);
  const std::string_view text = all.substr(0, std::min(all.find('\0'), all.size()));
  const bool padded = all.find_first_not_of('\0', text.size()) == std::string_view::npos;
  const bool legible = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
  if (text.empty() || !padded || !legible) return std::nullopt;
  return std::string(text);
}

class SessionReader {
 public:
  SessionReader(const File& file, const SessionIdentity& identity, const SessionPlace& place,
                SessionReadOptions options)
      : file_(file), identity_(identity), place_(place), options_(options) {}

  Status read(SessionText& text) {
    QSF_RETURN_IF_ERROR(read_table());
    QSF_RETURN_IF_ERROR(check_names());
    QSF_RETURN_IF_ERROR(check_model());
    QSF_RETURN_IF_ERROR(check_cache());
    QSF_RETURN_IF_ERROR(check_policy());
    QSF_RETURN_IF_ERROR(check_attention());
    QSF_RETURN_IF_ERROR(check_adapter());
    QSF_RETURN_IF_ERROR(read_tokens(text));
    QSF_RETURN_IF_ERROR(read_chat(text));
    QSF_RETURN_IF_ERROR(read_states(static_cast<std::uint32_t>(text.rows.size())));
    return fill_sequence(static_cast<std::uint32_t>(text.rows.size()));
  }

 private:
  Status read_table();
  Status check_names() const;
  Status check_model() const;
  Status check_cache() const;
  Status check_types(ByteSpan cache) const;
  Status check_policy() const;
  Status check_attention() const;
  Status check_adapter() const;
  Status read_tokens(SessionText& text) const;
  Status read_chat(SessionText& text) const;
  template <typename State>
  Status read_parts(const Section& section, State& state, std::uint32_t n_rows) const;
  Status read_states(std::uint32_t n_rows) const;
  Status read_layer_states(std::uint32_t n_rows) const;
  Status fill_sequence(std::uint32_t n_rows);
  Status evict_as(const Section& section) const;
  Status check_positions(const Section& section, std::span<const HeldPage> pages) const;
  Status read_layers(std::span<const HeldPage> pages);
  Status read_layer(const Section& section, const KvShape& shape, const KvLayerPages& to,
                    std::span<const HeldPage> pages) const;
  static Status check_page(const Section& section, const KvShape& shape, std::size_t number,
                           const std::byte* page);

  const Section* find(std::string_view name) const noexcept;
  Result<const Section*> required(std::string_view name) const;
  // Reads a section of the size that `to` has and checks it.
  Status read_whole(const Section& section, MutableByteSpan to) const;
  Status check_crc(const Section& section) const;
  Status compare_crc(const Section& section, std::uint32_t got) const;

  const File& file_;
  const SessionIdentity& identity_;
  const SessionPlace& place_;
  const SessionReadOptions options_;
  std::vector<Section> sections_;
};

Status wrong_bytes(const Section& section, ull expected) {
  return corrupt("section %s: %llu bytes, expected %llu; the file is damaged: recompute the text",
                 section.name.c_str(), ull{section.bytes}, expected);
}

Status SessionReader::read_table() {
  namespace at = header_at;
  std::array<std::byte, kHeaderBytes> h;
  if (file_.size_bytes() < kHeaderBytes) {
    return corrupt("%llu bytes are too few for a session file", ull{file_.size_bytes()});
  }
  QSF_RETURN_IF_ERROR(file_.read_exact_at(0, h));
  if (as_text(ByteSpan(h).first(kMagic.size())) != kMagic) {
    return corrupt("not a session file: it starts with %02x %02x %02x %02x, expected \"QSFS\"",
                   load_le<std::uint8_t>(h, 0), load_le<std::uint8_t>(h, 1),
                   load_le<std::uint8_t>(h, 2), load_le<std::uint8_t>(h, 3));
  }
  const auto order = load_le<std::uint32_t>(h, at::kByteOrder);
  if (order == __builtin_bswap32(kByteOrder)) {
    return unsupported(
        "its numbers are big-endian, expected little-endian; save the session on a machine like "
        "this one");
  }
  if (order != kByteOrder) {
    return corrupt(
        "byte order mark 0x%08x, expected 0x%08x; the file is damaged: recompute the text", order,
        kByteOrder);
  }
  const auto version = load_le<std::uint32_t>(h, at::kVersion);
  if (version != kVersion) {
    return unsupported("session file of version %u; this program reads version %u", version,
                       kVersion);
  }
  const std::uint32_t crc = crc32(ByteSpan(h).first(at::kCrc));
  if (options_.verify_crc && crc != load_le<std::uint32_t>(h, at::kCrc)) {
    return corrupt("header: CRC 0x%08x, expected 0x%08x; the file is damaged: recompute the text",
                   crc, load_le<std::uint32_t>(h, at::kCrc));
  }
  const auto file_bytes = load_le<std::uint64_t>(h, at::kFileBytes);
  if (file_bytes != file_.size_bytes()) {
    return corrupt("the file has %llu bytes, expected %llu; it is truncated or has bytes added",
                   ull{file_.size_bytes()}, ull{file_bytes});
  }
  const auto n_sections = load_le<std::uint32_t>(h, at::kSections);
  const std::uint64_t table_bytes = std::uint64_t{n_sections} * kEntryBytes;
  if (n_sections > kMaxSections || table_bytes > file_bytes - kHeaderBytes) {
    return corrupt("%u sections in %llu bytes, expected at most %u that fit", n_sections,
                   ull{file_bytes}, kMaxSections);
  }
  std::vector<std::byte> table(static_cast<std::size_t>(table_bytes));
  QSF_RETURN_IF_ERROR(file_.read_exact_at(kHeaderBytes, table));
  if (options_.verify_crc && crc32(table) != load_le<std::uint32_t>(h, at::kTableCrc)) {
    return corrupt(
        "section table: CRC 0x%08x, expected 0x%08x; the file is damaged: recompute the text",
        crc32(table), load_le<std::uint32_t>(h, at::kTableCrc));
  }
  std::uint64_t offset = kHeaderBytes + table_bytes;
  sections_.reserve(n_sections);
  for (std::uint32_t i = 0; i < n_sections; ++i) {
    const ByteSpan entry = ByteSpan(table).subspan(i * kEntryBytes, kEntryBytes);
    const auto name = padded_text(entry.first(kNameBytes));
    if (!name) return corrupt("section %u: its name is not 1 to 16 of a-z 0-9 _ . -", i);
    const auto bytes = load_le<std::uint64_t>(entry, entry_at::kBytes);
    if (bytes > file_bytes - offset) {
      return corrupt("section %s: %llu bytes at offset %llu in a file of %llu", name->c_str(),
                     ull{bytes}, ull{offset}, ull{file_bytes});
    }
    sections_.push_back({.name = *name,
                         .version = load_le<std::uint32_t>(entry, entry_at::kVersion),
                         .crc = load_le<std::uint32_t>(entry, entry_at::kCrc),
                         .offset = offset,
                         .bytes = bytes});
    offset += bytes;
  }
  if (offset == file_bytes) return ok_status();
  return corrupt("%llu bytes follow the last section", ull{file_bytes - offset});
}

// An unknown section may be needed to continue the text, so it is an error.
Status SessionReader::check_names() const {
  constexpr std::string_view kKnown[] = {kModel,       kCache,     kPolicy, kAttention,
                                         kTokens,      kPositions, kChat,   kSparsePrefillState,
                                         kH2oEviction, kStates,    kAdapter};
  std::vector<std::string_view> names;
  for (const Section& section : sections_) {
    const bool is_known =
        std::find(std::begin(kKnown), std::end(kKnown), section.name) != std::end(kKnown) ||
        section.name.starts_with(kLayerPrefix);
    if (!is_known || section.version != kSavedSectionVersion) {
      return unsupported(
          "section %s, version %u: not known to this program; load the file with a newer one",
          section.name.c_str(), section.version);
    }
    names.push_back(section.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return ok_status();
  return corrupt("section %s: appears twice", std::string(*twice).c_str());
}

const Section* SessionReader::find(std::string_view name) const noexcept {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

Result<const Section*> SessionReader::required(std::string_view name) const {
  if (const Section* section = find(name)) return section;
  return corrupt("section %s: is missing", std::string(name).c_str());
}

Status SessionReader::compare_crc(const Section& section, std::uint32_t got) const {
  if (!options_.verify_crc || got == section.crc) return ok_status();
  return corrupt(
      "section %s at offset %llu: CRC 0x%08x, expected 0x%08x; the file is damaged: recompute the "
      "text",
      section.name.c_str(), ull{section.offset}, got, section.crc);
}

Status SessionReader::read_whole(const Section& section, MutableByteSpan to) const {
  if (section.bytes != to.size()) return wrong_bytes(section, to.size());
  QSF_RETURN_IF_ERROR(file_.read_exact_at(section.offset, to));
  return compare_crc(section, crc32(to));
}

Status SessionReader::check_crc(const Section& section) const {
  std::vector<std::byte> buffer(kCopyBytes);
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < section.bytes;) {
    const MutableByteSpan part = MutableByteSpan(buffer).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(section.bytes - done, kCopyBytes)));
    QSF_RETURN_IF_ERROR(file_.read_exact_at(section.offset + done, part));
    crc = crc32(part, crc);
    done += part.size();
  }
  return compare_crc(section, crc);
}

Status SessionReader::check_model() const {
  QSF_ASSIGN_OR_RETURN(const Section* section, required(kModel));
  std::array<std::byte, kModelHeadBytes + kMaxArchitectureBytes> buffer;
  if (section->bytes < kModelHeadBytes || section->bytes > buffer.size()) {
    return wrong_bytes(*section, kModelHeadBytes + identity_.architecture.size());
  }
  const MutableByteSpan bytes =
      MutableByteSpan(buffer).first(static_cast<std::size_t>(section->bytes));
  QSF_RETURN_IF_ERROR(read_whole(*section, bytes));
  const auto fingerprint = load_le<std::uint64_t>(bytes, 0);
  const auto n_vocab = load_le<std::uint32_t>(bytes, 8);
  const auto architecture = padded_text(bytes.subspan(kModelHeadBytes));
  if (!architecture)
    return corrupt("section model: no architecture; the file is damaged: recompute the text");
  if (fingerprint == identity_.fingerprint && n_vocab == identity_.n_vocab) return ok_status();
  return invalid_argument(
      "section model: saved with another model: %s of %u tokens, fingerprint %016" PRIx64
      ", expected %s of %u tokens, fingerprint %016" PRIx64
      "; load it with the model, experts and quality it came from",
      architecture->c_str(), n_vocab, fingerprint, identity_.architecture.c_str(),
      identity_.n_vocab, identity_.fingerprint);
}

Status SessionReader::check_types(ByteSpan cache) const {
  const KvShape& shape = place_.store.shape();
  const struct {
    const char* what;
    KvType expected;
  } parts[] = {{"keys", shape.k_type}, {"values", shape.v_type}};
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    const auto name = padded_text(cache.subspan(5 * 4 + i * kTypeNameBytes, kTypeNameBytes));
    if (!name)
      return corrupt("section cache: no type of %s; the file is damaged: recompute the text",
                     parts[i].what);
    const std::string_view expected = kv_type_name(parts[i].expected);
    if (*name == expected) continue;
    return invalid_argument(
        "section cache: %s of type %s, expected %s; open the model with the types that the session "
        "was saved with (keys and values each)",
        parts[i].what, name->c_str(), std::string(expected).c_str());
  }
  return ok_status();
}

Status SessionReader::check_cache() const {
  QSF_ASSIGN_OR_RETURN(const Section* section, required(kCache));
  std::array<std::byte, kCacheBytes> bytes;
  QSF_RETURN_IF_ERROR(read_whole(*section, bytes));
  const KvShape& shape = place_.store.shape();
  const std::uint32_t expected[] = {shape.n_layers, shape.n_kv_heads, shape.head_dim, kKvPageSlots};
  const auto got = [&bytes](std::size_t i) { return load_le<std::uint32_t>(bytes, 4 * i); };
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    if (got(i) == expected[i]) continue;
    return corrupt(
        "section cache: %u layers x %u heads x %u elements in pages of %u, expected %u x %u x %u "
        "in pages of %u; the file is damaged: recompute the text",
        got(0), got(1), got(2), got(3), expected[0], expected[1], expected[2], expected[3]);
  }
  QSF_RETURN_IF_ERROR(check_types(bytes));
  if (got(4) > 1) return corrupt("section cache: rotation %u, expected 0 or 1", got(4));
  if ((got(4) == 1) == identity_.long_rotation) return ok_status();
  return invalid_argument(
      "section cache: keys rotated for a %s context, expected a %s one: this model rotates by the "
      "context it was opened with; open it with the one that the session was saved with",
      got(4) == 1 ? "long" : "short", identity_.long_rotation ? "long" : "short");
}

Status SessionReader::check_policy() const {
  QSF_ASSIGN_OR_RETURN(const Section* section, required(kPolicy));
  std::array<std::byte, kPolicyBytes> bytes;
  QSF_RETURN_IF_ERROR(read_whole(*section, bytes));
  const auto name = padded_text(ByteSpan(bytes).first(kNameBytes));
  if (!name) return corrupt("section policy: no name; the file is damaged: recompute the text");
  const KvPolicyOptions& policy = identity_.policy;
  const bool is_full = policy.policy == KvPolicy::kFull;
  const std::uint32_t expected[] = {is_full ? 0 : policy.window, is_full ? 0 : policy.sinks,
                                    policy.policy == KvPolicy::kH2o ? policy.heavy : 0};
  const auto got = [&bytes](std::size_t i) {
    return load_le<std::uint32_t>(bytes, kNameBytes + 4 * i);
  };
  const std::string_view expected_name = saved_policy_name(policy);
  if (*name == expected_name && got(0) == expected[0] && got(1) == expected[1] &&
      got(2) == expected[2]) {
    return ok_status();
  }
  const bool was_reindexed = *name == kReindexedWindow;
  const bool was_windowed = was_reindexed || *name == kv_policy_name(KvPolicy::kWindow);
  if (was_windowed && policy.policy == KvPolicy::kWindow && was_reindexed != policy.rope_reindex) {
    return invalid_argument(
        "section policy: saved %s rope_reindex, but the model was opened %s; open it as the "
        "session was saved",
        was_reindexed ? "with" : "without", was_reindexed ? "without" : "with");
  }
  return invalid_argument(
      "section policy: %s (window %u, sinks %u, heavy %u), expected %s (%u, %u, %u); open the "
      "model with the policy that the session was saved with",
      name->c_str(), got(0), got(1), got(2), std::string(expected_name).c_str(), expected[0],
      expected[1], expected[2]);
}

std::string attention_text(std::string_view name, std::string_view ranking,
                           std::span<const std::uint32_t, 4> sizes) {
  std::string text(name);
  constexpr const char* kWhat[] = {" (local ", ", heavy ", ", chunk ", ", sinks "};
  for (std::size_t i = 0; i < sizes.size(); ++i) text += kWhat[i] + std::to_string(sizes[i]);
  return text.append(", score ").append(ranking).append(")");
}

// Keys, values and memory sets depend on the attention and its sizes, so both must be those of the
// file.
Status SessionReader::check_attention() const {
  std::string expected(attention_kind_name(AttentionKind::kStandard));
  const std::optional<SavedAttention> wanted = saved_attention(identity_, place_);
  if (wanted.has_value()) {
    const SparsePrefillOptions& sizes = wanted->sizes;
    expected = attention_text(attention_kind_name(wanted->kind), h2o_ranking_name(sizes.ranking),
                              std::array{sizes.local, sizes.heavy, sizes.chunk, sizes.sinks});
  }
  const Section* section = find(kAttention);
  if (section == nullptr) {
    if (!wanted.has_value()) return ok_status();
    return invalid_argument(
        "section attention: is missing: saved under attention full, or in a context of one chunk, "
        "expected %s; open the model with the attention that the session was saved with",
        expected.c_str());
  }
  std::array<std::byte, kAttentionBytes> bytes;
  QSF_RETURN_IF_ERROR(read_whole(*section, bytes));
  const auto name = padded_text(ByteSpan(bytes).first(kNameBytes));
  const auto ranking = padded_text(ByteSpan(bytes).subspan(kNameBytes, kNameBytes));
  if (!name || !ranking) {
    return corrupt("section attention: no name; the file is damaged: recompute the text");
  }
  std::array<std::uint32_t, 4> sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = load_le<std::uint32_t>(bytes, 2 * kNameBytes + 4 * i);
  }
  const std::string got = attention_text(*name, *ranking, sizes);
  if (got == expected) return ok_status();
  return invalid_argument(
      "section attention: %s, expected %s; open the model with the attention that the session was "
      "saved with, and a context longer than its chunk",
      got.c_str(), expected.c_str());
}

// Keys and values are those of rows with the adapter.
Status SessionReader::check_adapter() const {
  const auto text = [](std::uint64_t fingerprint, double scale) {
    std::array<char, 80> buffer{};
    if (fingerprint == 0) return std::string("no adapter");
    std::snprintf(buffer.data(), buffer.size(), "the adapter %016" PRIx64 " with scale %g",
                  fingerprint, scale);
    return std::string(buffer.data());
  };
  std::array<std::byte, kAdapterBytes> bytes{};
  if (const Section* section = find(kAdapter)) {
    QSF_RETURN_IF_ERROR(read_whole(*section, bytes));
  }
  const auto fingerprint = load_le<std::uint64_t>(bytes, 0);
  const auto scale = load_le<float>(bytes, 8);
  if (fingerprint == identity_.adapter_fingerprint && scale == identity_.adapter_scale) {
    return ok_status();
  }
  return invalid_argument(
      "section adapter: saved with %s, expected %s; give the session the adapter and the scale "
      "that it was saved with",
      text(fingerprint, static_cast<double>(scale)).c_str(),
      text(identity_.adapter_fingerprint, static_cast<double>(identity_.adapter_scale)).c_str());
}

Status SessionReader::read_tokens(SessionText& text) const {
  QSF_ASSIGN_OR_RETURN(const Section* section, required(kTokens));
  std::array<std::byte, kTokensHeadBytes> head;
  if (section->bytes < head.size()) return wrong_bytes(*section, head.size());
  QSF_RETURN_IF_ERROR(check_crc(*section));
  QSF_RETURN_IF_ERROR(file_.read_exact_at(section->offset, head));
  const auto n_rows = load_le<std::uint32_t>(head, 0);
  const auto n_tokens = load_le<std::uint32_t>(head, 4);
  if (n_rows == 0 || n_tokens < n_rows || n_tokens - n_rows > 1) {
    return corrupt("section tokens: %u tokens with keys and values of %u, expected all but one",
                   n_rows, n_tokens);
  }
  const std::uint64_t expected = kTokensHeadBytes + std::uint64_t{4} * n_tokens;
  if (section->bytes != expected) return wrong_bytes(*section, expected);
  const std::uint32_t max_slots = place_.kv.limits().max_slots;
  if (n_rows > max_slots) {
    return out_of_budget(
        "section tokens: the session has %u positions, the context %u; open the model with a "
        "context of %u or more",
        n_rows, max_slots, n_rows);
  }
  text.rows.resize(n_tokens);
  QSF_RETURN_IF_ERROR(file_.read_exact_at(section->offset + kTokensHeadBytes,
                                          std::as_writable_bytes(std::span(text.rows))));
  for (std::size_t i = 0; i < text.rows.size(); ++i) {
    if (text.rows[i] < identity_.n_vocab) continue;
    return corrupt("section tokens: token %u at index %zu, expected an id below %u", text.rows[i],
                   i, identity_.n_vocab);
  }
  if (n_tokens > n_rows) {
    text.pending_token = text.rows.back();
    text.rows.pop_back();
  }
  return ok_status();
}

Status SessionReader::read_chat(SessionText& text) const {
  const Section* section = find(kChat);
  if (section == nullptr) {
    if (!options_.wants_chat) return ok_status();
    return invalid_argument(
        "section chat: is missing: the file holds a session with no conversation; load it as a "
        "session");
  }
  if (section->bytes > kMaxChatBytes) return wrong_bytes(*section, kMaxChatBytes);
  if (!options_.wants_chat) return check_crc(*section);
  text.chat.resize(static_cast<std::size_t>(section->bytes));
  return read_whole(*section, text.chat);
}

// Fills the saved parts of every head; their sizes follow from the number of rows.
template <typename State>
Status SessionReader::read_parts(const Section& section, State& state, std::uint32_t n_rows) const {
  const KvShape& shape = place_.store.shape();
  QSF_RETURN_IF_ERROR(check_crc(section));
  state.resume_at(n_rows);
  std::uint64_t head_bytes = 0;
  for (const ByteSpan part : state.saved_parts(0, 0)) head_bytes += part.size();
  const std::uint64_t expected = head_bytes * shape.n_layers * std::uint64_t{shape.n_kv_heads};
  if (section.bytes != expected) return wrong_bytes(section, expected);
  std::uint64_t offset = section.offset;
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      for (const MutableByteSpan part : state.saved_parts(layer, head)) {
        QSF_RETURN_IF_ERROR(file_.read_exact_at(offset, part));
        offset += part.size();
      }
    }
  }
  return ok_status();
}

Status SessionReader::read_states(std::uint32_t n_rows) const {
  if (place_.sparse_prefill != nullptr) {
    QSF_ASSIGN_OR_RETURN(const Section* section, required(kSparsePrefillState));
    QSF_RETURN_IF_ERROR(read_parts(*section, *place_.sparse_prefill, n_rows));
    Status status = place_.sparse_prefill->check_resumed();
    if (!status.ok()) return std::move(status).with_context("section h2o_state");
  }
  if (place_.h2o_eviction != nullptr) {
    QSF_ASSIGN_OR_RETURN(const Section* section, required(kH2oEviction));
    QSF_RETURN_IF_ERROR(read_parts(*section, *place_.h2o_eviction, n_rows));
    Status status = place_.h2o_eviction->check(n_rows);
    if (!status.ok()) return std::move(status).with_context("section heavy_hitters");
  }
  if (place_.states != nullptr) return read_layer_states(n_rows);
  return ok_status();
}

// Of layers with a state.
Status SessionReader::read_layer_states(std::uint32_t n_rows) const {
  QSF_ASSIGN_OR_RETURN(const Section* section, required(kStates));
  const std::span<float> values = place_.states->restore(place_.sequence, n_rows);
  QSF_RETURN_IF_ERROR(read_whole(*section, std::as_writable_bytes(values)));
  const auto wrong = ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (wrong == values.end()) return ok_status();
  return corrupt("section states: value %td is not finite; the file is damaged: recompute the text",
                 wrong - values.begin());
}

// The slots of a sequence follow from their number. The file lists the held pages, which are more
// than the next row attends to.
Status SessionReader::fill_sequence(std::uint32_t n_rows) {
  KvCache& kv = place_.kv;
  const std::uint32_t recent = kv.limits().recent_slots;
  for (std::uint32_t n_done = 0; n_done < n_rows;) {
    const std::uint32_t n = recent == 0 ? n_rows : std::min(n_rows - n_done, recent - 1);
    const Result<Appended> appended = kv.append(place_.sequence, n);
    if (!appended.has_value()) return appended.error();
    n_done += n;
  }
  QSF_ASSIGN_OR_RETURN(const Section* section, required(kPositions));
  if (section->bytes < kPositionsHeadBytes) return wrong_bytes(*section, kPositionsHeadBytes);
  QSF_RETURN_IF_ERROR(check_crc(*section));
  QSF_RETURN_IF_ERROR(evict_as(*section));
  const std::vector<HeldPage> pages = held_pages(kv, place_.sequence);
  QSF_RETURN_IF_ERROR(check_positions(*section, pages));
  return read_layers(pages);
}

// Evicts pages that this cache would hold and the file does not have.
Status SessionReader::evict_as(const Section& section) const {
  std::array<std::byte, kPositionsHeadBytes> head;
  QSF_RETURN_IF_ERROR(file_.read_exact_at(section.offset, head));
  const auto n_pages = load_le<std::uint32_t>(head, 0);
  const std::uint32_t n_held = place_.kv.n_held_pages(place_.sequence);
  const std::uint32_t n_sinks = kv_sink_pages(place_.kv.limits());
  const bool can_evict = place_.kv.limits().recent_slots != 0 && n_pages > n_sinks;
  if (n_pages > n_held || (n_pages < n_held && !can_evict)) {
    return corrupt(
        "section positions: %u pages, expected %u; the file is damaged: recompute the text",
        n_pages, n_held);
  }
  place_.kv.evict(place_.sequence, n_held - n_pages);
  const std::uint32_t n_slots = place_.kv.n_slots(place_.sequence);
  const std::uint32_t first = first_seen_slot(identity_.policy, n_slots, /*by_last_row=*/false);
  if (place_.kv.holds(place_.sequence, first, n_slots)) return ok_status();
  return corrupt("section positions: %u pages, too few for the %u last positions", n_pages,
                 n_slots - first);
}

Status SessionReader::check_positions(const Section& section,
                                      std::span<const HeldPage> pages) const {
  const std::uint64_t expected = kPositionsHeadBytes + pages.size() * kPagePositionsBytes;
  if (section.bytes != expected) return wrong_bytes(section, expected);
  std::array<std::byte, kPagePositionsBytes> entry;
  const std::uint32_t n_slots = place_.kv.n_slots(place_.sequence);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    QSF_RETURN_IF_ERROR(
        file_.read_exact_at(section.offset + kPositionsHeadBytes + i * kPagePositionsBytes, entry));
    const auto first_slot = load_le<std::uint32_t>(entry, 0);
    if (first_slot != pages[i].first_slot) {
      return corrupt("section positions: page %zu from slot %u, expected slot %u", i, first_slot,
                     pages[i].first_slot);
    }
    const std::span<const std::int32_t> held = place_.kv.page_positions(pages[i].page);
    for (std::uint32_t s = 0; s < kKvPageSlots; ++s) {
      const std::int32_t wanted = first_slot + s < n_slots ? held[s] : 0;
      const auto got = load_le<std::int32_t>(entry, 4 + std::size_t{4} * s);
      if (got == wanted) continue;
      return corrupt("section positions: slot %u holds position %d, expected %d", first_slot + s,
                     got, wanted);
    }
  }
  return ok_status();
}

// A pass that stores in every page and computes nothing: its row lies at the first slot.
Status SessionReader::read_layers(std::span<const HeldPage> pages) {
  KvPageStore& store = place_.store;
  const KvShape& shape = store.shape();
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    QSF_ASSIGN_OR_RETURN(const Section* section, required(layer_name(layer)));
    const std::uint64_t expected = pages.size() * shape.of_layer(layer).layer_bytes();
    if (section->bytes != expected) return wrong_bytes(*section, expected);
  }
  const std::size_t n_others =
      5 + (find(kChat) == nullptr ? 0 : 1) + (find(kAttention) == nullptr ? 0 : 1) +
      (find(kAdapter) == nullptr ? 0 : 1) + (place_.sparse_prefill == nullptr ? 0 : 1) +
      (place_.h2o_eviction == nullptr ? 0 : 1) + (place_.states == nullptr ? 0 : 1);
  if (sections_.size() != n_others + shape.n_layers) {
    return corrupt("%zu sections, expected %zu for %u layers", sections_.size(),
                   n_others + shape.n_layers, shape.n_layers);
  }
  Row first;
  first.sequence = place_.sequence;
  store.begin_pass({&first, 1}, place_.kv, place_.cancel);
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    if (place_.cancel != nullptr && place_.cancel->load())
      return cancelled("loading was cancelled");
    const KvLayerPages to = store.acquire_layer(layer);
    QSF_RETURN_IF_ERROR(store.status());
    const KvShape of_layer = shape.of_layer(layer);
    Status status = read_layer(*find(layer_name(layer)), of_layer, to, pages);
    if (!status.ok()) {
      for (const HeldPage& saved : pages) {
        std::memset(to.page(saved.page), 0, static_cast<std::size_t>(of_layer.layer_bytes()));
      }
      return status;
    }
    store.release_layer(layer);
    if (place_.drop_cached) file_.drop_cached();
  }
  return store.end_pass();
}

Status SessionReader::read_layer(const Section& section, const KvShape& shape,
                                 const KvLayerPages& to, std::span<const HeldPage> pages) const {
  const std::uint64_t page_bytes = shape.layer_bytes();
  std::uint32_t crc = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const MutableByteSpan bytes = {to.page(pages[i].page), static_cast<std::size_t>(page_bytes)};
    QSF_RETURN_IF_ERROR(file_.read_exact_at(section.offset + i * page_bytes, bytes));
    crc = crc32(bytes, crc);
  }
  QSF_RETURN_IF_ERROR(compare_crc(section, crc));
  for (std::size_t i = 0; i < pages.size(); ++i) {
    QSF_RETURN_IF_ERROR(check_page(section, shape, i, to.page(pages[i].page)));
  }
  return ok_status();
}

Status SessionReader::check_page(const Section& section, const KvShape& shape, std::size_t number,
                                 const std::byte* page) {
  for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
    for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
      const ByteSpan block = {page + shape.block_offset(head, part),
                              static_cast<std::size_t>(shape.block_bytes(part))};
      if (kv_block_is_finite(shape, part, block)) continue;
      return corrupt(
          "section %s: page %zu: %s that are not finite; the file is damaged: recompute the text",
          section.name.c_str(), number, part == KvPart::kKeys ? "keys" : "values");
    }
  }
  return ok_status();
}

}  // namespace

Status read_session_file(const File& file, const SessionIdentity& identity,
                         const SessionPlace& place, SessionReadOptions options, SessionText& text) {
  QSF_CHECK(place.kv.n_slots(place.sequence) == 0);
  text = {};
  Status status = SessionReader(file, identity, place, options).read(text);
  if (status.ok()) return status;
  text = {};
  place.kv.truncate(place.sequence, 0);
  if (place.sparse_prefill != nullptr) place.sparse_prefill->truncate(0);
  if (place.h2o_eviction != nullptr) place.h2o_eviction->truncate(0);
  if (place.states != nullptr) place.states->truncate(place.sequence, 0);
  // Messages of the file layer name it themselves.
  if (status.message().starts_with(file.path())) return status;
  return std::move(status).with_context(file.path());
}

}  // namespace qsf
