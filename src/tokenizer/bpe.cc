// SPDX-License-Identifier: MIT

#include "tokenizer/bpe.h"

#include <algorithm>

#include "base/bit_cast.h"
#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr std::uint32_t kNoSymbol = 0xFFFFFFFFU;

// Orders floats as unsigned numbers, higher scores first; both zeros are the same.
std::uint32_t merit_of_score(float score) noexcept {
  const auto bits = bit_cast<std::uint32_t>(score + 0.0F);
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

// True when `a` goes after `b`; std::push_heap then keeps the first to go at the front.
bool goes_after(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) noexcept {
  return a.merit != b.merit ? a.merit > b.merit : a.left > b.left;
}

std::string_view text_of(std::string_view part, const BpeScratch::Symbol& symbol) noexcept {
  return part.substr(symbol.begin, symbol.n_bytes);
}

}  // namespace

BpeModel::BpeModel(const SectionView& section, const VocabIndex& index)
    : section_(section), index_(index), unknown_(section.unk()) {
  // Some models name their end of text as the unknown token too. Odd bytes must not end a text.
  bool speaks = unknown_ != kNoToken && (unknown_ == section.bos() || unknown_ == section.eos() ||
                                         section.token_type(unknown_) == TokenType::kControl);
  for (std::uint32_t i = 0; i < section.n_stop_ids(); ++i) {
    speaks = speaks || section.stop_id(i) == unknown_;
  }
  if (speaks) unknown_ = kNoToken;
  if (section.kind() != TokenizerKind::kScoredBpe) return;
  for (TokenId id = 0; id < section.n_tokens() && !has_unused_; ++id) {
    has_unused_ = section.token_type(id) == TokenType::kUnused && !section.token_text(id).empty();
  }
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                      std::vector<TokenId>& out) const {
  if (section_.has(kSectionIgnoreMerges)) {
    const TokenId whole = index_.find_token(piece);
    if (whole != kNoToken) {
      scratch.last_was_unknown = false;
      out.push_back(whole);
      return;
    }
  }
  if (section_.kind() == TokenizerKind::kByteBpe) return encode_part(piece, scratch, out);
  // Cut where no token reaches across: merges on both sides cannot meet, and the queue stays small.
  std::size_t begin = 0;
  for (std::size_t i = 1; i < piece.size(); ++i) {
    if (is_utf8_continuation(piece[i])) continue;
    if (index_.may_join(static_cast<unsigned char>(piece[i - 1]),
                        static_cast<unsigned char>(piece[i]))) {
      continue;
    }
    encode_part(piece.substr(begin, i - begin), scratch, out);
    begin = i;
  }
  encode_part(piece.substr(begin), scratch, out);
}

void BpeModel::encode_part(std::string_view part, BpeScratch& scratch,
                           std::vector<TokenId>& out) const {
  if (part.empty()) return;
  make_symbols(part, scratch);
  merge_all(part, scratch);
  for (std::uint32_t i = 0; i != kNoSymbol; i = scratch.symbols[i].next) {
    const BpeScratch::Symbol& symbol = scratch.symbols[i];
    emit(text_of(part, symbol), symbol.id, scratch, out);
  }
}

void BpeModel::make_symbols(std::string_view part, BpeScratch& scratch) const {
  scratch.symbols.clear();
  scratch.unused.clear();
  const auto add = [&](std::size_t begin, std::size_t n_bytes, TokenId id) {
    const auto number = static_cast<std::uint32_t>(scratch.symbols.size());
    scratch.symbols.push_back({static_cast<std::uint32_t>(begin),
                               static_cast<std::uint32_t>(n_bytes),
                               number == 0 ? kNoSymbol : number - 1, number + 1, id});
  };
  if (section_.kind() == TokenizerKind::kByteBpe) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      add(i, 1, index_.byte_token(static_cast<unsigned char>(part[i])));
    }
  } else {
    for (std::size_t i = 0; i < part.size();) {
      const Utf8Char next = decode_utf8(part, i);
      add(i, next.n_bytes, next.valid ? index_.find_token(part.substr(i, next.n_bytes)) : kNoToken);
      i += next.n_bytes;
    }
  }
  scratch.symbols.back().next = kNoSymbol;
}

