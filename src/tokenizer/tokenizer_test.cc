// SPDX-License-Identifier: MIT
//
// Tests of the tokenizer library on vocabularies made by hand: merging, text preparation, any bytes
// in, whole UTF-8 out, long texts, and sections that are damaged on purpose.

#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace qsf {
namespace {

constexpr const char* kWords = "'s|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// A section with the memory of its index.
struct Opened {
  std::vector<std::byte> section;
  std::vector<std::byte> index;
  std::unique_ptr<Tokenizer> tokenizer;

  const Tokenizer& operator*() const { return *tokenizer; }
  const Tokenizer* operator->() const { return tokenizer.get(); }
};

Result<Opened> open_section(std::vector<std::byte> section) {
  Opened opened;
  opened.section = std::move(section);
  QSF_ASSIGN_OR_RETURN(const std::size_t n_bytes, Tokenizer::index_bytes(opened.section));
  opened.index.resize(n_bytes);
  QSF_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::open(opened.section, opened.index));
  opened.tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer));
  return opened;
}

Opened open_data(const TokenizerData& data) {
  auto section = write_tokenizer_section(data);
  EXPECT_TRUE(section.has_value()) << section.error().message();
  auto opened = open_section(std::move(*section));
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  return std::move(*opened);
}

TokenId add(TokenizerData& data, const std::string& text, TokenType type = TokenType::kNormal,
            float score = 0.0F) {
  data.tokens.push_back({text, type, score});
  return static_cast<TokenId>(data.tokens.size() - 1);
}

void add_special(TokenizerData& data, const std::string& text, bool special = true) {
  AddedToken added;
  added.text = text;
  added.id = add(data, text, special ? TokenType::kControl : TokenType::kUserDefined);
  added.special = special;
  data.added.push_back(added);
}

TokenId find(const TokenizerData& data, const std::string& text) {
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].text == text) return id;
  }
  return kNoToken;
}

void merge(TokenizerData& data, const std::string& left, const std::string& right) {
  const TokenId a = find(data, left);
  const TokenId b = find(data, right);
  const TokenId known = find(data, left + right);
  data.merges.push_back({a, b, known == kNoToken ? add(data, left + right) : known});
}

// All 256 bytes, a few English merges, one control and one user-defined token.
TokenizerData byte_level_data() {
  TokenizerData data;
  for (int i = 0; i < 256; ++i) add(data, std::string(1, static_cast<char>(i)));
  merge(data, "h", "e");
  merge(data, "l", "l");
  merge(data, "he", "ll");
  merge(data, "hell", "o");
  merge(data, " ", "hello");
  merge(data, "a", "a");
  merge(data, "aa", "aa");
  merge(data, "\xC3", "\xA9");
  add_special(data, "<|end|>");
  add_special(data, "<tool>", false);
  data.eos = find(data, "<|end|>");
  data.bos = data.eos;
  data.stop_ids.push_back(data.eos);
  TextStep step;
  step.text = kWords;
  data.steps.push_back(step);
  return data;
}

// SentencePiece-like, with byte fallback and U+2581 for spaces.
TokenizerData scored_data() {
  TokenizerData data;
  data.kind = TokenizerKind::kScoredBpe;
  data.byte_fallback = true;
  data.unescape_spaces = true;
  data.strip_leading_space = true;
  data.unk = add(data, "<unk>", TokenType::kUnknown);
  add_special(data, "<s>");
  add_special(data, "</s>");
  data.bos = 1;
  data.eos = 2;
  data.add_bos = true;
  for (int i = 0; i < 256; ++i) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(i));
    add(data, text, TokenType::kByte);
  }
  float score = 0.0F;
  for (const char* piece :
       {"\xE2\x96\x81\xE2\x96\x81", "he", "ll", "hell", "hello", "\xE2\x96\x81hello", "aa", "aaaa",
        "\xE2\x96\x81", "h", "e", "l", "o", "a"}) {
    add(data, piece, TokenType::kNormal, score -= 1.0F);
  }
  TextStep step;
  step.stage = TextStage::kNormalizer;
  step.op = TextOp::kPrepend;
  step.text = " ";
  data.steps.push_back(step);
  step.op = TextOp::kReplace;
  step.replacement = "\xE2\x96\x81";
  data.steps.push_back(step);
  return data;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                EncodeOptions options = {}) {
  std::vector<TokenId> ids;
  const Status status = tokenizer.encode(text, options, ids);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::string> texts;
  for (const TokenId id : ids) texts.emplace_back(tokenizer.token_text(id));
  return texts;
}

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  EXPECT_TRUE(tokenizer.encode(text, {}, ids).ok());
  std::string out;
  tokenizer.decode(ids, {}, out);
  return out;
}

