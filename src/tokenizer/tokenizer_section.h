// SPDX-License-Identifier: MIT
//
// The bytes of a tokenizer section: offsets, and a view that checks them once.
//
// docs/format-tokenizer.md is the authority; this header repeats its table. The view reads fields
// in place, at any alignment, and copies nothing.

#ifndef QSF_TOKENIZER_TOKENIZER_SECTION_H_
#define QSF_TOKENIZER_TOKENIZER_SECTION_H_

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// offset size  field               valid range
//      0    4  magic               "QTOK"
//      4    2  version             1
//      6    1  kind                1, 2, 3, 4
//      7    1  zero
//      8    4  flags               kSectionFlag*
//     12    4  token count         1 .. 2^24
//     16    4  merge count         0 .. 2^25; 0 for kinds 2, 4
//     20    4  added token count   0 .. 2^20
//     24    4  step count          0 .. 64
//     28    4  stop id count       0 .. 1024
//     32   16  bos eos pad unk     a token, or 0xFFFFFFFF for none
//     48    4  token bytes         sum of all token texts
//     52    4  string bytes        texts of added tokens and steps
//     56    8  zero
// then, without gaps: token offsets u32[tokens + 1], merges 3 x u32, scores f32[tokens] (kind 2),
// added tokens 4 x u32, steps 6 x u32, stop ids u32, token types u8, token bytes, string bytes.
inline constexpr char kSectionMagic[4] = {'Q', 'T', 'O', 'K'};
inline constexpr std::uint16_t kSectionVersion = 1;
inline constexpr std::size_t kSectionHeaderBytes = 64;
inline constexpr std::size_t kMergeBytes = 12;
inline constexpr std::size_t kAddedBytes = 16;
inline constexpr std::size_t kStepBytes = 24;

inline constexpr std::uint32_t kMaxVocabTokens = 1U << 24;
inline constexpr std::uint32_t kMaxMerges = 1U << 25;
inline constexpr std::uint32_t kMaxAdded = 1U << 20;
inline constexpr std::uint32_t kMaxSteps = 64;
inline constexpr std::uint32_t kMaxStopIds = 1024;
inline constexpr std::uint32_t kMaxTokenBytes = 65535;
inline constexpr std::uint32_t kMaxAddedTextBytes = 512;  // bounds the work per byte of text

enum SectionFlag : std::uint32_t {
  kSectionAddBos = 1U << 0,
  kSectionAddEos = 1U << 1,
  kSectionByteFallback = 1U << 2,
  kSectionFuseUnknown = 1U << 3,
  kSectionIgnoreMerges = 1U << 4,
  kSectionStripLeadingSpace = 1U << 5,
  kSectionUnescapeSpaces = 1U << 6,
  kSectionNfc = 1U << 7,
  kSectionKnownFlags = (1U << 8) - 1,
};

enum AddedFlag : std::uint32_t {
  kAddedSpecial = 1U << 0,
  kAddedNormalized = 1U << 1,
  kAddedLeftStrip = 1U << 2,
  kAddedRightStrip = 1U << 3,
  kAddedSingleWord = 1U << 4,
  kAddedKnownFlags = (1U << 5) - 1,
};

enum StepFlag : std::uint8_t {
  kStepFirstOnly = 1U << 0,
  kStepUnlessPresent = 1U << 1,
  kStepInvert = 1U << 2,
  kStepKnownFlags = (1U << 3) - 1,
};

// Views into the section.
struct AddedView {
  std::string_view text;
  TokenId id;
  std::uint32_t flags;
};
struct StepView {
  TextOp op;
  TextStage stage;
  SplitBehavior behavior;
  std::uint8_t flags;
  std::string_view text;
  std::string_view replacement;
};

class SectionView {
 public:
  // An empty view, which can only be assigned to.
  SectionView() = default;

