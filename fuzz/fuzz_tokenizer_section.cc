// SPDX-License-Identifier: MIT
//
// Any bytes as a tokenizer section: refused, or opened and used without harm. Needs qsf_tokenizer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  const ByteSpan section = std::as_bytes(std::span(data, size));
  const auto index_bytes = Tokenizer::index_bytes(section);
  if (!index_bytes) return 0;
  std::vector<std::byte> index(*index_bytes);
  const auto tokenizer = Tokenizer::open(section, index);
  if (!tokenizer) return 0;
  // The section's own end is the text: it holds the strings that expressions and tokens look for.
  const std::string_view all = as_text(section);
  const std::string_view text = all.substr(all.size() - std::min<std::size_t>(all.size(), 512));
  std::vector<TokenId> ids;
  if (!tokenizer->encode(text, {}, ids).ok()) return 0;
  StreamDecoder decoder(*tokenizer, {});
  for (const TokenId id : ids) decoder.push(id);
  decoder.finish();
  std::string out;
  tokenizer->decode(ids, {}, out);
  // The same text cut where its bytes say: trusted throughout it gives the same tokens, and in
  // parts it gives some.
  std::vector<TextPiece> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::string_view part = text.substr(at, byte % 7);
    pieces.push_back({part, byte % 2 == 0});
    at += std::max<std::size_t>(part.size(), 1);
    if (part.empty()) pieces.push_back({text.substr(at - 1, 1), byte % 3 == 0});
  }
  std::vector<TokenId> cut_ids;
  static_cast<void>(tokenizer->encode_pieces(pieces, {}, cut_ids).ok());
  for (TextPiece& piece : pieces) piece.parse_special = true;
  cut_ids.clear();
  if (!tokenizer->encode_pieces(pieces, {}, cut_ids).ok() || cut_ids != ids) std::abort();
  return 0;
}
