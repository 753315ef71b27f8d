// SPDX-License-Identifier: MIT
//
// The tokenizer of a SentencePiece model file (tokenizer.model), read with a protobuf reader of its
// own: the few fields that matter, every length bounded, unknown fields skipped.
//
// BPE models alone; Unigram, word and character models are refused by name, and so are models whose
// normaliser changes characters (nmt_nfkc), which would silently read other text than was written.
//
// Based on: sentencepiece_model.proto of the SentencePiece project.

#ifndef QSF_IMPORT_SENTENCEPIECE_MODEL_H_
#define QSF_IMPORT_SENTENCEPIECE_MODEL_H_

#include "base/bytes.h"
#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Guarantees  neither BOS nor EOS is added: that rule stands in tokenizer_config.json
// Fails       kCorrupt on bytes that are no such message; kUnsupported on another kind of model
// Threads     any
Result<TokenizerData> tokenizer_from_sentencepiece(ByteSpan file);

}  // namespace qsf

#endif  // QSF_IMPORT_SENTENCEPIECE_MODEL_H_