std::string encode_utf8(std::uint32_t c) {
  std::string text;
  if (c < 0x80) return {static_cast<char>(c)};
  const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  text.push_back(static_cast<char>((0xF00U >> n & 0xFFU) | c >> (6 * (n - 1))));
  for (int i = n - 2; i >= 0; --i)
    text.push_back(static_cast<char>(0x80U | (c >> (6 * i) & 0x3FU)));
  return text;
}

// Valid UTF-8 from all planes, with runs of spaces and letters of the small vocabularies.
std::string random_text(Rng& rng, bool byte_level) {
  std::string text;
  for (std::uint32_t i = rng.below(30); i > 0; --i) {
    switch (rng.below(6)) {
      case 0: text.append(rng.below(4), ' '); break;
      case 1: text += "hello"; break;
      case 2: text.append(rng.below(9), 'a'); break;
      case 3: text.push_back(static_cast<char>(rng.below(0x80))); break;
      case 4: text += encode_utf8(0xA0 + rng.below(0x2000)); break;
      default: {
        std::uint32_t c = rng.below(0x110000);
        if (c >= 0xD800 && c < 0xE000) c -= 0x800;
        text += encode_utf8(c);
      }
    }
  }
  // U+2581 is a space to SentencePiece; nothing can tell them apart afterwards.
  while (!byte_level && text.find("\xE2\x96\x81") != std::string::npos) {
    text.erase(text.find("\xE2\x96\x81"), 3);
  }
  return text;
}

using Pieces = std::vector<std::string>;

