// SPDX-License-Identifier: MIT

#include "grammar/token_vocabulary.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"
#include "grammar/mask_cache.h"
#include "grammar/region_carver.h"
#include "grammar/utf8_code_points.h"

namespace qsf {

namespace {

// Vocabularies of models have 2 to 3 nodes a token, those of the slices included.
constexpr std::size_t max_nodes(std::uint32_t n_tokens) {
  return 4 * std::size_t{n_tokens} + 8192;
}
constexpr std::size_t max_listed(std::uint32_t n_tokens) {
  return 2 * std::size_t{n_tokens};
}

// Bytes of the character of the slice that a text begins with, or 0.
std::size_t slice_char_bytes(std::string_view text, const TokenSlice& slice) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return slice.has_ascii(first) ? 1 : 0;
  const std::size_t n_bytes = slice.high ? utf8_char_bytes(text) : 0;
  return n_bytes > 0 && high_chars().contains(first_code_point(text)) ? n_bytes : 0;
}

void sort_by_bytes(std::span<TokenBytes> entries) {
  ranges::sort(entries, [](const TokenBytes& a, const TokenBytes& b) {
    const int order = a.bytes.compare(b.bytes);
    return order != 0 ? order < 0 : a.token < b.token;
  });
}

}  // namespace

std::size_t TokenVocabulary::region_bytes(std::uint32_t n_tokens) {
  return carved_bytes<TokenTrieNode>(max_nodes(n_tokens)) +
         carved_bytes<std::uint32_t>(max_listed(n_tokens)) +
         carved_bytes<std::uint32_t>(kTokenSlices * kMaxSliceChars * mask_words(n_tokens));
}

Result<TokenVocabulary> TokenVocabulary::build(const TokenTexts& texts, MutableByteSpan region) {
  TokenVocabulary out;
  out.texts_ = &texts;
  out.n_tokens_ = texts.n_tokens();
  RegionCarver carver(region);
  const std::span<TokenTrieNode> nodes = carver.take<TokenTrieNode>(max_nodes(out.n_tokens_));
  const std::span<std::uint32_t> listed = carver.take<std::uint32_t>(max_listed(out.n_tokens_));
  out.slice_masks_ =
      carver.take<std::uint32_t>(kTokenSlices * kMaxSliceChars * mask_words(out.n_tokens_));

  std::string bytes;
  std::vector<std::pair<std::size_t, std::uint32_t>> where;  // begin in bytes, token
  for (std::uint32_t token = 0; token < out.n_tokens_; ++token) {
    const TokenTexts::Kind kind = texts.kind(token);
    if (kind == TokenTexts::Kind::kEnd) out.end_tokens_.push_back(token);
    if (kind != TokenTexts::Kind::kText) continue;
    const std::size_t begin = bytes.size();
    texts.append(token, false, bytes);
    const std::size_t n_bytes = bytes.size() - begin;
    if (n_bytes == 0 || n_bytes > kMaxMaskedBytes) {
      bytes.resize(begin);
    } else {
      where.emplace_back(begin, token);
    }
  }
  std::vector<TokenBytes> entries;
  entries.reserve(where.size());
  for (std::size_t i = 0; i < where.size(); ++i) {
    const std::size_t end = i + 1 < where.size() ? where[i + 1].first : bytes.size();
    entries.push_back(
        {std::string_view(bytes).substr(where[i].first, end - where[i].first), where[i].second});
  }
  where = {};
  sort_by_bytes(entries);
  std::vector<TokenBytes> broken;
  for (const TokenBytes& entry : entries) {
    if (static_cast<std::uint8_t>(entry.bytes[0]) < 0x80) continue;
    if (slice_char_bytes(entry.bytes, {{}, true}) == 0) broken.push_back(entry);
  }
  TokenTrieWriter writer(nodes, listed);
  const std::optional<TokenTrie> trie = writer.write(entries);
  const std::optional<TokenTrie> broken_trie = trie.has_value() ? writer.write(broken) : trie;
  if (!broken_trie.has_value()) {
    return unsupported(
        "the vocabulary's tokens share too few beginnings: their trie has more than %zu nodes",
        nodes.size());
  }
  out.trie_ = *trie;
  out.broken_trie_ = *broken_trie;
  for (std::size_t slice = 0; slice < kTokenSlices; ++slice) {
    out.build_slice(slice, entries, writer);
  }
  return out;
}

void TokenVocabulary::build_slice(std::size_t slice, std::span<const TokenBytes> entries,
                                  TokenTrieWriter& writer) {
  const TokenSlice& set = token_slices()[slice];
  const std::size_t n_words = mask_words(n_tokens_);
  std::array<std::vector<TokenBytes>, kMaxSliceChars> ends;
  for (const TokenBytes& entry : entries) {
    std::string_view rest = entry.bytes;
    std::uint32_t n_chars = 0;
    while (n_chars < kMaxSliceChars && !rest.empty()) {
      const std::size_t n_bytes = slice_char_bytes(rest, set);
      if (n_bytes == 0) break;
      rest.remove_prefix(n_bytes);
      ++n_chars;
    }
    if (n_chars == 0) continue;
    if (!rest.empty()) {
      ends[n_chars - 1].push_back({rest, entry.token});
      continue;
    }
    for (std::uint32_t n = n_chars; n <= kMaxSliceChars; ++n) {
      const std::size_t mask = (slice * kMaxSliceChars + n - 1) * n_words;
      slice_masks_[mask + entry.token / 32] |= 1U << entry.token % 32;
    }
  }
  for (std::size_t n = 0; n < kMaxSliceChars; ++n) {
    sort_by_bytes(ends[n]);
    const std::optional<TokenTrie> trie = writer.write(ends[n]);
    if (!trie.has_value()) return;
    slices_[slice].ends[n] = *trie;
  }
  slices_[slice].exists = true;
}

std::span<const std::uint32_t> TokenVocabulary::slice_mask(std::size_t slice,
                                                           std::uint32_t n_chars) const {
  const std::size_t n_words = mask_words(n_tokens_);
  return slice_masks_.subspan((slice * kMaxSliceChars + n_chars - 1) * n_words, n_words);
}

}  // namespace qsf
