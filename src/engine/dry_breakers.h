// SPDX-License-Identifier: MIT
//
// The sequence breakers of DRY, from texts.

#ifndef QSF_ENGINE_DRY_BREAKERS_H_
#define QSF_ENGINE_DRY_BREAKERS_H_

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

// Returns the tokens whose text, special tokens' too, contains one of `texts`; ascending. Looks at
// the whole vocabulary.
// Fails  kInvalidArgument for an empty text and for one that no single token contains
Result<std::vector<TokenId>> find_dry_breakers(const Tokenizer& tokenizer,
                                               std::span<const std::string> texts);

}  // namespace qsf

#endif  // QSF_ENGINE_DRY_BREAKERS_H_
