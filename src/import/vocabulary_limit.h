// SPDX-License-Identifier: MIT
//
// Fits a tokenizer to the rows of a model's embedding.
//
// Folders may name added tokens that the model has no row for, such as a padding token put in for
// training. A file must not hold them: a token without a row has no meaning to the model.

#ifndef QSF_IMPORT_VOCABULARY_LIMIT_H_
#define QSF_IMPORT_VOCABULARY_LIMIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Leaves out the added tokens, stop ids and special ids from n_vocab on and shrinks the token list.
// Returns the tokens left out, each as `"text" (id)`; none when the tokenizer fits as it is.
// Guarantees  no id of `data` is n_vocab or above
// Fails       kCorrupt: a token of the vocabulary itself or of a merge is; `data` is unchanged
Result<std::vector<std::string>> limit_vocabulary(TokenizerData& data, std::uint32_t n_vocab);

}  // namespace qsf

#endif  // QSF_IMPORT_VOCABULARY_LIMIT_H_