TEST(Utf8Test, AcceptsExactlyRfc3629) {
  const auto valid = [](std::string_view text) { return valid_utf8_end(text, 0) == text.size(); };
  for (std::uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = encode_utf8(c);
    const Utf8Char decoded = decode_utf8(text, 0);
    ASSERT_TRUE(decoded.valid && decoded.code_point == c && decoded.n_bytes == text.size()) << c;
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82", "a\xC3("}) {
    EXPECT_FALSE(valid(bad)) << bad;
  }
  EXPECT_TRUE(decode_utf8("\xE2\x82", 0).incomplete);
  EXPECT_EQ(decode_utf8("\xE2\x82", 0).n_bytes, 2);
  EXPECT_FALSE(decode_utf8("\xE2(", 0).incomplete);
}

TEST(ByteLevelTest, MergesByRankInsidePieces) {
  const Opened tokenizer = open_data(byte_level_data());
  EXPECT_EQ(pieces(*tokenizer, "hello hello"), (Pieces{"hello", " hello"}));
  EXPECT_EQ(pieces(*tokenizer, "helhe"), (Pieces{"he", "l", "he"}));
  EXPECT_EQ(pieces(*tokenizer, "aaaaaaa"), (Pieces{"aaaa", "aa", "a"}));
  EXPECT_EQ(pieces(*tokenizer, "\xC3\xA9"), (Pieces{"\xC3\xA9"}));
  EXPECT_EQ(pieces(*tokenizer, "hel1lo"), (Pieces{"he", "l", "1", "l", "o"}));
  EXPECT_EQ(pieces(*tokenizer, ""), Pieces{});
}

TEST(ByteLevelTest, SpecialTokensCountOnlyWhereAllowed) {
  const Opened tokenizer = open_data(byte_level_data());
  EXPECT_EQ(pieces(*tokenizer, "aa<|end|><tool>"), (Pieces{"aa", "<|end|>", "<tool>"}));
  EncodeOptions plain;
  plain.parse_special = false;
  EXPECT_EQ(pieces(*tokenizer, "<|end|>", plain), (Pieces{"<", "|", "e", "n", "d", "|", ">"}));
  EXPECT_EQ(pieces(*tokenizer, "<tool>", plain), (Pieces{"<tool>"}));
  EncodeOptions both;
  both.add_bos = true;
  both.add_eos = true;
  EXPECT_EQ(pieces(*tokenizer, "a", both), (Pieces{"<|end|>", "a", "<|end|>"}));
  EXPECT_TRUE(tokenizer->is_stop(tokenizer->find_token("<|end|>")));
  EXPECT_TRUE(tokenizer->is_control(tokenizer->eos()));
  EXPECT_FALSE(tokenizer->is_control(0));
  EXPECT_TRUE(tokenizer->is_special(tokenizer->n_tokens()));
  EXPECT_EQ(tokenizer->token_text(tokenizer->n_tokens()), "");
}

TEST(ByteLevelTest, AskingForATokenTheModelLacksFails) {
  TokenizerData data = byte_level_data();
  data.bos = kNoToken;
  const Opened tokenizer = open_data(data);
  EncodeOptions options;
  options.add_bos = true;
  std::vector<TokenId> ids{7};
  EXPECT_EQ(tokenizer->encode("a", options, ids).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ids, std::vector<TokenId>{7});
}

TEST(ScoredTest, MergesByScoreAndFallsBackToBytes) {
  const Opened tokenizer = open_data(scored_data());
  EXPECT_EQ(pieces(*tokenizer, "hello"), (Pieces{"<s>", "\xE2\x96\x81hello"}));
  EXPECT_EQ(pieces(*tokenizer, "  hello"),
            (Pieces{"<s>", "\xE2\x96\x81\xE2\x96\x81", "\xE2\x96\x81hello"}));
  EXPECT_EQ(pieces(*tokenizer, "\xC3\xA9"), (Pieces{"<s>", "\xE2\x96\x81", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(pieces(*tokenizer, "\xFF"), (Pieces{"<s>", "\xE2\x96\x81", "<0xFF>"}));
  EXPECT_EQ(pieces(*tokenizer, ""), Pieces{"<s>"});
}

TEST(ScoredTest, UnusedPiecesAreTakenApartAgain) {
  TokenizerData data = scored_data();
  data.tokens[find(data, "hello")].type = TokenType::kUnused;
  data.tokens[find(data, "hell")].type = TokenType::kUnused;
  data.steps.clear();
  data.add_bos = false;
  EXPECT_EQ(pieces(*open_data(data), "hello"), (Pieces{"he", "ll", "o"}));
}

TEST(ScoredTest, UnknownCharactersWithoutFallback) {
  TokenizerData data = scored_data();
  data.byte_fallback = false;
  data.add_bos = false;
  EXPECT_EQ(pieces(*open_data(data), "\xC3\xA9zz"),
            (Pieces{"\xE2\x96\x81", "<unk>", "<unk>", "<unk>"}));
  data.fuse_unknown = true;
  EXPECT_EQ(pieces(*open_data(data), "\xC3\xA9zz"), (Pieces{"\xE2\x96\x81", "<unk>"}));
  EXPECT_EQ(pieces(*open_data(data), "zaz"), (Pieces{"\xE2\x96\x81", "<unk>", "a", "<unk>"}));
}

TEST(ScoredTest, UnknownCharactersNeverBecomeAControlToken) {
  TokenizerData data = byte_level_data();
  data.tokens[0xFF].type = TokenType::kUnused;
  data.tokens[0xFF].text.clear();
  data.unk = add(data, "<unk>", TokenType::kUnknown);
  EXPECT_EQ(pieces(*open_data(data), "a\xFF"), (Pieces{"a", "<unk>"}));
  TokenizerData stops = data;
  stops.stop_ids.push_back(data.unk);
  EXPECT_EQ(pieces(*open_data(stops), "a\xFF"), Pieces{"a"});
  data.unk = data.eos;
  EXPECT_EQ(pieces(*open_data(data), "a\xFF"), Pieces{"a"});
}

TEST(AddedTokenTest, StripsAndStandsAlone) {
  TokenizerData data = byte_level_data();
  add_special(data, "<l>");
  data.added.back().left_strip = true;
  add_special(data, "<r>");
  data.added.back().right_strip = true;
  add_special(data, "word");
  data.added.back().single_word = true;
  add_special(data, "<tool>s", false);
  const Opened tokenizer = open_data(data);
  EXPECT_EQ(pieces(*tokenizer, "a \n <l> a"), (Pieces{"a", "<l>", " ", "a"}));
  EXPECT_EQ(pieces(*tokenizer, "a <r> \xE3\x80\x80 a"), (Pieces{"a", " ", "<r>", "a"}));
  EXPECT_EQ(pieces(*tokenizer, "word-word"), (Pieces{"word", "-", "word"}));
  EXPECT_EQ(pieces(*tokenizer, "words"), (Pieces{"w", "o", "r", "d", "s"}));
  EXPECT_EQ(pieces(*tokenizer, "\xC3\xA9word"), (Pieces{"\xC3\xA9", "w", "o", "r", "d"}));
  EXPECT_EQ(pieces(*tokenizer, "<tool>s<tool>"), (Pieces{"<tool>s", "<tool>"}));
}

// Encodes parts in turn trusted and not, beginning with `trusted`.
Pieces encode_parts(const Tokenizer& tokenizer, const Pieces& parts, bool trusted) {
  std::vector<TextPiece> text;
  for (const std::string& part : parts) {
    text.push_back({part, trusted});
    trusted = !trusted;
  }
  std::vector<TokenId> ids;
  EXPECT_TRUE(tokenizer.encode_pieces(text, {}, ids).ok());
  Pieces texts;
  for (const TokenId id : ids) texts.emplace_back(tokenizer.token_text(id));
  return texts;
}

TEST(EncodePiecesTest, TokensCrossBordersAndControlTokensDoNot) {
  const Opened tokenizer = open_data(byte_level_data());
  EXPECT_EQ(encode_parts(*tokenizer, {"he", "llo"}, true), Pieces{"hello"});
  EXPECT_EQ(encode_parts(*tokenizer, {"<|end|>", "<|end|>", "<|end|>"}, true),
            (Pieces{"<|end|>", "<", "|", "e", "n", "d", "|", ">", "<|end|>"}));
  const Pieces spelled{"<", "|", "e", "n", "d", "|", ">"};
  EXPECT_EQ(encode_parts(*tokenizer, {"<|en", "d|>"}, true), spelled);
  EXPECT_EQ(encode_parts(*tokenizer, {"<|en", "d|>"}, false), spelled);
  EXPECT_EQ(encode_parts(*tokenizer, {"<|en", "", "d|>"}, true), Pieces{"<|end|>"});
  EXPECT_EQ(encode_parts(*tokenizer, {"<|e", "n", "d|>"}, true), spelled);
  // Added tokens that are no control tokens are text, wherever they come from.
  EXPECT_EQ(encode_parts(*tokenizer, {"<to", "ol>"}, true), Pieces{"<tool>"});
  EXPECT_EQ(encode_parts(*tokenizer, {}, true), Pieces{});
  EXPECT_EQ(encode_parts(*tokenizer, {"", ""}, true), Pieces{});
}

TEST(EncodePiecesTest, WhatStraddlesABorderHidesNoTokenBehindIt) {
  TokenizerData data = byte_level_data();
  add_special(data, "<a>");
  add_special(data, "<a><b>");
  add_special(data, "<b>");
  const Opened tokenizer = open_data(data);
  EXPECT_EQ(encode_parts(*tokenizer, {"<a>", "<b>"}, true), (Pieces{"<a>", "<", "b", ">"}));
  EXPECT_EQ(encode_parts(*tokenizer, {"<a>", "<b>"}, false), (Pieces{"<", "a", ">", "<b>"}));
  EXPECT_EQ(encode_parts(*tokenizer, {"<a", "><b>"}, true), (Pieces{"<", "a", ">", "<", "b", ">"}));
  EXPECT_EQ(encode_parts(*tokenizer, {"<a", "><b>"}, false), (Pieces{"<", "a", ">", "<b>"}));
}

TEST(EncodePiecesTest, MarksFollowTheNormaliser) {
  TokenizerData data = scored_data();
  data.add_bos = false;
  add_special(data, "\xE2\x96\x81<x\xE2\x96\x81y>");
  data.added.back().normalized = true;
  add_special(data, "y\xE2\x96\x81<x\xE2\x96\x81y>");
  data.added.back().normalized = true;
  TextStep collapse;
  collapse.op = TextOp::kCollapseSpaces;
  collapse.stage = TextStage::kNormalizer;
  data.steps.insert(data.steps.begin(), collapse);
  const Opened tokenizer = open_data(data);
  const std::string token = "\xE2\x96\x81<x\xE2\x96\x81y>";
  const auto found = [&](const Pieces& parts, bool trusted) {
    const Pieces all = encode_parts(*tokenizer, parts, trusted);
    return std::count(all.begin(), all.end(), token);
  };
  EXPECT_EQ(found({"<x y>"}, true), 1);
  EXPECT_EQ(found({"<x y>"}, false), 0);
  EXPECT_EQ(found({"<x   y>", "hello"}, true), 1);
  EXPECT_EQ(found({"  hello", " <x   y>"}, false), 1);
  EXPECT_EQ(found({"<x ", " ", "y>"}, true), 0);
  EXPECT_EQ(found({"<x", " ", "y>"}, true), 0);
  EXPECT_EQ(found({"<x y", ">"}, true), 0);
  EXPECT_EQ(found({"hello ", "<x y>"}, false), 0);  // the space in front is of the token
  EXPECT_EQ(found({"   ", "<x y>"}, false), 1);     // dropped, and put in front anew
}

TEST(EncodePiecesTest, MergesMakeNoControlToken) {
  TokenizerData data = byte_level_data();
  data.tokens[find(data, "hell")].type = TokenType::kControl;
  EXPECT_EQ(pieces(*open_data(data), "hello"), (Pieces{"he", "ll", "o"}));
}

TEST(RoundTripTest, RandomTextFromAllPlanes) {
  const Opened bytes = open_data(byte_level_data());
  const Opened scored = open_data(scored_data());
  Rng rng(20240611);
  for (int i = 0; i < 3000; ++i) {
    const std::string any = random_text(rng, true);
    EXPECT_EQ(round_trip(*bytes, any), any);
    const std::string text = random_text(rng, false);
    EXPECT_EQ(round_trip(*scored, text), text);
  }
}

TEST(RoundTripTest, InvalidUtf8IsKeptByteForByte) {
  const Opened bytes = open_data(byte_level_data());
  const Opened scored = open_data(scored_data());
  Rng rng(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text = random_text(rng, false);
    for (std::uint32_t n = rng.below(6) + 1; n > 0; --n) {
      text.insert(rng.below(static_cast<std::uint32_t>(text.size()) + 1), 1,
                  static_cast<char>(0x80 + rng.below(128)));
    }
    EXPECT_EQ(round_trip(*bytes, text), text);
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;
    EXPECT_EQ(round_trip(*scored, text), text);
  }
  EXPECT_EQ(pieces(*bytes, "he\xFFhe"), (Pieces{"he", "\xFF", "he"}));
}

TEST(StreamDecoderTest, HoldsBackUnfinishedCharacters) {
  const Opened tokenizer = open_data(byte_level_data());
  StreamDecoder decoder(*tokenizer, {});
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.push(tokenizer->eos()), "");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push('a'),
            "\xEF\xBF\xBD"
            "a");  // what was held back cannot become whole
  EXPECT_EQ(decoder.push(0x80), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push(1'000'000), "");
}

TEST(StreamDecoderTest, EveryStepIsValidAndTheWholeIsTheText) {
  const Opened tokenizer = open_data(scored_data());
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random_text(rng, false);
    std::vector<TokenId> ids;
    ASSERT_TRUE(tokenizer->encode(text, {}, ids).ok());
    StreamDecoder decoder(*tokenizer, {});
    std::string whole;
    for (const TokenId id : ids) {
      const std::string_view ready = decoder.push(id);
      EXPECT_EQ(valid_utf8_end(ready, 0), ready.size());
      whole += ready;
    }
    EXPECT_EQ(decoder.finish(), "");
    EXPECT_EQ(whole, text);
  }
}

TEST(StreamDecoderTest, TheFirstSpaceGoesOnlyAtTheStartOfAText) {
  const Opened tokenizer = open_data(scored_data());
  const TokenId hello = tokenizer->find_token("\xE2\x96\x81hello");
  StreamDecoder whole(*tokenizer, {});
  EXPECT_EQ(whole.push(tokenizer->bos()), "");
  EXPECT_EQ(whole.push(hello), "hello");
  EXPECT_EQ(whole.push(hello), " hello");
  DecodeOptions continued;
  continued.at_text_start = false;
  StreamDecoder middle(*tokenizer, continued);
  EXPECT_EQ(middle.push(hello), " hello");
}

// Measured in development at 0.04 to 0.54 s each (g++ 12 -O2); quadratic code would take minutes.
// The limit leaves room for sanitizers.
TEST(LongTextTest, AMegabyteIsEncodedInTime) {
  TokenizerData with_trailing = byte_level_data();
  with_trailing.steps[0].text = "\\s+$";
  const Opened tokenizers[] = {open_data(byte_level_data()), open_data(scored_data()),
                               open_data(with_trailing)};
  const std::size_t n = 1'000'000;
  std::string mixed;
  while (mixed.size() < n) mixed += "hello aaa 123 \xF0\x9F\x98\x80\n";
  const std::string texts[] = {std::string(n, 'a'),
                               std::string(n, ' '),
                               std::string(n, ' ') + "x",
                               std::string(n, '\xFF'),
                               std::string(n, '\n'),
                               std::string(n, '<'),
                               mixed};
  for (const Opened& tokenizer : tokenizers) {
    for (const std::string& text : texts) {
      if (&tokenizer == &tokenizers[2] && text[0] != ' ') continue;
      const auto begin = std::chrono::steady_clock::now();
      std::vector<TokenId> ids;
      EXPECT_TRUE(tokenizer->encode(text, {}, ids).ok());
      std::string out;
      tokenizer->decode(ids, {}, out);
      EXPECT_TRUE(out == text);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(seconds.count(), 20.0) << text.substr(0, 8);
    }
  }
}

Pieces split_with(std::string_view expression, SplitBehavior behavior, std::string_view text,
                  std::uint8_t flags = 0) {
  StepView step{TextOp::kSplit, TextStage::kPreTokenizer, behavior, flags, expression, {}};
  const auto splitter = Splitter::compile(step);
  EXPECT_TRUE(splitter.has_value()) << splitter.error().message();
  SplitScratch scratch;
  std::vector<Piece> out;
  const Piece whole{0, static_cast<std::uint32_t>(text.size())};
  EXPECT_TRUE(splitter->split(text, whole, scratch, out).ok());
  Pieces texts;
  for (const Piece piece : out)
    texts.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  return texts;
}

TEST(SplitterTest, DoesWithMatchesWhatTheBehaviorSays) {
  const std::string_view text = "-ab-cd--ef-";
  EXPECT_EQ(split_with("-", SplitBehavior::kIsolated, text),
            (Pieces{"-", "ab", "-", "cd", "-", "-", "ef", "-"}));
  EXPECT_EQ(split_with("-", SplitBehavior::kRemoved, text), (Pieces{"ab", "cd", "ef"}));
  EXPECT_EQ(split_with("-", SplitBehavior::kMergedWithPrevious, text),
            (Pieces{"-", "ab-", "cd-", "-", "ef-"}));
  EXPECT_EQ(split_with("-", SplitBehavior::kMergedWithNext, text),
            (Pieces{"-ab", "-cd", "-", "-ef", "-"}));
  EXPECT_EQ(split_with("-", SplitBehavior::kContiguous, text),
            (Pieces{"-", "ab", "-", "cd", "--", "ef", "-"}));
  EXPECT_EQ(split_with("[a-z]+", SplitBehavior::kRemoved, text, kStepInvert),
            (Pieces{"ab", "cd", "ef"}));
  EXPECT_EQ(split_with("(?=c)", SplitBehavior::kIsolated, text), (Pieces{"-ab-", "cd--ef-"}));
}

TEST(SplitterTest, HopelessExpressionsEndInAStatusOrWindows) {
  TokenizerData data = byte_level_data();
  data.steps[0].text = "(?:a+)+b";
  const Opened tokenizer = open_data(data);
  std::vector<TokenId> ids;
  const Status status = tokenizer->encode(std::string(5000, 'a'), {}, ids);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnsupported) << status.message();
  data.steps[0].text = "(";
  EXPECT_EQ(write_tokenizer_section(data).error().code(), StatusCode::kUnsupported);
  data.steps[0].text = "\\C";
  EXPECT_EQ(write_tokenizer_section(data).error().code(), StatusCode::kUnsupported);
}

