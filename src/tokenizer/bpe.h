// SPDX-License-Identifier: MIT
//
// Byte pair encoding: from a piece of text to tokens, by merging neighbours in order of merit.
//
// One implementation of symbols and queue serves the three kinds: what differs is the first symbols
// (bytes or characters), what makes a pair mergeable (a merge rule, or a token with the joined
// text) and which of two pairs goes first (lower rank or higher score; then the one further left).
// A piece of n symbols takes O(n log n) time and O(n) memory, whatever it holds.
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

// Buffers of one running encode, and what it carries from piece to piece.
struct BpeScratch {
  struct Symbol {
    std::uint32_t begin;
    std::uint32_t n_bytes;  // 0: merged into the symbol before it
    std::uint32_t previous;
    std::uint32_t next;
    TokenId id;  // kNoToken: text that is no token
  };
  struct Candidate {
    std::uint32_t left;  // symbol
    std::uint32_t
        n_bytes;          // of the joined text when this was queued; another length makes it stale
    std::uint32_t merit;  // smaller goes first: the rank, or the score's order turned round
    TokenId result;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
  // Unused tokens that came out of a merge, with the length of the merge's left half: they are
  // taken apart again at the end.
  std::unordered_map<TokenId, std::uint32_t> unused;
  std::vector<std::string_view> pending;
  bool last_was_unknown = false;  // for fused unknown tokens; cleared by begin_segment()
};

class BpeModel {
 public:
  BpeModel() = default;
  BpeModel(const SectionView& section, const VocabIndex& index);

  // Starts a stretch of text that shares no unknown token with the one before it.
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
  TokenId unknown_ = kNoToken;  // what text without token becomes
  bool has_unused_ = false;
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_BPE_H_
