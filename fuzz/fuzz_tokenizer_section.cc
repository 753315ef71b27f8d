// SPDX-License-Identifier: MIT
//
// Any bytes as a tokenizer section: refused, or opened and used without harm. Needs qsf_tokenizer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  return 0;
}