TEST(TextStepsTest, GrowthIsBounded) {
  TokenizerData data = scored_data();
  for (int i = 0; i < 20; ++i) {
    TextStep step;
    step.op = TextOp::kReplace;
    step.stage = TextStage::kNormalizer;
    step.text = "a";
    step.replacement = "aa";
    data.steps.push_back(step);
  }
  const Opened tokenizer = open_data(data);
  std::vector<TokenId> ids;
  EXPECT_TRUE(tokenizer->encode("hello", {}, ids).ok());
  EXPECT_EQ(tokenizer->encode("a", {}, ids).code(), StatusCode::kUnsupported);
}

TEST(WriterTest, RefusesWhatTheReaderWould) {
  const auto refused = [](const TokenizerData& data) {
    return !write_tokenizer_section(data).has_value();
  };
  TokenizerData data = byte_level_data();
  EXPECT_FALSE(refused(data));
  EXPECT_EQ(write_tokenizer_section(data).value(), write_tokenizer_section(data).value());
  data.merges.push_back(data.merges[0]);
  EXPECT_TRUE(refused(data));
  data = byte_level_data();
  data.merges[0].result = 0;
  EXPECT_TRUE(refused(data));
  data = byte_level_data();
  data.added[0].text.assign(600, 'x');
  EXPECT_TRUE(refused(data));
  data = byte_level_data();
  data.eos = 100000;
  EXPECT_TRUE(refused(data));
  data = scored_data();
  data.tokens[3].text = "<0x0>";
  EXPECT_TRUE(refused(data));
  data = scored_data();
  data.tokens[5].score = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused(data));
  EXPECT_TRUE(refused(TokenizerData{}));
}

