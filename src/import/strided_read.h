// SPDX-License-Identifier: MIT
//
// Ranges of a stored tensor's bytes, gathered where they do not lie next to each other.

#ifndef QSF_IMPORT_STRIDED_READ_H_
#define QSF_IMPORT_STRIDED_READ_H_

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "import/checkpoint.h"
#include "io/file.h"

namespace qsf {

// Reads elements from `first` on, in row-major order, as they are stored.
// Requires    `to` holds whole elements; the range lies inside the tensor, the tensor in the file
// Guarantees  beyond `to` at most 64 KiB of memory are used
// Fails       as File::read_exact_at
// Threads     any number at once
Status read_elements(const File& file, const StoredTensor& tensor, std::uint64_t first,
                     MutableByteSpan to);

}  // namespace qsf

#endif  // QSF_IMPORT_STRIDED_READ_H_
