// SPDX-License-Identifier: MIT
//
// Look-ups over a tokenizer section: text to token, pair of tokens to merge rank.
//
// Two open-addressing tables of u32 slots, in the caller's memory, hold indexes into the section;
// strings and rules are compared in place. 128k tokens and 280k merges take 1 MB + 2 MB, instead of
// the tens of megabytes of maps of strings.

#ifndef QSF_TOKENIZER_VOCAB_INDEX_H_
#define QSF_TOKENIZER_VOCAB_INDEX_H_

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {

inline constexpr std::uint32_t kNoMerge = 0xFFFFFFFFU;

class VocabIndex {
 public:
  VocabIndex() = default;

  // Returns the bytes build() needs; follows from the section's counts alone.
  static std::size_t bytes_needed(const SectionView& section) noexcept;

  // Fills `memory`, which must outlive the index; no alignment is assumed.
  // Fails  kInvalidArgument when memory is too small; kCorrupt: a pair with two merges, or too many
  //        hash collisions
  static Result<VocabIndex> build(const SectionView& section, MutableByteSpan memory);

  // Returns the normal, user-defined or unused token with this text, or kNoToken; of several, the
  // lowest id.
  TokenId find_token(std::string_view text) const noexcept;
  // Returns the rank of the merge of this pair, or kNoMerge.
  std::uint32_t find_merge(TokenId left, TokenId right) const noexcept;
  // Returns the token of one byte (kByteBpe: its text is that byte; else a byte token), or
  // kNoToken.
  TokenId byte_token(unsigned char byte) const noexcept {
    return load_le<std::uint32_t>(memory_, std::size_t{4} * byte);
  }
  // False when no token's text holds these two bytes next to each other at a character boundary, so
  // that text may be cut there without changing its tokens. Only for kScoredBpe and kRankedBpe.
  bool may_join(unsigned char last, unsigned char first) const noexcept {
    const std::size_t bit = std::size_t{last} * 256 + first;
    return (load_le<std::uint8_t>(memory_, kPairBitsAt + bit / 8) >> (bit % 8) & 1U) != 0;
  }

 private:
  static constexpr std::size_t kPairBitsAt = 256 * 4;
  static constexpr std::size_t kSlotsAt = kPairBitsAt + 65536 / 8;

  Status add_tokens();
  Status add_merges();
  void add_byte_tokens() noexcept;
  void note_pairs(std::string_view text) noexcept;
  std::uint32_t slot(std::size_t at) const noexcept { return load_le<std::uint32_t>(memory_, at); }

  SectionView section_;
  MutableByteSpan memory_;
  std::size_t token_mask_ = 0;  // slots - 1
  std::size_t merge_mask_ = 0;
  std::size_t merges_at_ = 0;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_VOCAB_INDEX_H_
