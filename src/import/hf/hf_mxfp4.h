// SPDX-License-Identifier: MIT
//
// MXFP4 matrices as Hugging Face folders store them, as rows of mxfp4 (quant/mxfp4.h).
//
// A matrix NAME is two tensors of bytes: NAME_blocks [experts, outputs, inputs / 32, 16], whose
// byte b has the code of input 2b in bits 0-3 and that of input 2b + 1 in bits 4-7, and NAME_scales
// [experts, outputs, inputs / 32], the exponents.

#ifndef QSF_IMPORT_HF_HF_MXFP4_H_
#define QSF_IMPORT_HF_HF_MXFP4_H_

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "import/checkpoint.h"

namespace qsf {

// Where rows are: row i is output first + i * stride, counted over all experts.
struct HfMxfp4Rows {
  const StoredTensor& blocks;
  const StoredTensor& scales;
  std::uint64_t first;
  std::uint64_t stride;
  std::uint32_t n_rows;
  std::uint32_t n_cols;
};

// Reads rows in layout 0.
// Shapes    out [n_rows, row_major_bytes]
// Requires  n_cols is a multiple of 32; the rows are in the tensors, whose type is U8
// Fails     kCorrupt on a scale that the type lacks, naming tensor, row and block; kIo
Status read_hf_mxfp4_rows(const Checkpoint& weights, const HfMxfp4Rows& rows, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_MXFP4_H_
