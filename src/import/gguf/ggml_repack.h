// SPDX-License-Identifier: MIT
//
// The parts of repack_ggml_row() that stand in files of their own.

#ifndef QSF_IMPORT_GGUF_GGML_REPACK_H_
#define QSF_IMPORT_GGUF_GGML_REPACK_H_

#include "base/bytes.h"
#include "base/status.h"

namespace qsf {

// Repack one row of a ternary type: TQ1_0 and TQ2_0, with a scale for every 256 columns, as ternary
// with blocks of 256, IQ1_BN and IQ2_BN as ternary-row. Fail as repack_ggml_row(); a code 3, which
// writers do not use and decoders give a meaning, is kUnsupported.
Status repack_ggml_tq1_0(ByteSpan row, MutableByteSpan out);
Status repack_ggml_tq2_0(ByteSpan row, MutableByteSpan out);
Status repack_ggml_iq1_bn(ByteSpan row, MutableByteSpan out);
Status repack_ggml_iq2_bn(ByteSpan row, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGML_REPACK_H_
