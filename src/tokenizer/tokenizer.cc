// SPDX-License-Identifier: MIT

#include "tokenizer/tokenizer.h"

#include <utility>

namespace qsf {

namespace {

constexpr std::size_t kMaxTextBytes = (std::size_t{1} << 31) - 1;
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

struct MarkedText {
  std::string_view text;
  SpecialMask mask;
};

// Returns the pieces as one text, which lies in `joined` and `marks` unless it is a single piece.
MarkedText join_pieces(std::span<const TextPiece> pieces, std::string& joined, std::string& marks) {
  if (pieces.size() == 1) return {pieces[0].text, SpecialMask(pieces[0].parse_special)};
  bool parsed = false;
  bool unparsed = false;
  for (const TextPiece& piece : pieces) {
    joined.append(piece.text);
    if (!piece.text.empty()) (piece.parse_special ? parsed : unparsed) = true;
  }
  if (!parsed || !unparsed) return {joined, SpecialMask(parsed)};
  for (const TextPiece& piece : pieces) {
    marks.append(piece.text.size(),
                 piece.parse_special ? SpecialMask::kMarked : SpecialMask::kUnmarked);
  }
  return {joined, SpecialMask(marks)};
}

}  // namespace

struct Tokenizer::Scratch {
  TextScratch text;
  BpeScratch bpe;
  std::string joined;
  std::string marks;
  std::string normalized;
  std::string normalized_marks;
  std::string prepared;
  std::vector<Segment> segments;
  std::vector<Piece> pieces;
  std::string word;
};

Result<std::size_t> Tokenizer::index_bytes(ByteSpan header, std::uint64_t section_bytes) {
  QSF_ASSIGN_OR_RETURN(const SectionView view, SectionView::parse_header(header, section_bytes));
  return VocabIndex::bytes_needed(view);
}

Result<Tokenizer> Tokenizer::open(ByteSpan section, MutableByteSpan index_memory) {
  Tokenizer tokenizer;
  QSF_ASSIGN_OR_RETURN(tokenizer.section_, SectionView::parse(section));
  const SectionView& view = tokenizer.section_;
  QSF_ASSIGN_OR_RETURN(tokenizer.index_, VocabIndex::build(view, index_memory));
  QSF_ASSIGN_OR_RETURN(tokenizer.steps_, TextSteps::create(view));
  tokenizer.added_ = AddedMatcher(view, /*normalized=*/false);
  tokenizer.added_normalized_ = AddedMatcher(view, /*normalized=*/true);
  tokenizer.bpe_ = BpeModel(view, tokenizer.index_);
  tokenizer.word_pieces_ = WordPieces(view, tokenizer.index_);
  return tokenizer;
}

Status Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                         std::vector<TokenId>& out) const {
  const TextPiece whole{text, options.parse_special};
  return encode_pieces({&whole, 1}, options, out);
}

Status Tokenizer::encode_pieces(std::span<const TextPiece> pieces, const EncodeOptions& options,
                                std::vector<TokenId>& out) const {
  const bool add_bos = options.add_bos.value_or(adds_bos());
  const bool add_eos = options.add_eos.value_or(adds_eos());
  std::size_t n_bytes = 0;
  for (const TextPiece& piece : pieces) {
    if (piece.text.size() > kMaxTextBytes - n_bytes) {
      return invalid_argument("tokenizer: the text has more than %zu bytes", kMaxTextBytes);
    }
    n_bytes += piece.text.size();
  }
  if ((add_bos && bos() == kNoToken) || (add_eos && eos() == kNoToken)) {
    return invalid_argument("tokenizer: cannot add %s: this model has no such token",
                            add_bos && bos() == kNoToken ? "a BOS token" : "an EOS token");
  }
  const std::size_t before = out.size();
  if (add_bos) out.push_back(bos());
  Scratch scratch;
  const MarkedText marked = join_pieces(pieces, scratch.joined, scratch.marks);
  Status status = encode_text(marked.text, marked.mask, options.at_text_start, scratch, out);
  if (!status.ok()) {
    out.resize(before);
    return status;
  }
  if (add_eos) out.push_back(eos());
  return ok_status();
}

Status Tokenizer::encode_text(std::string_view text, const SpecialMask& mask, bool at_start,
                              Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<Segment> segments;
  added_.split(text, mask, segments);
  for (const Segment& segment : segments) {
    if (segment.id != kNoToken) {
      out.push_back(segment.id);
      continue;
    }
    const Piece piece = segment.piece;
    QSF_RETURN_IF_ERROR(encode_segment(text.substr(piece.begin, piece.end - piece.begin),
                                       at_start && piece.begin == 0,
                                       mask.part(piece.begin, piece.end), scratch, out));
  }
  return ok_status();
}

