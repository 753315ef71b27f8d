// SPDX-License-Identifier: MIT

#include "grammar/token_vocabulary.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "grammar/automaton.h"
#include "grammar/mask_cache.h"
#include "grammar/region_carver.h"
#include "grammar/utf8_code_points.h"

namespace qsf {

namespace {

// Vocabularies of models have about 2 nodes a token, and 1 in the tries of the rests.
constexpr std::size_t max_nodes(std::uint32_t n_tokens) {
  return 4 * std::size_t{n_tokens} + 8192;
}

struct Entry {
  std::string_view bytes;
  std::uint32_t token;
};

// The number of characters of a text of the set, or 0 for any other text.
std::uint32_t count_chars(std::string_view text, const CharSet& set) {
  std::uint32_t n = 0;
  while (!text.empty()) {
    const std::size_t n_bytes = utf8_char_bytes(text);
    if (n_bytes == 0 || !set.contains(first_code_point(text))) return 0;
    text.remove_prefix(n_bytes);
    ++n;
  }
  return n;
}

// Writes the trie of sorted entries behind `n_used` nodes. Returns the nodes used then, or 0 when
// they do not fit.
std::size_t write_trie(std::span<const Entry> entries, std::span<TokenTrieNode> nodes,
                       std::size_t n_used) {
  std::vector<std::size_t> path;  // the nodes of the bytes of the entry before
  std::string_view before;
  const auto finish = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      TokenTrieNode& node = nodes[path.back()];
      node.packed |= static_cast<std::uint32_t>(n_used - path.back()) << 8;
    }
  };
  for (const Entry& entry : entries) {
    const std::string_view bytes = entry.bytes;
    const auto [a, b] = std::ranges::mismatch(bytes, before);
    auto shared = static_cast<std::size_t>(a - bytes.begin());
    shared = std::min(shared, bytes.size() - 1);  // an equal token has a last node of its own
    finish(shared);
    for (std::size_t i = shared; i < bytes.size(); ++i) {
      if (n_used == nodes.size()) return 0;
      nodes[n_used] = {static_cast<std::uint8_t>(bytes[i]), kNoTokenHere};
      path.push_back(n_used++);
    }
    nodes[path.back()].token = entry.token;
    before = bytes;
  }
  finish(0);
  return n_used;
}

}  // namespace

std::size_t TokenVocabulary::region_bytes(std::uint32_t n_tokens) {
  return carved_bytes<TokenTrieNode>(max_nodes(n_tokens)) +
         carved_bytes<std::uint32_t>(kSlices * kMaxSliceChars * mask_words(n_tokens));
}

Result<TokenVocabulary> TokenVocabulary::build(const TokenTexts& texts, MutableByteSpan region) {
  TokenVocabulary out;
  out.texts_ = &texts;
  out.n_tokens_ = texts.n_tokens();
  RegionCarver carver(region);
  const std::span<TokenTrieNode> nodes = carver.take<TokenTrieNode>(max_nodes(out.n_tokens_));
  const std::size_t n_words = mask_words(out.n_tokens_);
  out.slice_masks_ = carver.take<std::uint32_t>(kSlices * kMaxSliceChars * n_words);

  std::string bytes;
  std::vector<std::pair<std::size_t, std::uint32_t>> where;  // begin in bytes, token
  for (std::uint32_t token = 0; token < out.n_tokens_; ++token) {
    const TokenTexts::Kind kind = texts.kind(token);
    if (kind == TokenTexts::Kind::kEnd) out.end_tokens_.push_back(token);
    if (kind != TokenTexts::Kind::kText) continue;
    const std::size_t begin = bytes.size();
    texts.append(token, false, bytes);
    const std::size_t n_bytes = bytes.size() - begin;
    if (n_bytes == 0 || n_bytes > kMaxWalkDepth) {
      bytes.resize(begin);
    } else {
      where.emplace_back(begin, token);
    }
  }
  std::vector<Entry> entries;
  entries.reserve(where.size());
  for (std::size_t i = 0; i < where.size(); ++i) {
    const std::size_t end = i + 1 < where.size() ? where[i + 1].first : bytes.size();
    entries.push_back(
        {std::string_view(bytes).substr(where[i].first, end - where[i].first), where[i].second});
  }
  where = {};
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    const int order = a.bytes.compare(b.bytes);
    return order != 0 ? order < 0 : a.token < b.token;
  });
  const Status too_large = unsupported(
      "the vocabulary's tokens share too few beginnings: their trie has more than %zu nodes",
      nodes.size());
  std::size_t n_used = write_trie(entries, nodes, 0);
  if (n_used == 0 && !entries.empty()) return too_large;
  out.trie_ = nodes.first(n_used);

  const std::span<const CharSet> sets = token_slices();
  QSF_CHECK(sets.size() == kSlices);
  for (std::size_t slice = 0; slice < kSlices; ++slice) {
    std::vector<Entry> rest;
    for (const Entry& entry : entries) {
      const std::uint32_t n_chars = count_chars(entry.bytes, sets[slice]);
      if (n_chars == 0 || n_chars > kMaxSliceChars) {
        rest.push_back(entry);
        continue;
      }
      const auto first = static_cast<std::uint8_t>(entry.bytes[0]);
      out.first_bytes_[slice][first / 64] |= std::uint64_t{1} << first % 64;
      for (std::uint32_t n = n_chars; n <= kMaxSliceChars; ++n) {
        const std::size_t mask = (slice * kMaxSliceChars + n - 1) * n_words;
        out.slice_masks_[mask + entry.token / 32] |= 1U << entry.token % 32;
      }
    }
    const std::size_t begin = n_used;
    n_used = write_trie(rest, nodes, n_used);
    if (n_used == 0 && !rest.empty()) return too_large;
    n_used = std::max(n_used, begin);
    out.rests_[slice] = nodes.subspan(begin, n_used - begin);
  }
  return out;
}

std::span<const std::uint32_t> TokenVocabulary::slice_mask(std::uint8_t slice,
                                                           std::uint32_t n_chars) const {
  const std::size_t n_words = mask_words(n_tokens_);
  return slice_masks_.subspan((slice * kMaxSliceChars + n_chars - 1) * n_words, n_words);
}

}  // namespace qsf
