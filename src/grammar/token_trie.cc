// SPDX-License-Identifier: MIT

#include "grammar/token_trie.h"

#include <vector>

#include "base/ranges.h"

namespace qsf {

std::optional<TokenTrie> TokenTrieWriter::write(std::span<const TokenBytes> entries) {
  std::size_t n = n_nodes_;
  std::size_t n_tokens = n_tokens_;
  std::vector<std::size_t> path;  // the nodes of the bytes of the entry before
  std::string_view before;
  const auto finish = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].packed |= static_cast<std::uint32_t>(n - path.back()) << 8;
    }
  };
  if (entries.size() > tokens_.size() - n_tokens) return std::nullopt;
  for (const TokenBytes& entry : entries) {
    const std::string_view bytes = entry.bytes;
    const auto [a, b] = ranges::mismatch(bytes, before);
    const auto shared = static_cast<std::size_t>(a - bytes.begin());
    finish(shared);
    for (std::size_t i = shared; i < bytes.size(); ++i) {
      if (n == nodes_.size()) return std::nullopt;
      nodes_[n] = {static_cast<std::uint8_t>(bytes[i]), static_cast<std::uint32_t>(n_tokens)};
      path.push_back(n++);
    }
    tokens_[n_tokens++] = entry.token;
    before = bytes;
  }
  finish(0);
  if (n == nodes_.size()) return std::nullopt;
  nodes_[n++] = {0, static_cast<std::uint32_t>(n_tokens)};
  const TokenTrie trie(nodes_.subspan(n_nodes_, n - n_nodes_), tokens_);
  n_nodes_ = n;
  n_tokens_ = n_tokens;
  return trie;
}

}  // namespace qsf
