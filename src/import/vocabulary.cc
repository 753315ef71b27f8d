// SPDX-License-Identifier: MIT

#include "import/vocabulary.h"

#include <algorithm>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr std::uint32_t kFirstMapped = 0x100;
constexpr std::uint32_t kMapped = 68;  // 0x00-0x20, 0x7F-0xA0 and 0xAD

bool stands_for_itself(std::uint32_t byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// Returns the byte of the n-th mapped character.
char mapped_byte(std::uint32_t n) noexcept {
  if (n <= 0x20) return static_cast<char>(n);
  return static_cast<char>(n == kMapped - 1 ? 0xAD : n - 0x21 + 0x7F);
}

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char next = decode_utf8(text, i);
    const std::uint32_t c = next.code_point;
    if (next.valid && stands_for_itself(c)) {
      bytes.push_back(static_cast<char>(c));
    } else if (next.valid && c >= kFirstMapped && c < kFirstMapped + kMapped) {
      bytes.push_back(mapped_byte(c - kFirstMapped));
    } else {
      return std::nullopt;
    }
    i += next.n_bytes;
  }
  return bytes;
}

std::string alphabet_of_byte(unsigned char byte) {
  std::uint32_t c = byte;
  if (!stands_for_itself(byte)) {
    c = byte <= 0x20 ? byte : byte == 0xAD ? kMapped - 1 : byte - 0x7FU + 0x21U;
    c += kFirstMapped;
  }
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0U | (c >> 6)), static_cast<char>(0x80U | (c & 0x3FU))};
}

namespace {

Status check_fixed_part(const TokenizerData& data, std::uint32_t n_vocab) {
  std::vector<bool> is_added(data.tokens.size());
  for (const AddedToken& token : data.added) {
    if (token.id < is_added.size()) is_added[token.id] = true;
  }
  for (std::size_t id = n_vocab; id < data.tokens.size(); ++id) {
    if (is_added[id] || data.tokens[id].type == TokenType::kUnused) continue;
    return corrupt(
        "tokenizer: the vocabulary has token %zu, but the model's embedding has %u rows; use the "
        "tokenizer of this model",
        id, n_vocab);
  }
  for (std::size_t i = 0; i < data.merges.size(); ++i) {
    const MergeRule& merge = data.merges[i];
    const TokenId highest = std::max({merge.left, merge.right, merge.result});
    if (highest < n_vocab) continue;
    return corrupt(
        "tokenizer: merge %zu has token %u, but the model's embedding has %u rows; use the "
        "tokenizer of this model",
        i, highest, n_vocab);
  }
  return ok_status();
}

}  // namespace

Result<std::vector<std::string>> limit_vocabulary(TokenizerData& data, std::uint32_t n_vocab) {
  QSF_RETURN_IF_ERROR(check_fixed_part(data, n_vocab));
  std::vector<std::string> dropped;
  for (const AddedToken& token : data.added) {
    if (token.id >= n_vocab) {
      dropped.push_back('"' + token.text + "\" (" + std::to_string(token.id) + ')');
    }
  }
  std::erase_if(data.added, [n_vocab](const AddedToken& token) { return token.id >= n_vocab; });
  std::erase_if(data.stop_ids, [n_vocab](TokenId id) { return id >= n_vocab; });
  for (TokenId* id : {&data.bos, &data.eos, &data.pad, &data.unk}) {
    if (*id >= n_vocab) *id = kNoToken;
  }
  data.add_bos = data.add_bos && data.bos != kNoToken;
  data.add_eos = data.add_eos && data.eos != kNoToken;
  if (data.tokens.size() > n_vocab) data.tokens.resize(n_vocab);
  return dropped;
}

}  // namespace qsf
