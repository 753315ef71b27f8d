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

#ifndef QSF_IMPORT_BYTE_ALPHABET_H_
#define QSF_IMPORT_BYTE_ALPHABET_H_

#include <optional>
#include <string>
#include <string_view>

namespace qsf {

// Returns the bytes that `text` stands for, or nothing when it has a character outside the
// alphabet. Threads  any
std::optional<std::string> bytes_of_alphabet(std::string_view text);

// Returns the character that stands for `byte`, as UTF-8.
std::string alphabet_of_byte(unsigned char byte);

}  // namespace qsf

#endif  // QSF_IMPORT_BYTE_ALPHABET_H_
