// SPDX-License-Identifier: MIT
//
// Unicode normal form C, with the tables of utf8proc.

#ifndef QSF_TOKENIZER_NFC_H_
#define QSF_TOKENIZER_NFC_H_

#include <string>

namespace qsf {

// Converts `text` to normal form C. Bytes that are not UTF-8 stay, and nothing composes across
// them. `marks`, unless null, has one byte for each byte of the text and is changed with it: a
// changed stretch is marked (SpecialMask) if its whole source was. Takes O(n log n) time for any
// text and proportional memory; the text grows to at most three times its bytes.
void normalize_nfc(std::string& text, std::string* marks);

}  // namespace qsf

#endif  // QSF_TOKENIZER_NFC_H_