// Queues the pair that begins with symbol `left`, if it merges.
void BpeModel::consider(std::string_view part, std::uint32_t left, BpeScratch& scratch) const {
  const BpeScratch::Symbol& a = scratch.symbols[left];
  if (a.next == kNoSymbol) return;
  const BpeScratch::Symbol& b = scratch.symbols[a.next];
  BpeScratch::Candidate candidate{left, a.n_bytes + b.n_bytes, 0, kNoToken};
  if (section_.kind() == TokenizerKind::kScoredBpe) {
    candidate.result = index_.find_token(part.substr(a.begin, candidate.n_bytes));
    if (candidate.result == kNoToken) return;
    candidate.merit = merit_of_score(section_.token_score(candidate.result));
    if (has_unused_ && section_.token_type(candidate.result) == TokenType::kUnused) {
      scratch.unused[candidate.result] = a.n_bytes;
    }
  } else {
    if (a.id == kNoToken || b.id == kNoToken) return;
    candidate.merit = index_.find_merge(a.id, b.id);
    if (candidate.merit == kNoMerge) return;
    candidate.result = section_.merge(candidate.merit).result;
    // Control tokens come only from added tokens, never from merges of their text.
    if (section_.token_type(candidate.result) == TokenType::kControl) return;
  }
  scratch.queue.push_back(candidate);
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), goes_after);
}

void BpeModel::merge_all(std::string_view part, BpeScratch& scratch) const {
  scratch.queue.clear();
  const auto n_symbols = static_cast<std::uint32_t>(scratch.symbols.size());
  for (std::uint32_t i = 0; i + 1 < n_symbols; ++i) consider(part, i, scratch);
  while (!scratch.queue.empty()) {
    std::pop_heap(scratch.queue.begin(), scratch.queue.end(), goes_after);
    const BpeScratch::Candidate best = scratch.queue.back();
    scratch.queue.pop_back();
    BpeScratch::Symbol& a = scratch.symbols[best.left];
    // Symbols only grow, so an equal sum of lengths means that neither side has changed.
    if (a.n_bytes == 0 || a.next == kNoSymbol) continue;
    BpeScratch::Symbol& b = scratch.symbols[a.next];
    if (a.n_bytes + b.n_bytes != best.n_bytes) continue;
    a.n_bytes = best.n_bytes;
    a.id = best.result;
    b.n_bytes = 0;
    a.next = b.next;
    if (a.next != kNoSymbol) scratch.symbols[a.next].previous = best.left;
    if (a.previous != kNoSymbol) consider(part, a.previous, scratch);
    consider(part, best.left, scratch);
  }
}

void BpeModel::emit(std::string_view text, TokenId id, BpeScratch& scratch,
                    std::vector<TokenId>& out) const {
  if (id == kNoToken) return emit_unknown(text, scratch, out);
  if (has_unused_ && section_.token_type(id) == TokenType::kUnused) {
    return emit_unused(text, id, scratch, out);
  }
  scratch.last_was_unknown = false;
  out.push_back(id);
}

void BpeModel::emit_unknown(std::string_view text, BpeScratch& scratch,
                            std::vector<TokenId>& out) const {
  if (section_.has(kSectionByteFallback)) {
    const bool all_known = std::all_of(text.begin(), text.end(), [this](char c) {
      return index_.byte_token(static_cast<unsigned char>(c)) != kNoToken;
    });
    if (all_known) {
      scratch.last_was_unknown = false;
      for (const char c : text) out.push_back(index_.byte_token(static_cast<unsigned char>(c)));
      return;
    }
  }
  if (unknown_ == kNoToken) return;
  if (!scratch.last_was_unknown || !section_.has(kSectionFuseUnknown)) out.push_back(unknown_);
  scratch.last_was_unknown = true;
}

// Takes an unused token apart into the two halves it was merged from, and those likewise.
void BpeModel::emit_unused(std::string_view text, TokenId id, BpeScratch& scratch,
                           std::vector<TokenId>& out) const {
  scratch.pending.assign(1, text);
  while (!scratch.pending.empty()) {
    const std::string_view piece = scratch.pending.back();
    scratch.pending.pop_back();
    id = index_.find_token(piece);
    const bool is_unused = id != kNoToken && section_.token_type(id) == TokenType::kUnused;
    const auto halves = is_unused ? scratch.unused.find(id) : scratch.unused.end();
    if (id == kNoToken) {
      emit_unknown(piece, scratch, out);
    } else if (halves == scratch.unused.end() || halves->second >= piece.size()) {
      scratch.last_was_unknown = false;
      out.push_back(id);
    } else {
      scratch.pending.push_back(piece.substr(halves->second));
      scratch.pending.push_back(piece.substr(0, halves->second));
    }
  }
}

}  // namespace qsf
