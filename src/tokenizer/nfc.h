// SPDX-License-Identifier: MIT
//
// Unicode normal form C, by utf8proc's tables.

#ifndef QSF_TOKENIZER_NFC_H_
#define QSF_TOKENIZER_NFC_H_

#include <string>

namespace qsf {

// Brings `text` into normal form C; bytes that are no UTF-8 stay as they are and nothing composes
// across them. `marks`, unless null, has a byte for each of the text and follows it: what changes
// is marked (SpecialMask) if all it was made from is. Takes O(n log n) time, whatever the text
// holds, and memory proportional to it; the text grows to three times its bytes at most.
void normalize_nfc(std::string& text, std::string* marks);

}  // namespace qsf

#endif  // QSF_TOKENIZER_NFC_H_
