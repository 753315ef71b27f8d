// SPDX-License-Identifier: MIT
//
// A number that tells models apart: what a file beside a model keeps to know it again.
//
// It follows from what decides the numbers and the words of a model: the spec, the required
// metadata, the shape and type of every tensor, the checksum of every tile and of the tokenizer.
// Another weight is another checksum, so nothing of the weights is read. The name of the file, its
// time, where its sections stand, its chat template and what it says about its origin do not
// matter.

#ifndef QSF_FORMAT_MODEL_FINGERPRINT_H_
#define QSF_FORMAT_MODEL_FINGERPRINT_H_

#include <cstdint>

#include "format/qsf_reader.h"

namespace qsf {

// Returns the fingerprint of an opened file; files of the same weights under other compressions
// have different ones. No protection from people: checksums can be forged. Threads  any
std::uint64_t model_fingerprint(const QsfReader& reader);

}  // namespace qsf

#endif  // QSF_FORMAT_MODEL_FINGERPRINT_H_
