// SPDX-License-Identifier: MIT
//
// TokenVocabulary: the tokens of a model as a trie of their bytes, for masks.
//
// The nodes of the trie stand in the order of a walk, each with the size of its subtree, so that a
// walk reads memory in order and leaves out a subtree by one addition. Each slice
// (token_slices.h) has masks of its tokens by their number of characters, and a trie of the tokens
// that it lacks. Control tokens, tokens without text and those of more than 256 bytes are in no
// trie: a grammar never allows them.

#ifndef QSF_GRAMMAR_TOKEN_VOCABULARY_H_
#define QSF_GRAMMAR_TOKEN_VOCABULARY_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "grammar/token_slices.h"

namespace qsf {

inline constexpr std::uint32_t kNoTokenHere = 0xFFFFFFFF;

// What a vocabulary is made from.
class TokenTexts {
 public:
  enum class Kind : std::uint8_t { kText, kControl, kEnd };
  virtual ~TokenTexts() = default;
  virtual std::uint32_t n_tokens() const = 0;
  virtual Kind kind(std::uint32_t token) const = 0;
  // Appends the bytes of a token; those of a control token only with `controls`.
  virtual void append(std::uint32_t token, bool controls, std::string& out) const = 0;
};

struct TokenTrieNode {
  std::uint8_t byte() const noexcept { return static_cast<std::uint8_t>(packed & 0xFF); }
  std::uint32_t subtree() const noexcept { return packed >> 8; }  // nodes, this one included
  std::uint32_t packed;
  std::uint32_t token;  // that ends here, or kNoTokenHere; another one stands in a node beside it
};

class TokenVocabulary {
 public:
  // Bytes for a vocabulary of `n_tokens`; the tries must have no more nodes than usual ones.
  static std::size_t region_bytes(std::uint32_t n_tokens);
  // Builds the tries. `texts` outlives the vocabulary.
  // Fails  kUnsupported: the tokens share so few beginnings that the tries do not fit
  static Result<TokenVocabulary> build(const TokenTexts& texts, MutableByteSpan region);

  std::uint32_t n_tokens() const noexcept { return n_tokens_; }
  const TokenTexts& texts() const noexcept { return *texts_; }
  std::span<const TokenTrieNode> trie() const noexcept { return trie_; }
  std::span<const std::uint32_t> end_tokens() const noexcept { return end_tokens_; }

  // The mask of the slice's tokens of at most `n_chars` characters.
  std::span<const std::uint32_t> slice_mask(std::uint8_t slice, std::uint32_t n_chars) const;
  // The trie of all tokens but those of the slice.
  std::span<const TokenTrieNode> rest_trie(std::uint8_t slice) const { return rests_[slice]; }
  // The bytes that a token of the slice may begin with, as a set of 256 bits.
  std::span<const std::uint64_t, 4> first_bytes(std::uint8_t slice) const {
    return first_bytes_[slice];
  }

 private:
  static constexpr std::size_t kSlices = 1;
  TokenVocabulary() = default;

  const TokenTexts* texts_ = nullptr;
  std::uint32_t n_tokens_ = 0;
  std::span<TokenTrieNode> trie_;
  std::array<std::span<TokenTrieNode>, kSlices> rests_;
  std::span<std::uint32_t> slice_masks_;  // [slices, kMaxSliceChars, words]
  std::array<std::array<std::uint64_t, 4>, kSlices> first_bytes_{};
  std::vector<std::uint32_t> end_tokens_;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_TOKEN_VOCABULARY_H_