TEST(SectionTest, TooLittleIndexMemoryIsAnError) {
  const auto section = write_tokenizer_section(byte_level_data()).value();
  std::vector<std::byte> memory(Tokenizer::index_bytes(section).value() - 1);
  EXPECT_EQ(Tokenizer::open(section, memory).error().code(), StatusCode::kInvalidArgument);
}

// What memory a tokenizer takes is known before its section is read.
TEST(SectionTest, TheHeaderAloneTellsTheIndexMemory) {
  const auto section = write_tokenizer_section(byte_level_data()).value();
  const ByteSpan header = ByteSpan(section).first(kSectionHeaderBytes);
  EXPECT_EQ(Tokenizer::index_bytes(header, section.size()).value(),
            Tokenizer::index_bytes(section).value());
  EXPECT_FALSE(Tokenizer::index_bytes(header, section.size() - 1).has_value());
  EXPECT_FALSE(Tokenizer::index_bytes(header.first(63), section.size()).has_value());
}

void expect_harmless(std::vector<std::byte> section) {
  auto opened = open_section(std::move(section));
  if (!opened) return;
  std::vector<TokenId> ids;
  // A changed expression or id may refuse the text; it may not break anything.
  static_cast<void>((*opened)->encode("hello <tool> a\xFF\xC3\xA9 <|end|>", {}, ids).ok());
  std::string out;
  for (TokenId id = 0; id < (*opened)->n_tokens() + 2; ++id)
    (*opened)->append_bytes(id, false, out);
  StreamDecoder decoder(**opened, {});
  for (const TokenId id : ids) EXPECT_LE(decoder.push(id).size(), 3U * 65538U);
}

