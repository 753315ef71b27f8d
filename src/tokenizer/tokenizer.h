// SPDX-License-Identifier: MIT
//
// Tokenizer: text to tokens and back, over the tokenizer section of a .qsf file in place.
//
// It has no copy of the vocabulary: strings and merge rules are read from the section in place, and
// the look-up tables are in the caller's memory, so that a memory plan can count both. It allocates
// the compiled pre-tokeniser expressions (heap_bytes(), some tens of kilobytes) and, during
// encode(), buffers proportional to the text.
//
// Text may be any bytes. For byte-level tokenizers and those with byte fallback, decoding returns
// the text's bytes, except for changes by the model's normaliser: of a literal U+2581, or of text
// that is not in Unicode normal form C.

#ifndef QSF_TOKENIZER_TOKENIZER_H_
#define QSF_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "tokenizer/added_matcher.h"
#include "tokenizer/bpe.h"
#include "tokenizer/text_steps.h"
#include "tokenizer/tokenizer_data.h"
#include "tokenizer/tokenizer_section.h"
#include "tokenizer/vocab_index.h"
#include "tokenizer/word_pieces.h"

namespace qsf {

struct EncodeOptions {
  std::optional<bool> add_bos;  // none: the model's rule
  std::optional<bool> add_eos;
  // Whether control tokens written out in the text ("<|im_start|>") become those tokens. False for
  // untrusted text, which must not contain control tokens.
  bool parse_special = true;
  // Whether the text begins a conversation or document: models that put a space only in front of
  // the very first word do so only then.
  bool at_text_start = true;
};

// A part of a text for encode_pieces().
struct TextPiece {
  std::string_view text;
  bool parse_special;  // as in EncodeOptions, for the bytes of this piece
};

struct DecodeOptions {
  bool skip_special = true;  // leaves out control and unknown tokens
  // Whether the tokens begin a text: the space that encoding put in front is dropped then.
  bool at_text_start = true;
};

class Tokenizer {
 public:
  // Returns the bytes of index memory that open() needs for a section of `section_bytes`, of which
  // at least the header is given.
  // Fails  as open() does on a bad header
  static Result<std::size_t> index_bytes(ByteSpan header, std::uint64_t section_bytes);
  static Result<std::size_t> index_bytes(ByteSpan section) {
    return index_bytes(section, section.size());
  }

  // Checks the whole section and builds the index. Both spans must outlive the tokenizer.
  // Fails  kCorrupt or kUnsupported: an invalid or too new section; kInvalidArgument: too little
  // index
  //        memory
  static Result<Tokenizer> open(ByteSpan section, MutableByteSpan index_memory);

  // Appends the tokens of `text`.
  // Fails    kInvalidArgument when text has 2^31 bytes or more, or add_bos or add_eos is set for a
  //          model without that token; kUnsupported when an expression of the model needs too many
  //          steps on this text. `out` is unchanged then.
  // Threads  any
  Status encode(std::string_view text, const EncodeOptions& options,
                std::vector<TokenId>& out) const;

  // Appends the tokens of the joined texts of the pieces. Tokens may cross the borders of pieces,
  // but a control token is recognised only where all its bytes lie in pieces with parse_special.
  // options.parse_special has no effect.
  // Guarantees  pieces of equal parse_special give the result of encode() for the joined text
  // Fails       as encode()
  // Threads     any
  Status encode_pieces(std::span<const TextPiece> pieces, const EncodeOptions& options,
                       std::vector<TokenId>& out) const;

  // Appends the text of `tokens`, byte for byte; not always valid UTF-8 (see StreamDecoder).
  // Threads  any
  void decode(std::span<const TokenId> tokens, const DecodeOptions& options,
              std::string& out) const;

  // Appends the bytes of one token; nothing for a special token with `skip_special` or an id
  // outside the vocabulary. At most longest_token_bytes().
  void append_bytes(TokenId id, bool skip_special, std::string& out) const;

  // Returns the piece as stored ("<0x0A>", U+2581 for a space); empty outside the vocabulary.
  std::string_view token_text(TokenId id) const noexcept;
  // Returns the token with this piece, special ones included, or kNoToken. Takes time linear in the
  // vocabulary for special tokens.
  TokenId find_token(std::string_view text) const noexcept;

  std::uint32_t n_tokens() const noexcept { return section_.n_tokens(); }
  // With the space that a word of kWordPiece begins with.
  std::uint32_t longest_token_bytes() const noexcept {
    return section_.longest_token_bytes() + (kind() == TokenizerKind::kWordPiece ? 1 : 0);
  }
  TokenizerKind kind() const noexcept { return section_.kind(); }
  // The model's special tokens, kNoToken where it has none.
  TokenId bos() const noexcept { return section_.bos(); }
  TokenId eos() const noexcept { return section_.eos(); }
  TokenId pad() const noexcept { return section_.pad(); }
  TokenId unk() const noexcept { return section_.unk(); }
  bool adds_bos() const noexcept { return section_.has(kSectionAddBos); }
  bool adds_eos() const noexcept { return section_.has(kSectionAddEos); }
  bool applies_nfc() const noexcept { return section_.has(kSectionNfc); }
  // True when decoding a whole text drops the space that encoding put in front.
  bool strips_leading_space() const noexcept { return section_.has(kSectionStripLeadingSpace); }
  // True for the tokens that end a generation. Threads: any.
  bool is_stop(TokenId id) const noexcept;
  std::uint32_t n_stop_ids() const noexcept { return section_.n_stop_ids(); }
  TokenId stop_id(std::uint32_t index) const noexcept { return section_.stop_id(index); }
  // True for control and unknown tokens, which have no text, and for ids outside the vocabulary.
  bool is_special(TokenId id) const noexcept;
  bool is_control(TokenId id) const noexcept;

  // Returns the heap bytes of the compiled expressions.
  std::size_t heap_bytes() const noexcept { return steps_.code_bytes(); }

 private:
  struct Scratch;

  Tokenizer() = default;
  Status encode_segment(std::string_view text, bool at_start, SpecialMask mask, Scratch& scratch,
                        std::vector<TokenId>& out) const;
  Status encode_normalized(std::string_view text, bool at_start, Scratch& scratch,
                           std::vector<TokenId>& out) const;
  Status encode_text(std::string_view text, const SpecialMask& mask, bool at_start,
                     Scratch& scratch, std::vector<TokenId>& out) const;

  SectionView section_;
  TextSteps steps_;
  AddedMatcher added_;
  AddedMatcher added_normalized_;
  VocabIndex index_;
  BpeModel bpe_;
  WordPieces word_pieces_;  // instead, of kWordPiece
};

}  // namespace qsf

#endif  // QSF_TOKENIZER_TOKENIZER_H_