// Normalises text between added tokens and looks for those that are matched only then.
Status Tokenizer::encode_segment(std::string_view text, bool at_start, SpecialMask mask,
                                 Scratch& scratch, std::vector<TokenId>& out) const {
  if (steps_.transforms(TextStage::kNormalizer)) {
    const bool follow_marks = mask.is_mixed() && !added_normalized_.empty();
    scratch.normalized.assign(text);
    if (follow_marks) scratch.normalized_marks.assign(mask.marks());
    QSF_RETURN_IF_ERROR(steps_.transform(TextStage::kNormalizer, at_start, scratch.text,
                                         scratch.normalized,
                                         follow_marks ? &scratch.normalized_marks : nullptr));
    text = scratch.normalized;
    if (follow_marks) mask = SpecialMask(scratch.normalized_marks);
  }
  if (added_normalized_.empty()) return encode_normalized(text, at_start, scratch, out);
  scratch.segments.clear();
  added_normalized_.split(text, mask, scratch.segments);
  for (const Segment& segment : scratch.segments) {
    if (segment.id != kNoToken) {
      out.push_back(segment.id);
      continue;
    }
    const Piece piece = segment.piece;
    QSF_RETURN_IF_ERROR(encode_normalized(text.substr(piece.begin, piece.end - piece.begin),
                                          at_start && piece.begin == 0, scratch, out));
  }
  return ok_status();
}

Status Tokenizer::encode_normalized(std::string_view text, bool at_start, Scratch& scratch,
                                    std::vector<TokenId>& out) const {
  if (steps_.transforms(TextStage::kPreTokenizer)) {
    scratch.prepared.assign(text);
    QSF_RETURN_IF_ERROR(steps_.transform(TextStage::kPreTokenizer, at_start, scratch.text,
                                         scratch.prepared,
                                         /*marks=*/nullptr));
    text = scratch.prepared;
  }
  bpe_.begin_segment(scratch.bpe);
  QSF_RETURN_IF_ERROR(steps_.split(text, scratch.text, scratch.pieces));
  for (const Piece piece : scratch.pieces) {
    if (kind() == TokenizerKind::kWordPiece) {
      word_pieces_.encode(text.substr(piece.begin, piece.end - piece.begin), scratch.word, out);
      continue;
    }
    if (steps_.splits()) bpe_.begin_segment(scratch.bpe);
    bpe_.encode(text.substr(piece.begin, piece.end - piece.begin), scratch.bpe, out);
  }
  return ok_status();
}

void Tokenizer::append_bytes(TokenId id, bool skip_special, std::string& out) const {
  if (id >= n_tokens()) return;
  std::string_view text = section_.token_text(id);
  const TokenType type = section_.token_type(id);
  if (type == TokenType::kControl || type == TokenType::kUnknown) {
    if (!skip_special) out.append(text);
    return;
  }
  if (type == TokenType::kByte) {
    out.push_back(static_cast<char>(byte_token_value(text)));
    return;
  }
  if (kind() == TokenizerKind::kWordPiece) {
    if (text.starts_with(kContinuation)) {
      text.remove_prefix(kContinuation.size());
    } else {
      out.push_back(' ');
    }
  }
  if (!section_.has(kSectionUnescapeSpaces)) {
    out.append(text);
    return;
  }
  for (std::size_t at = text.find(kSpaceSymbol); at != std::string_view::npos;
       at = text.find(kSpaceSymbol)) {
    out.append(text.substr(0, at)).push_back(' ');
    text.remove_prefix(at + kSpaceSymbol.size());
  }
  out.append(text);
}

void Tokenizer::decode(std::span<const TokenId> tokens, const DecodeOptions& options,
                       std::string& out) const {
  bool at_start = options.at_text_start && strips_leading_space();
  for (const TokenId id : tokens) {
    const std::size_t before = out.size();
    append_bytes(id, options.skip_special, out);
    if (at_start && out.size() > before && !is_special(id)) {
      if (out[before] == ' ') out.erase(before, 1);
      at_start = false;
    }
  }
}

std::string_view Tokenizer::token_text(TokenId id) const noexcept {
  return id < n_tokens() ? section_.token_text(id) : std::string_view();
}

TokenId Tokenizer::find_token(std::string_view text) const noexcept {
  const TokenId indexed = index_.find_token(text);
  if (indexed != kNoToken || text.empty()) return indexed;
  for (TokenId id = 0; id < n_tokens(); ++id) {
    if (section_.token_text(id) == text) return id;
  }
  return kNoToken;
}

bool Tokenizer::is_stop(TokenId id) const noexcept {
  for (std::uint32_t i = 0; i < section_.n_stop_ids(); ++i) {
    if (section_.stop_id(i) == id) return true;
  }
  return id != kNoToken && id == eos();
}

bool Tokenizer::is_special(TokenId id) const noexcept {
  return is_control(id) || section_.token_type(id) == TokenType::kUnknown;
}

bool Tokenizer::is_control(TokenId id) const noexcept {
  return id >= n_tokens() || section_.token_type(id) == TokenType::kControl;
}

}  // namespace qsf
