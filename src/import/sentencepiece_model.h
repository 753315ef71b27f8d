// SPDX-License-Identifier: MIT
//
// SentencePiece model files (tokenizer.model), read by a small protobuf reader. Every length is
// bounded and unknown fields are skipped.
//
// Only BPE models are supported. Unigram, word and character models are rejected by name, and so
// are models whose normaliser changes characters (nmt_nfkc).
//
// Based on: sentencepiece_model.proto of the SentencePiece project.

#ifndef QSF_IMPORT_SENTENCEPIECE_MODEL_H_
#define QSF_IMPORT_SENTENCEPIECE_MODEL_H_

#include "base/bytes.h"
#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Guarantees  add_bos and add_eos are false: tokenizer_config.json sets them
// Fails       kCorrupt on bytes that are not such a message; kUnsupported on another kind of model
// Threads     any
Result<TokenizerData> tokenizer_from_sentencepiece(ByteSpan file);

}  // namespace qsf

#endif  // QSF_IMPORT_SENTENCEPIECE_MODEL_H_