  // Checks the header and that its counts give exactly `section_bytes`. Reads only the header of
  // `bytes`.
  // Fails  kCorrupt; kUnsupported on a newer version, kind or flag
  static Result<SectionView> parse_header(ByteSpan bytes, std::uint64_t section_bytes);
  // Checks every field, so that no accessor can read out of range. `bytes` must outlive the view.
  static Result<SectionView> parse(ByteSpan bytes);

  TokenizerKind kind() const noexcept { return kind_; }
  bool has(SectionFlag flag) const noexcept { return (flags_ & flag) != 0; }
  std::uint32_t n_tokens() const noexcept { return n_tokens_; }
  std::uint32_t n_merges() const noexcept { return n_merges_; }
  std::uint32_t n_added() const noexcept { return n_added_; }
  std::uint32_t n_steps() const noexcept { return n_steps_; }
  std::uint32_t n_stop_ids() const noexcept { return n_stop_; }
  TokenId bos() const noexcept { return field(32); }
  TokenId eos() const noexcept { return field(36); }
  TokenId pad() const noexcept { return field(40); }
  TokenId unk() const noexcept { return field(44); }
  std::uint32_t longest_token_bytes() const noexcept { return longest_token_bytes_; }

  // Requires  id < n_tokens(), and likewise below
  std::string_view token_text(TokenId id) const noexcept {
    const std::uint32_t begin = field(at_offsets_ + std::size_t{4} * id);
    const std::uint32_t end = field(at_offsets_ + std::size_t{4} * id + 4);
    return as_text(bytes_.subspan(at_token_bytes_ + begin, end - begin));
  }
  TokenType token_type(TokenId id) const noexcept {
    return static_cast<TokenType>(load_le<std::uint8_t>(bytes_, at_types_ + id));
  }
  float token_score(TokenId id) const noexcept {
    return load_le<float>(bytes_, at_scores_ + std::size_t{4} * id);
  }
  MergeRule merge(std::uint32_t rank) const noexcept {
    const std::size_t at = at_merges_ + kMergeBytes * rank;
    return {field(at), field(at + 4), field(at + 8)};
  }
  AddedView added(std::uint32_t index) const noexcept;
  StepView step(std::uint32_t index) const noexcept;
  TokenId stop_id(std::uint32_t index) const noexcept {
    return field(at_stop_ + std::size_t{4} * index);
  }

 private:
  std::uint32_t field(std::size_t at) const noexcept { return load_le<std::uint32_t>(bytes_, at); }
  std::string_view string_at(std::size_t at) const noexcept {
    return as_text(bytes_.subspan(at_strings_ + field(at), field(at + 4)));
  }
  bool string_in_range(std::size_t at) const noexcept;
  Status check_tokens();
  Status check_merges() const;
  Status check_added() const;
  Status check_steps() const;
  Status check_ids() const;

  ByteSpan bytes_;
  TokenizerKind kind_ = TokenizerKind::kByteBpe;
  std::uint32_t flags_ = 0;
  std::uint32_t n_tokens_ = 0;
  std::uint32_t n_merges_ = 0;
  std::uint32_t n_added_ = 0;
  std::uint32_t n_steps_ = 0;
  std::uint32_t n_stop_ = 0;
  std::uint32_t n_token_bytes_ = 0;
  std::uint32_t n_string_bytes_ = 0;
  std::uint32_t longest_token_bytes_ = 0;
  std::size_t at_offsets_ = 0;
  std::size_t at_merges_ = 0;
  std::size_t at_scores_ = 0;
  std::size_t at_added_ = 0;
  std::size_t at_steps_ = 0;
  std::size_t at_stop_ = 0;
  std::size_t at_types_ = 0;
  std::size_t at_token_bytes_ = 0;
  std::size_t at_strings_ = 0;
};

// Returns the value of a byte token's text "<0xNN>", or -1 when it has another form.
int byte_token_value(std::string_view text) noexcept;

}  // namespace qsf

#endif  // QSF_TOKENIZER_TOKENIZER_SECTION_H_
