// SPDX-License-Identifier: MIT
//
// The tokenizer of a GGUF file, from its "tokenizer.ggml." keys.
//
// Two models are known: "gpt2" (byte-level BPE, with the splits its "pre" key names) and "llama"
// (SentencePiece BPE). Others are refused by name, and so is a "pre" that is not in the table: a
// wrong split would silently change what the model reads.

#ifndef QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_
#define QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_

#include "base/result.h"
#include "import/gguf/gguf_reader.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Fails    kNotFound when the file has no tokenizer; kUnsupported on another model or
// pre-tokeniser;
//          kCorrupt on tokens, scores, types or merges that do not fit together
// Threads  any
Result<TokenizerData> tokenizer_from_gguf(const GgufReader& gguf);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_TOKENIZER_H_
