// SPDX-License-Identifier: MIT
//
// Byte pair encoding: turns a piece of text into tokens by merging neighbours in order of priority.
//
// One implementation serves the three kinds. They differ in the first symbols (bytes or
// characters), in the condition for a merge (a merge rule, or a token with the joined text) and in
// the order of merges (lower rank or higher score first; then left to right). A piece of n symbols
// always takes O(n log n) time and O(n) memory.
//
// Based on: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units",
// 2016; Kudo and Richardson, "SentencePiece", 2018.

#ifndef QSF_TOKENIZER_BPE_H_
#define QSF_TOKENIZER_BPE_H_

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer_section.h"
#include "tokenizer/vocab_index.h"

namespace qsf {

// Buffers of one running encode, and its state between pieces.
struct BpeScratch {
  struct Symbol {
    std::uint32_t begin;
    std::uint32_t n_bytes;  // 0: merged into the symbol before it
    std::uint32_t previous;
    std::uint32_t next;
    TokenId id;  // kNoToken: no token has this text
  };
  struct Candidate {
    std::uint32_t left;  // symbol
    std::uint32_t
        n_bytes;          // of the joined text when this was queued; another length makes it stale
    std::uint32_t merit;  // smaller is merged first: the rank, or the reversed order of the score
    TokenId result;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
  // Unused tokens that resulted from a merge, with the length of the merge's left half: they are
  // split again at the end.
  std::unordered_map<TokenId, std::uint32_t> unused;
  std::vector<std::string_view> pending;
  bool last_was_unknown = false;  // for fused unknown tokens; cleared by begin_segment()
};

class BpeModel {
 public:
  BpeModel() = default;
  BpeModel(const SectionView& section, const VocabIndex& index);

  // Starts a stretch of text whose unknown tokens are not fused with earlier ones.
  void begin_segment(BpeScratch& scratch) const noexcept { scratch.last_was_unknown = false; }

  // Encodes one piece and appends its tokens.
  // Requires  piece.size() < 2^31
  // Threads   any, each with its own scratch
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  void encode_part(std::string_view part, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void make_symbols(std::string_view part, BpeScratch& scratch) const;
  void consider(std::string_view part, std::uint32_t left, BpeScratch& scratch) const;
  void merge_all(std::string_view part, BpeScratch& scratch) const;
  void emit(std::string_view text, TokenId id, BpeScratch& scratch,
            std::vector<TokenId>& out) const;
  void emit_unknown(std::string_view text, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void emit_unused(std::string_view text, TokenId id, BpeScratch& scratch,
                   std::vector<TokenId>& out) const;

  SectionView section_;
  VocabIndex index_;
  TokenId unknown_ = kNoToken;  // the token of text that has none
  bool has_unused_ = false;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_BPE_H_
