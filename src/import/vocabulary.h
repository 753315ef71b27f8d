// SPDX-License-Identifier: MIT
//
// Two steps that importers of vocabularies share: the byte alphabet of byte-level BPE, and fitting
// a tokenizer to the rows of a model's embedding.
//
// Byte alphabet: files of the GPT-2 family store tokens as text and map every byte to a printable
// character. Printable Latin-1 characters map to themselves; the other 68 bytes map, in order, to
// U+0100 and up (a space becomes U+0120). A .qsf file stores the bytes.
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

// Returns the bytes that `text` encodes, or nothing when it has a character outside the alphabet.
// Threads  any
std::optional<std::string> bytes_of_alphabet(std::string_view text);

// Returns the character of `byte`, as UTF-8.
std::string alphabet_of_byte(unsigned char byte);

// Removes added tokens, stop ids and special ids from n_vocab on and shrinks the token list.
// Folders may list added tokens without an embedding row, such as a padding token for training.
// Returns the removed tokens, each as `"text" (id)`.
// Guarantees  every id of `data` is below n_vocab
// Fails       kCorrupt when a token of the vocabulary or of a merge is not; `data` is unchanged
Result<std::vector<std::string>> limit_vocabulary(TokenizerData& data, std::uint32_t n_vocab);

}  // namespace qsf

#endif  // QSF_IMPORT_VOCABULARY_H_
