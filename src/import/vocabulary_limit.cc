// SPDX-License-Identifier: MIT

#include "import/vocabulary_limit.h"

#include <algorithm>

namespace qsf {

namespace {

Status check_fixed_part(const TokenizerData& data, std::uint32_t n_vocab) {
  std::vector<bool> is_added(data.tokens.size());
  for (const AddedToken& token : data.added) {
    if (token.id < is_added.size()) is_added[token.id] = true;
  }
  for (std::size_t id = n_vocab; id < data.tokens.size(); ++id) {
    if (is_added[id] || data.tokens[id].type == TokenType::kUnused) continue;
    return corrupt(
        "tokenizer: its vocabulary has the token %zu, but the model's embedding has %u rows; "
        "expected the tokenizer that belongs to the model",
        id, n_vocab);
  }
  for (std::size_t i = 0; i < data.merges.size(); ++i) {
    const MergeRule& merge = data.merges[i];
    const TokenId highest = std::max({merge.left, merge.right, merge.result});
    if (highest < n_vocab) continue;
    return corrupt(
        "tokenizer: merge %zu has the token %u, but the model's embedding has %u rows; expected "
        "the tokenizer that belongs to the model",
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
