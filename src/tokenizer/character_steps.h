// SPDX-License-Identifier: MIT
//
// Steps of text preparation that change characters: the parts of BERT's normaliser, in its order.
//
// Bytes that are not UTF-8 stay, where nothing else is said. `marks`, unless null, has one byte for
// each byte of the text and is changed with it: what a character becomes is marked (SpecialMask) if
// the whole character was. Each takes O(n log n) time for any text and proportional memory.
//
// Categories and decompositions are those of utf8proc. Hugging Face tokenizers has tables of
// Unicode 8, so that punctuation and marks of later versions, which vocabularies do not have, may
// become other unknown tokens there.
//
// Based on: Devlin et al., "BERT", 2018 (tokenization.py); the BertNormalizer of Hugging Face
// tokenizers.

#ifndef QSF_TOKENIZER_CHARACTER_STEPS_H_
#define QSF_TOKENIZER_CHARACTER_STEPS_H_

#include <string>

namespace qsf {

// Drops control, format and private characters, U+0000, U+FFFD and bytes that are not UTF-8; tab
// and line ends stay, as spaces, which all white space becomes.
void clean_text(std::string& text, std::string* marks);

// Puts a space before and behind each ideograph of the blocks that BERT lists. The text grows to at
// most five thirds of its bytes.
void space_ideographs(std::string& text, std::string* marks);

// Decomposes characters (NFD) and drops nonspacing marks.
void strip_marks(std::string& text, std::string* marks);

// Makes letters lowercase, each by itself.
void lowercase(std::string& text, std::string* marks);

}  // namespace qsf

#endif  // QSF_TOKENIZER_CHARACTER_STEPS_H_
