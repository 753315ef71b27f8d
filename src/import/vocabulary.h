// SPDX-License-Identifier: MIT
//
// The alphabet in which byte-level BPE vocabularies are written down: one printable character a
// byte.
//
// Files of the GPT-2 family store tokens as text and therefore map every byte to a character: the
// printable ones of Latin-1 to themselves, the other 68, in order, to U+0100 and up (a space
// becomes U+0120). A .qsf file stores the bytes.
//
// Based on: Radford et al., "Language models are unsupervised multitask learners", 2019
// (encoder.py).

#ifndef QSF_IMPORT_VOCABULARY_H_
#define QSF_IMPORT_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Returns the bytes that `text` stands for, or nothing when it has a character outside the
// alphabet. Threads  any
std::optional<std::string> bytes_of_alphabet(std::string_view text);

// Returns the character that stands for `byte`, as UTF-8.
std::string alphabet_of_byte(unsigned char byte);

// Fits a tokenizer to the rows of a model's embedding.
//
// Folders may name added tokens that the model has no row for, such as a padding token put in for
// training. A file must not hold them: a token without a row has no meaning to the model.

// Leaves out the added tokens, stop ids and special ids from n_vocab on and shrinks the token list.
// Returns the tokens left out, each as `"text" (id)`; none when the tokenizer fits as it is.
// Guarantees  no id of `data` is n_vocab or above
// Fails       kCorrupt: a token of the vocabulary itself or of a merge is; `data` is unchanged
Result<std::vector<std::string>> limit_vocabulary(TokenizerData& data, std::uint32_t n_vocab);

}  // namespace qsf

#endif  // QSF_IMPORT_VOCABULARY_H_
