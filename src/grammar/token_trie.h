// SPDX-License-Identifier: MIT
//
// TokenTrie: byte strings with the tokens that they end.
//
// Nodes stand in the order of a walk, each with the size of its subtree, so that a walk reads
// memory in order and leaves out a subtree by one addition. The tokens of a node, and those of a
// subtree, stand together.

#ifndef QSF_GRAMMAR_TOKEN_TRIE_H_
#define QSF_GRAMMAR_TOKEN_TRIE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace qsf {

struct TokenTrieNode {
  std::uint8_t byte() const noexcept { return static_cast<std::uint8_t>(packed & 0xFF); }
  std::uint32_t subtree() const noexcept { return packed >> 8; }  // nodes, this one included
  std::uint32_t packed;
  std::uint32_t first_token;  // those of the node end where those of the next one begin
};

struct TokenBytes {
  std::string_view bytes;
  std::uint32_t token;
};

class TokenTrie {
 public:
  TokenTrie() = default;
  // `nodes` has one more node than the trie, for the end of the tokens of its last one.
  TokenTrie(std::span<const TokenTrieNode> nodes, std::span<const std::uint32_t> tokens)
      : nodes_(nodes), tokens_(tokens) {}

  std::uint32_t size() const noexcept {
    return nodes_.empty() ? 0 : static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const TokenTrieNode& node(std::uint32_t at) const noexcept { return nodes_[at]; }
  // Those that end at a node, and those that end in its subtree.
  std::span<const std::uint32_t> tokens(std::uint32_t at) const noexcept {
    return tokens_between(at, at + 1);
  }
  std::span<const std::uint32_t> tokens_below(std::uint32_t at) const noexcept {
    return tokens_between(at, at + nodes_[at].subtree());
  }

 private:
  std::span<const std::uint32_t> tokens_between(std::uint32_t at, std::uint32_t end) const {
    const std::uint32_t first = nodes_[at].first_token;
    return tokens_.subspan(first, nodes_[end].first_token - first);
  }
  std::span<const TokenTrieNode> nodes_;
  std::span<const std::uint32_t> tokens_;
};

// Writes tries one behind the other.
class TokenTrieWriter {
 public:
  TokenTrieWriter(std::span<TokenTrieNode> nodes, std::span<std::uint32_t> tokens)
      : nodes_(nodes), tokens_(tokens) {}
  // The trie of entries, which are sorted by their bytes, none without a byte; or none where they
  // do not fit.
  std::optional<TokenTrie> write(std::span<const TokenBytes> entries);

 private:
  std::span<TokenTrieNode> nodes_;
  std::span<std::uint32_t> tokens_;
  std::size_t n_nodes_ = 0;
  std::size_t n_tokens_ = 0;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_TOKEN_TRIE_H_
