// SPDX-License-Identifier: MIT
//
// BERT's preparation of text as steps of TokenizerData, which importers of its vocabularies share.

#ifndef QSF_IMPORT_BERT_STEPS_H_
#define QSF_IMPORT_BERT_STEPS_H_

#include "tokenizer/tokenizer_data.h"

namespace qsf {

// The parts of its normaliser (tokenizer/character_steps.h).
struct BertNormalizer {
  bool clean_text = true;
  bool space_ideographs = true;
  bool strip_marks = true;
  bool lowercase = true;
};

void add_bert_normalizer(const BertNormalizer& parts, TokenizerData& data);

// Words are cut at white space, which is dropped, and each punctuation character is a word.
void add_bert_splits(TokenizerData& data);

}  // namespace qsf

#endif  // QSF_IMPORT_BERT_STEPS_H_
