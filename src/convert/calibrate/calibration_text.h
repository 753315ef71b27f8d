// SPDX-License-Identifier: MIT
//
// The text of a calibration, as windows of tokens.

#ifndef QSF_CONVERT_CALIBRATE_CALIBRATION_TEXT_H_
#define QSF_CONVERT_CALIBRATE_CALIBRATION_TEXT_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Returns the most bytes of a text that are looked at for a number of tokens.
constexpr std::uint64_t calibration_text_bytes(std::uint64_t max_tokens) noexcept {
  constexpr std::uint64_t kBytesPerToken = 64;
  return max_tokens > UINT64_MAX / kBytesPerToken ? UINT64_MAX : kBytesPerToken * max_tokens;
}

// Returns the windows of a text, one behind the other: as many whole ones of `context` tokens as
// there are, at most those that `max_tokens` fill and at least one; or all tokens, where they are
// no whole window. A rest is dropped. Where the model begins texts with a token, every window
// begins with that in place of its own first.
// Requires  context >= 2
// Fails     kInvalidArgument for a text of fewer than two tokens, or with a zero byte, which no
//           text has; as Tokenizer::encode
Result<std::vector<TokenId>> calibration_tokens(const Tokenizer& tokenizer, std::string_view text,
                                                std::uint32_t context, std::uint64_t max_tokens);

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_CALIBRATION_TEXT_H_
