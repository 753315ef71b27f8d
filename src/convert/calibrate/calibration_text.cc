// SPDX-License-Identifier: MIT

#include "convert/calibrate/calibration_text.h"

#include <algorithm>

#include "base/check.h"

namespace qsf {

Result<std::vector<TokenId>> calibration_tokens(const Tokenizer& tokenizer, std::string_view text,
                                                std::uint32_t context, std::uint64_t max_tokens) {
  QSF_CHECK(context >= 2);
  max_tokens = std::max<std::uint64_t>(max_tokens, context);
  text = text.substr(0, calibration_text_bytes(max_tokens));
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    return invalid_argument("byte %zu is zero, which no text has; expected text in UTF-8", zero);
  }
  if (text.empty()) return invalid_argument("the text is empty; expected some pages of text");
  std::vector<TokenId> tokens;
  QSF_RETURN_IF_ERROR(
      tokenizer.encode(text, {.add_bos = {}, .add_eos = false, .parse_special = false}, tokens));
  if (tokens.size() < 2) {
    return invalid_argument("the text is %zu tokens long, expected some pages of text",
                            tokens.size());
  }
  if (tokens.size() >= context) {
    const std::uint64_t n_windows =
        std::min<std::uint64_t>(tokens.size() / context, max_tokens / context);
    tokens.resize(n_windows * context);
  }
  if (tokenizer.adds_bos()) {
    for (std::size_t i = 0; i < tokens.size(); i += context) tokens[i] = tokenizer.bos();
  }
  return tokens;
}

}  // namespace qsf
