// SPDX-License-Identifier: MIT
//
// Checks every field of a tokenizer section before anything is used.

#include "tokenizer/tokenizer_section.h"

#include <cmath>
#include <cstring>

namespace qsf {

namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

Status check_count(const char* what, std::uint32_t count, std::uint32_t limit) {
  if (count <= limit) return ok_status();
  return corrupt("tokenizer section: %u %s, expected at most %u", count, what, limit);
}

}  // namespace

int byte_token_value(std::string_view text) noexcept {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Result<SectionView> SectionView::parse_header(ByteSpan bytes, std::uint64_t section_bytes) {
  if (bytes.size() < kSectionHeaderBytes) {
    return corrupt("tokenizer section: %zu bytes, expected at least the %zu of its header",
                   bytes.size(), kSectionHeaderBytes);
  }
  if (std::memcmp(bytes.data(), kSectionMagic, sizeof kSectionMagic) != 0) {
    return corrupt("tokenizer section: magic 0x%08x, expected \"QTOK\"",
                   load_le<std::uint32_t>(bytes, 0));
  }
  const auto version = load_le<std::uint16_t>(bytes, 4);
  const auto kind = load_le<std::uint8_t>(bytes, 6);
  SectionView view;
  view.bytes_ = bytes;
  view.flags_ = view.field(8);
  if (version != kSectionVersion || kind < 1 || kind > 4 ||
      (view.flags_ & ~kSectionKnownFlags) != 0) {
    return unsupported(
        "tokenizer section: version %u, kind %u, flags 0x%x: this reader knows version %u, kinds 1 "
        "to 4 and flags 0x%x; a newer QSF may read it",
        version, kind, view.flags_, kSectionVersion, static_cast<unsigned>(kSectionKnownFlags));
  }
  view.kind_ = static_cast<TokenizerKind>(kind);
  if (load_le<std::uint8_t>(bytes, 7) != 0 || load_le<std::uint64_t>(bytes, 56) != 0) {
    return corrupt("tokenizer section: reserved header bytes are not zero");
  }
  view.n_tokens_ = view.field(12);
  view.n_merges_ = view.field(16);
  view.n_added_ = view.field(20);
  view.n_steps_ = view.field(24);
  view.n_stop_ = view.field(28);
  view.n_token_bytes_ = view.field(48);
  view.n_string_bytes_ = view.field(52);
  const bool scored = view.kind_ == TokenizerKind::kScoredBpe;
  const bool has_merges = !scored && view.kind_ != TokenizerKind::kWordPiece;
  QSF_RETURN_IF_ERROR(check_count("tokens", view.n_tokens_, kMaxVocabTokens));
  QSF_RETURN_IF_ERROR(check_count("merges", view.n_merges_, has_merges ? kMaxMerges : 0));
  QSF_RETURN_IF_ERROR(check_count("added tokens", view.n_added_, kMaxAdded));
  QSF_RETURN_IF_ERROR(check_count("steps", view.n_steps_, kMaxSteps));
  QSF_RETURN_IF_ERROR(check_count("stop ids", view.n_stop_, kMaxStopIds));
  if (view.n_tokens_ == 0) return corrupt("tokenizer section: no tokens");

  // The limits above keep every sum below far under 2^64 (and std::size_t has 64 bits).
  std::size_t at = kSectionHeaderBytes;
  const auto place = [&at](std::size_t count, std::size_t each) {
    const std::size_t begin = at;
    at += count * each;
    return begin;
  };
  view.at_offsets_ = place(std::size_t{view.n_tokens_} + 1, 4);
  view.at_merges_ = place(view.n_merges_, kMergeBytes);
  view.at_scores_ = place(scored ? view.n_tokens_ : 0, 4);
  view.at_added_ = place(view.n_added_, kAddedBytes);
  view.at_steps_ = place(view.n_steps_, kStepBytes);
  view.at_stop_ = place(view.n_stop_, 4);
  view.at_types_ = place(view.n_tokens_, 1);
  view.at_token_bytes_ = place(view.n_token_bytes_, 1);
  view.at_strings_ = place(view.n_string_bytes_, 1);
  if (at != section_bytes) {
    return corrupt("tokenizer section: %llu bytes, expected %zu from its counts",
                   static_cast<unsigned long long>(section_bytes), at);
  }
  return view;
}

Result<SectionView> SectionView::parse(ByteSpan bytes) {
  QSF_ASSIGN_OR_RETURN(SectionView view, parse_header(bytes, bytes.size()));
  QSF_RETURN_IF_ERROR(view.check_tokens());
  QSF_RETURN_IF_ERROR(view.check_ids());
  QSF_RETURN_IF_ERROR(view.check_merges());
  QSF_RETURN_IF_ERROR(view.check_added());
  QSF_RETURN_IF_ERROR(view.check_steps());
  return view;
}

Status SectionView::check_tokens() {
  std::uint32_t begin = field(at_offsets_);
  if (begin != 0) return corrupt("tokenizer section: first token offset is %u, expected 0", begin);
  for (TokenId id = 0; id < n_tokens_; ++id) {
    const std::uint32_t end = field(at_offsets_ + std::size_t{4} * id + 4);
    if (end < begin || end > n_token_bytes_ || end - begin > kMaxTokenBytes) {
      return corrupt("tokenizer section: token %u: bytes %u to %u of %u, at most %u expected", id,
                     begin, end, n_token_bytes_, kMaxTokenBytes);
    }
    if (end - begin > longest_token_bytes_) longest_token_bytes_ = end - begin;
    begin = end;
    const auto type = load_le<std::uint8_t>(bytes_, at_types_ + id);
    if (type < 1 || type > 6) {
      return corrupt("tokenizer section: token %u: type %u, expected 1 to 6", id, type);
    }
    if (token_type(id) == TokenType::kByte && byte_token_value(token_text(id)) < 0) {
      return corrupt("tokenizer section: token %u: a byte token's text must be <0xNN>", id);
    }
    if (kind_ == TokenizerKind::kScoredBpe && std::isnan(token_score(id))) {
      return corrupt("tokenizer section: token %u: its score is not a number", id);
    }
  }
  if (begin != n_token_bytes_) {
    return corrupt("tokenizer section: tokens end at byte %u of %u", begin, n_token_bytes_);
  }
  return ok_status();
}

Status SectionView::check_ids() const {
  for (const TokenId id : {bos(), eos(), pad(), unk()}) {
    if (id != kNoToken && id >= n_tokens_) {
      return corrupt("tokenizer section: special token id %u, expected below %u", id, n_tokens_);
    }
  }
  if ((has(kSectionAddBos) && bos() == kNoToken) || (has(kSectionAddEos) && eos() == kNoToken)) {
    return corrupt("tokenizer section: asks to add a BOS or EOS token that it does not name");
  }
  if (kind_ == TokenizerKind::kWordPiece && unk() == kNoToken) {
    return corrupt("tokenizer section: kind 4 without a token for unknown words");
  }
  for (std::uint32_t i = 0; i < n_stop_; ++i) {
    if (stop_id(i) >= n_tokens_) {
      return corrupt("tokenizer section: stop id %u, expected below %u", stop_id(i), n_tokens_);
    }
  }
  return ok_status();
}

Status SectionView::check_merges() const {
  for (std::uint32_t rank = 0; rank < n_merges_; ++rank) {
    const MergeRule rule = merge(rank);
    if (rule.left >= n_tokens_ || rule.right >= n_tokens_ || rule.result >= n_tokens_) {
      return corrupt("tokenizer section: merge %u: %u + %u = %u, expected ids below %u", rank,
                     rule.left, rule.right, rule.result, n_tokens_);
    }
    const std::string_view left = token_text(rule.left);
    const std::string_view right = token_text(rule.right);
    const std::string_view result = token_text(rule.result);
    if (left.empty() || right.empty() || result.size() != left.size() + right.size() ||
        !result.starts_with(left) || !result.ends_with(right)) {
      return corrupt("tokenizer section: merge %u: token %u is not token %u followed by token %u",
                     rank, rule.result, rule.left, rule.right);
    }
  }
  return ok_status();
}

bool SectionView::string_in_range(std::size_t at) const noexcept {
  return std::uint64_t{field(at)} + field(at + 4) <= n_string_bytes_;
}

AddedView SectionView::added(std::uint32_t index) const noexcept {
  const std::size_t at = at_added_ + kAddedBytes * index;
  return {string_at(at), field(at + 8), field(at + 12)};
}

Status SectionView::check_added() const {
  for (std::uint32_t i = 0; i < n_added_; ++i) {
    const std::size_t at = at_added_ + kAddedBytes * i;
    const std::uint32_t n_bytes = field(at + 4);
    if (!string_in_range(at) || n_bytes == 0 || n_bytes > kMaxAddedTextBytes ||
        field(at + 8) >= n_tokens_ || (field(at + 12) & ~kAddedKnownFlags) != 0) {
      return corrupt(
          "tokenizer section: added token %u: %u bytes at string %u, id %u, flags 0x%x: out of "
          "range",
          i, n_bytes, field(at), field(at + 8), field(at + 12));
    }
    if (i == 0) continue;
    const AddedView before = added(i - 1);
    const AddedView entry = added(i);
    const bool late = (entry.flags & kAddedNormalized) != 0;
    const bool before_late = (before.flags & kAddedNormalized) != 0;
    if (late == before_late ? before.text >= entry.text : before_late) {
      return corrupt("tokenizer section: added token %u: out of order or twice", i);
    }
  }
  return ok_status();
}

StepView SectionView::step(std::uint32_t index) const noexcept {
  const std::size_t at = at_steps_ + kStepBytes * index;
  return {static_cast<TextOp>(load_le<std::uint8_t>(bytes_, at)),
          static_cast<TextStage>(load_le<std::uint8_t>(bytes_, at + 1)),
          static_cast<SplitBehavior>(load_le<std::uint8_t>(bytes_, at + 2)),
          load_le<std::uint8_t>(bytes_, at + 3),
          string_at(at + 4),
          string_at(at + 12)};
}

Status SectionView::check_steps() const {
  bool splitting = false;
  unsigned last_stage = 0;
  for (std::uint32_t i = 0; i < n_steps_; ++i) {
    const std::size_t at = at_steps_ + kStepBytes * i;
    const unsigned op = load_le<std::uint8_t>(bytes_, at);
    const unsigned stage = load_le<std::uint8_t>(bytes_, at + 1);
    const unsigned behavior = load_le<std::uint8_t>(bytes_, at + 2);
    const unsigned flags = load_le<std::uint8_t>(bytes_, at + 3);
    if (op < 1 || op > 8 || stage > 1 || behavior > 4 ||
        (flags & ~unsigned{kStepKnownFlags}) != 0 || field(at + 20) != 0) {
      return unsupported(
          "tokenizer section: step %u: operation %u, stage %u, behaviour %u, flags 0x%x: not known",
          i, op, stage, behavior, flags);
    }
    if (!string_in_range(at + 4) || !string_in_range(at + 12)) {
      return corrupt("tokenizer section: step %u: text outside the %u string bytes", i,
                     n_string_bytes_);
    }
    const bool is_split = static_cast<TextOp>(op) == TextOp::kSplit;
    const bool needs_text = is_split || static_cast<TextOp>(op) == TextOp::kPrepend ||
                            static_cast<TextOp>(op) == TextOp::kReplace;
    if ((needs_text && field(at + 8) == 0) || stage < last_stage || (is_split && stage == 0) ||
        (splitting && !is_split)) {
      return corrupt(
          "tokenizer section: step %u: operation %u at stage %u is empty or out of order", i, op,
          stage);
    }
    splitting = is_split;
    last_stage = stage;
  }
  return ok_status();
}

}  // namespace qsf
