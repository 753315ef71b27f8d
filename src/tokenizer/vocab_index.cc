// SPDX-License-Identifier: MIT

#include "tokenizer/vocab_index.h"

#include <bit>
#include <cstring>

#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr std::uint32_t kEmptySlot = 0xFFFFFFFFU;
// Real vocabularies probe a few dozen slots at worst; a file made to collide is refused, not served
// in quadratic time.
constexpr unsigned kMaxProbes = 4096;

std::uint64_t mix(std::uint64_t h) noexcept {
  h ^= h >> 32;
  h *= 0x9E3779B97F4A7C15U;
  return h ^ (h >> 29);
}

std::uint64_t hash_text(std::string_view text) noexcept {
  std::uint64_t h = text.size() + 0x2545F4914F6CDD1DU;
  while (text.size() >= 8) {
    h = mix(h ^ load_le<std::uint64_t>(as_bytes(text), 0));
    text.remove_prefix(8);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, text.data(), text.size());
  return mix(mix(h ^ rest));
}

std::uint64_t hash_pair(TokenId left, TokenId right) noexcept {
  return mix(mix(std::uint64_t{left} << 32 | right));
}

// A power of two that leaves at least a quarter of the slots empty.
std::size_t slots_for(std::size_t n_entries) noexcept {
  return std::bit_ceil(n_entries + n_entries / 3 + 2);
}

bool is_text_token(TokenType type) noexcept {
  return type == TokenType::kNormal || type == TokenType::kUserDefined ||
         type == TokenType::kUnused;
}

}  // namespace

std::size_t VocabIndex::bytes_needed(const SectionView& section) noexcept {
  return kSlotsAt + 4 * (slots_for(section.n_tokens()) + slots_for(section.n_merges()));
}

Result<VocabIndex> VocabIndex::build(const SectionView& section, MutableByteSpan memory) {
  const std::size_t n_bytes = bytes_needed(section);
  if (memory.size() < n_bytes) {
    return invalid_argument("tokenizer index: %zu bytes of memory, expected %zu", memory.size(),
                            n_bytes);
  }
  VocabIndex index;
  index.section_ = section;
  index.memory_ = memory.first(n_bytes);
  index.token_mask_ = slots_for(section.n_tokens()) - 1;
  index.merge_mask_ = slots_for(section.n_merges()) - 1;
  index.merges_at_ = kSlotsAt + 4 * (index.token_mask_ + 1);
  std::memset(memory.data(), 0xFF, n_bytes);
  std::memset(memory.data() + kPairBitsAt, 0, kSlotsAt - kPairBitsAt);
  QSF_RETURN_IF_ERROR(index.add_tokens());
  QSF_RETURN_IF_ERROR(index.add_merges());
  index.add_byte_tokens();
  return index;
}

void VocabIndex::note_pairs(std::string_view text) noexcept {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (is_utf8_continuation(text[i])) continue;
    const std::size_t bit = std::size_t{static_cast<unsigned char>(text[i - 1])} * 256 +
                            static_cast<unsigned char>(text[i]);
    memory_[kPairBitsAt + bit / 8] |= std::byte{1} << (bit % 8);
  }
}

Status VocabIndex::add_tokens() {
  for (TokenId id = 0; id < section_.n_tokens(); ++id) {
    const std::string_view text = section_.token_text(id);
    // Merges of kRankedBpe may build any token, so the pairs of all of them count.
    note_pairs(text);
    if (text.empty() || !is_text_token(section_.token_type(id))) continue;
    std::size_t at = hash_text(text) & token_mask_;
    bool taken = false;
    for (unsigned probe = 0;; ++probe) {
      const std::uint32_t other = slot(kSlotsAt + 4 * at);
      if (other == kEmptySlot) break;
      taken = section_.token_text(other) == text;
      if (taken) break;
      if (probe == kMaxProbes)
        return corrupt("tokenizer section: the token texts have too many hash collisions");
      at = (at + 1) & token_mask_;
    }
    if (!taken) store_le<std::uint32_t>(memory_, kSlotsAt + 4 * at, id);
  }
  return ok_status();
}

Status VocabIndex::add_merges() {
  for (std::uint32_t rank = 0; rank < section_.n_merges(); ++rank) {
    const MergeRule rule = section_.merge(rank);
    std::size_t at = hash_pair(rule.left, rule.right) & merge_mask_;
    for (unsigned probe = 0;; ++probe) {
      const std::uint32_t other_rank = slot(merges_at_ + 4 * at);
      if (other_rank == kEmptySlot) break;
      const MergeRule other = section_.merge(other_rank);
      if (other.left == rule.left && other.right == rule.right) {
        return corrupt("tokenizer section: merge %u repeats merge %u (tokens %u and %u)", rank,
                       other_rank, rule.left, rule.right);
      }
      if (probe == kMaxProbes)
        return corrupt("tokenizer section: the merges have too many hash collisions");
      at = (at + 1) & merge_mask_;
    }
    store_le<std::uint32_t>(memory_, merges_at_ + 4 * at, rank);
  }
  return ok_status();
}

void VocabIndex::add_byte_tokens() noexcept {
  if (section_.kind() == TokenizerKind::kByteBpe) {
    for (unsigned value = 0; value < 256; ++value) {
      const char byte = static_cast<char>(value);
      store_le<std::uint32_t>(memory_, std::size_t{4} * value, find_token({&byte, 1}));
    }
    return;
  }
  for (TokenId id = section_.n_tokens(); id-- > 0;) {
    if (section_.token_type(id) != TokenType::kByte) continue;
    const int value = byte_token_value(section_.token_text(id));
    store_le<std::uint32_t>(memory_, std::size_t{4} * static_cast<unsigned>(value), id);
  }
}

TokenId VocabIndex::find_token(std::string_view text) const noexcept {
  if (text.empty() || text.size() > section_.longest_token_bytes()) return kNoToken;
  for (std::size_t at = hash_text(text) & token_mask_;; at = (at + 1) & token_mask_) {
    const std::uint32_t id = slot(kSlotsAt + 4 * at);
    if (id == kEmptySlot) return kNoToken;
    if (section_.token_text(id) == text) return id;
  }
}

std::uint32_t VocabIndex::find_merge(TokenId left, TokenId right) const noexcept {
  for (std::size_t at = hash_pair(left, right) & merge_mask_;; at = (at + 1) & merge_mask_) {
    const std::uint32_t rank = slot(merges_at_ + 4 * at);
    if (rank == kEmptySlot) return kNoMerge;
    const MergeRule rule = section_.merge(rank);
    if (rule.left == left && rule.right == right) return rank;
  }
}

}  // namespace qsf