TEST(SectionTest, EveryPrefixFailsAndEveryChangedByteIsHarmless) {
  for (const TokenizerData& data : {byte_level_data(), scored_data()}) {
    const auto section = write_tokenizer_section(data).value();
    for (std::size_t n = 0; n < section.size(); ++n) {
      EXPECT_FALSE(open_section({section.begin(), section.begin() + static_cast<std::ptrdiff_t>(n)})
                       .has_value());
    }
    std::vector<std::byte> longer = section;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(open_section(longer).has_value());
    Rng rng(11);
    for (std::size_t i = 0; i < section.size(); ++i) {
      for (const std::uint32_t change : {1U, 0x80U, 0xFFU, rng.below(255) + 1}) {
        std::vector<std::byte> changed = section;
        changed[i] ^= static_cast<std::byte>(change);
        expect_harmless(std::move(changed));
      }
    }
  }
}

// testdata/tokenizer/section/v1.bin is the example of docs/format-tokenizer.md. It is read for
// ever.
TEST(SectionTest, TheFormatsExampleIsWrittenAndReadByteForByte) {
  TokenizerData data;
  data.kind = TokenizerKind::kRankedBpe;
  data.byte_fallback = true;
  data.unescape_spaces = true;
  for (const char* text : {"a", "b", "ab"}) add(data, text);
  add(data, "<0x0A>", TokenType::kByte);
  add_special(data, "</s>");
  data.merges.push_back({0, 1, 2});
  data.eos = 4;
  data.stop_ids.push_back(4);
  TextStep step;
  step.text = "\\d";
  data.steps.push_back(step);
  std::ifstream in(std::string(QSF_SOURCE_DIR) + "/testdata/tokenizer/section/v1.bin",
                   std::ios::binary);
  const std::string golden(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(as_text(write_tokenizer_section(data).value()), golden);
  const ByteSpan bytes = as_bytes(golden);
  auto tokenizer = open_section({bytes.begin(), bytes.end()});
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  EXPECT_EQ(pieces(**tokenizer, "aab\n</s>1ab"), (Pieces{"a", "ab", "<0x0A>", "</s>", "ab"}));
}

TEST(SectionTest, NewerVersionsAndUnknownFlagsAreUnsupported) {
  auto section = write_tokenizer_section(byte_level_data()).value();
  section[4] = std::byte{2};
  EXPECT_EQ(open_section(section).error().code(), StatusCode::kUnsupported);
  section[4] = std::byte{1};
  section[9] = std::byte{0x80};
  EXPECT_EQ(open_section(section).error().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace qsf
