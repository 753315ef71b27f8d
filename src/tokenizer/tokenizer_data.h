// SPDX-License-Identifier: MIT
//
// TokenizerData: a tokenizer as plain vectors, which importers fill and which is written as the
// tokenizer section of a .qsf file.
//
// This is the builder's side only: strings and vectors, no lookup. The engine never holds one; it
// uses the section's bytes in place (tokenizer/tokenizer.h). The bytes are
// docs/format-tokenizer.md.

#ifndef QSF_TOKENIZER_TOKENIZER_DATA_H_
#define QSF_TOKENIZER_TOKENIZER_DATA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace qsf {

using TokenId = std::uint32_t;
inline constexpr TokenId kNoToken = 0xFFFFFFFFU;

// How text becomes tokens. Values are part of the format.
enum class TokenizerKind : std::uint8_t {
  kByteBpe = 1,    // byte-level BPE: symbols are bytes, pairs merge by rank (GPT-2, Llama 3, Qwen2)
  kScoredBpe = 2,  // SentencePiece BPE: symbols are characters, pairs merge by the result's score
  kRankedBpe =
      3,  // symbols are characters, pairs merge by rank (tokenizer.json of Llama 2, Mistral)
  kWordPiece = 4,  // words, of which the longest token is taken from the front (BERT)
};

// What a token is. Values are part of the format and equal SentencePiece's and GGUF's.
enum class TokenType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,  // text is "<0xNN>"
};

struct VocabToken {
  std::string text;  // kByteBpe: the token's bytes; kWordPiece: ## and the bytes where the token
                     // continues a word; else the piece, U+2581 standing for a space
  TokenType type = TokenType::kNormal;
  float score = 0.0F;  // kScoredBpe alone
};

// One merge rule; its rank is its position in TokenizerData::merges.
struct MergeRule {
  TokenId left;
  TokenId right;
  TokenId result;  // text is left's followed by right's
};

// A string that is one token wherever it stands in a text.
struct AddedToken {
  std::string text;  // what is matched; with `normalized`, in the text after the normaliser
  TokenId id = kNoToken;
  bool special = false;     // matched only where EncodeOptions::parse_special allows
  bool normalized = false;  // matched after the normaliser instead of before it
  bool left_strip = false;  // takes the whitespace before it along
  bool right_strip = false;
  bool single_word = false;  // only where no word character touches it
};

// What one step of text preparation does. Values are part of the format.
enum class TextOp : std::uint8_t {
  kPrepend = 1,         // puts `text` in front of every non-empty segment
  kReplace = 2,         // replaces every `text` by `replacement`
  kCollapseSpaces = 3,  // drops leading and trailing spaces, makes runs of spaces one
  kSplit = 4,           // cuts into pieces by the expression `text` (PCRE2, UTF, UCP)
  // The parts of BERT's normaliser, see character_steps.h.
  kCleanText = 5,
  kSpaceIdeographs = 6,
  kStripMarks = 7,
  kLowercase = 8,
};

// Where in the order a step runs. Values are part of the format.
enum class TextStage : std::uint8_t {
  kNormalizer = 0,    // before added tokens with `normalized` are looked for
  kPreTokenizer = 1,  // after; only here are splits allowed, and no other step after a split
};

// What a split does with its matches. Values are part of the format.
enum class SplitBehavior : std::uint8_t {
  kIsolated = 0,
  kRemoved = 1,
  kMergedWithPrevious = 2,
  kMergedWithNext = 3,
  kContiguous = 4,
};

struct TextStep {
  TextOp op = TextOp::kSplit;
  TextStage stage = TextStage::kPreTokenizer;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool first_only = false;      // kPrepend: only for the segment at the start of the text
  bool unless_present = false;  // kPrepend: not where the segment begins with `text`
  bool invert = false;          // kSplit: what does not match is the match
  std::string text;
  std::string replacement;
};

struct TokenizerData {
  TokenizerKind kind = TokenizerKind::kByteBpe;
  bool add_bos = false;  // the model's rule; EncodeOptions may override it
  bool add_eos = false;
  bool byte_fallback = false;  // unknown characters become byte tokens (kScoredBpe, kRankedBpe)
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool strip_leading_space = false;  // decoding a whole text drops one space at its start
  bool unescape_spaces = false;      // U+2581 in a piece decodes to a space
  bool nfc = false;                  // brings text into Unicode normal form C before other steps
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId pad = kNoToken;
  TokenId unk = kNoToken;
  std::vector<TokenId> stop_ids;  // tokens that end a generation; eos is usually one of them
  std::vector<VocabToken> tokens;
  std::vector<MergeRule> merges;
  std::vector<AddedToken> added;
  std::vector<TextStep> steps;
};

// Returns the bytes of a tokenizer section. Order of `added` does not matter; of several entries
// with one text and `normalized`, the first is kept.
// Guarantees  Tokenizer::open accepts the bytes; the same data gives the same bytes
// Fails       kInvalidArgument or kUnsupported, naming the token, merge or step that is wrong
// Threads     any
Result<std::vector<std::byte>> write_tokenizer_section(const TokenizerData& data);

}  // namespace qsf

#endif  // QSF_TOKENIZER_TOKENIZER_DATA_H_
