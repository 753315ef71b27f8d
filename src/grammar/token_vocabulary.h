// SPDX-License-Identifier: MIT
//
// TokenVocabulary: the tokens of a model, sorted for masks.
//
// There is a trie of all tokens. Each slice (token_slices.h) has masks of the tokens that consist
// of its characters, by their number; and tries of the tokens that begin with such characters and
// go on otherwise, by the number of those characters and without them. Control tokens, tokens
// without text and those of more than 256 bytes are nowhere: a grammar never allows them.

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
#include "grammar/token_trie.h"

namespace qsf {

inline constexpr std::size_t kMaxMaskedBytes = 256;

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

class TokenVocabulary {
 public:
  // Bytes for a vocabulary of `n_tokens`; the trie must have no more nodes than usual ones.
  static std::size_t region_bytes(std::uint32_t n_tokens);
  // Sorts the tokens. `texts` outlives the vocabulary.
  // Fails  kUnsupported: the tokens share so few beginnings that the trie does not fit
  static Result<TokenVocabulary> build(const TokenTexts& texts, MutableByteSpan region);

  std::uint32_t n_tokens() const noexcept { return n_tokens_; }
  const TokenTexts& texts() const noexcept { return *texts_; }
  const TokenTrie& trie() const noexcept { return trie_; }
  std::span<const std::uint32_t> end_tokens() const noexcept { return end_tokens_; }

  // Whether a slice had room beside the others.
  bool has_slice(std::size_t slice) const noexcept { return slices_[slice].exists; }
  // The mask of the slice's tokens of at most `n_chars` characters, 1 to kMaxSliceChars.
  std::span<const std::uint32_t> slice_mask(std::size_t slice, std::uint32_t n_chars) const;
  // The ends of the tokens that begin with `n_chars` characters of the slice and then go on with
  // another one. Those of kMaxSliceChars may go on with any.
  const TokenTrie& slice_ends(std::size_t slice, std::uint32_t n_chars) const {
    return slices_[slice].ends[n_chars - 1];
  }
  // The tokens that begin with a byte outside ASCII, but with none of high_chars().
  const TokenTrie& broken_trie() const noexcept { return broken_trie_; }

 private:
  struct Slice {
    bool exists = false;
    std::array<TokenTrie, kMaxSliceChars> ends;
  };
  TokenVocabulary() = default;
  void build_slice(std::size_t slice, std::span<const TokenBytes> entries, TokenTrieWriter& writer);

  const TokenTexts* texts_ = nullptr;
  std::uint32_t n_tokens_ = 0;
  TokenTrie trie_;
  TokenTrie broken_trie_;
  std::array<Slice, kTokenSlices> slices_;
  std::span<std::uint32_t> slice_masks_;  // [kTokenSlices, kMaxSliceChars, words]
  std::vector<std::uint32_t> end_tokens_;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_TOKEN_VOCABULARY_H_
