// SPDX-License-Identifier: MIT

#include "import/hf/hf_vocabulary.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "import/byte_alphabet.h"

namespace qsf {

namespace {

// Ids may have gaps (models pad their vocabulary), but not so many that a small file asks for much
// memory.
constexpr std::uint64_t kMaxGap = 1U << 16;

Status check_id(std::uint64_t id, std::size_t n_entries) {
  const std::uint64_t limit = 2 * std::uint64_t{n_entries} + kMaxGap;
  if (id < limit) return ok_status();
  return corrupt("tokenizer: token id %llu among %zu tokens, expected below %llu",
                 static_cast<unsigned long long>(id), n_entries,
                 static_cast<unsigned long long>(limit));
}

}  // namespace

Status read_hf_vocabulary(const Json& vocabulary, TokenizerData& data) {
  if (!vocabulary.is_object() || vocabulary.empty()) {
    return corrupt("tokenizer: vocabulary: expected an object of texts and ids");
  }
  std::uint64_t highest = 0;
  for (const auto& item : vocabulary.items()) {
    const auto id = json_unsigned(item.value());
    if (!id.has_value()) return corrupt("tokenizer: vocabulary: an id is not a number");
    QSF_RETURN_IF_ERROR(check_id(*id, vocabulary.size()));
    highest = std::max(highest, *id);
  }
  VocabToken gap;
  gap.type = TokenType::kUnused;
  data.tokens.assign(static_cast<std::size_t>(highest) + 1, gap);
  for (const auto& item : vocabulary.items()) {
    VocabToken& token = data.tokens[static_cast<std::size_t>(*json_unsigned(item.value()))];
    if (token.type != TokenType::kUnused) {
      return corrupt("tokenizer: vocabulary: two texts have the id %llu",
                     static_cast<unsigned long long>(*json_unsigned(item.value())));
    }
    token.text = item.key();
    token.type = TokenType::kNormal;
  }
  return ok_status();
}

bool split_merge_line(std::string_view line, MergeText& merge) noexcept {
  const std::size_t space = line.find(' ', 1);
  if (space == std::string_view::npos) return false;
  merge = {line.substr(0, space), line.substr(space + 1)};
  return true;
}

Status read_hf_merges(const std::vector<MergeText>& merges, TokenizerData& data) {
  std::unordered_map<std::string_view, TokenId> ids;
  ids.reserve(data.tokens.size());
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].type != TokenType::kUnused) ids.try_emplace(data.tokens[id].text, id);
  }
  std::unordered_set<std::uint64_t> seen;
  seen.reserve(merges.size());
  data.merges.reserve(merges.size());
  std::string joined;
  for (std::size_t i = merges.size(); i-- > 0;) {  // from the end, so that the last rank counts
    const auto left = ids.find(merges[i].left);
    const auto right = ids.find(merges[i].right);
    joined.assign(merges[i].left).append(merges[i].right);
    const auto result = ids.find(joined);
    if (left == ids.end() || right == ids.end() || result == ids.end()) {
      return corrupt("tokenizer: merge %zu: one of its tokens is not in the vocabulary", i);
    }
    if (seen.insert(std::uint64_t{left->second} << 32 | right->second).second) {
      data.merges.push_back({left->second, right->second, result->second});
    }
  }
  std::reverse(data.merges.begin(), data.merges.end());
  return ok_status();
}

Status add_hf_token(const Json& json, std::uint64_t id, TokenizerData& data) {
  const std::string* content = json_string(json, "content");
  if (content == nullptr || content->empty()) {
    return corrupt("tokenizer: added token %llu: no content", static_cast<unsigned long long>(id));
  }
  QSF_RETURN_IF_ERROR(check_id(id, data.tokens.size()));
  if (id >= data.tokens.size()) {
    VocabToken gap;
    gap.type = TokenType::kUnused;
    data.tokens.resize(static_cast<std::size_t>(id) + 1, gap);
  }
  AddedToken added;
  added.text = *content;
  added.id = static_cast<TokenId>(id);
  added.special = json_bool(json, "special").value_or(false);
  added.normalized = json_bool(json, "normalized").value_or(!added.special);
  added.left_strip = json_bool(json, "lstrip").value_or(false);
  added.right_strip = json_bool(json, "rstrip").value_or(false);
  added.single_word = json_bool(json, "single_word").value_or(false);
  VocabToken& token = data.tokens[static_cast<std::size_t>(id)];
  token.text = *content;
  if (token.type != TokenType::kByte && token.type != TokenType::kUnknown) {
    token.type = added.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  data.added.push_back(std::move(added));
  return ok_status();
}

void decode_byte_alphabet(TokenizerData& data) {
  for (VocabToken& token : data.tokens) {
    if (token.type != TokenType::kNormal) continue;
    if (auto bytes = bytes_of_alphabet(token.text); bytes.has_value())
      token.text = std::move(*bytes);
  }
}

TokenId find_hf_token(const TokenizerData& data, std::string_view text) noexcept {
  if (text.empty()) return kNoToken;
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].text == text) return id;
  }
  return kNoToken;
}

}  // namespace qsf
