// SPDX-License-Identifier: MIT

#include "engine/dry_breakers.h"

namespace qsf {

Result<std::vector<TokenId>> find_dry_breakers(const Tokenizer& tokenizer,
                                               std::span<const std::string> texts) {
  for (const std::string& text : texts) {
    if (text.empty()) return invalid_argument("dry_breakers: empty, expected a text");
  }
  std::vector<TokenId> breakers;
  std::vector<bool> found(texts.size());
  std::string bytes;
  for (TokenId token = 0; token < tokenizer.n_tokens(); ++token) {
    bytes.clear();
    tokenizer.append_bytes(token, /*skip_special=*/false, bytes);
    bool breaks = false;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (bytes.find(texts[i]) == std::string::npos) continue;
      breaks = found[i] = true;
    }
    if (breaks) breakers.push_back(token);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (found[i]) continue;
    return invalid_argument(
        "dry_breakers: no token of this model contains '%s'; give a shorter text, such as its "
        "first character",
        texts[i].c_str());
  }
  return breakers;
}

}  // namespace qsf
