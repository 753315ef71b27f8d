// SPDX-License-Identifier: MIT
//
// A number that identifies a model, stored in files that belong to it (sessions).
//
// It depends on everything that determines the model's numbers and tokens: the spec, the required
// metadata, the shape and type of every tensor, and the checksums of every tile and of the
// tokenizer. Different weights have different checksums, so no weight is read. File name, time,
// section offsets, chat template and provenance have no influence.

#ifndef QSF_FORMAT_MODEL_FINGERPRINT_H_
#define QSF_FORMAT_MODEL_FINGERPRINT_H_

#include <cstdint>

#include "format/qsf_reader.h"

namespace qsf {

// Returns the fingerprint of an opened file. Files with the same weights but different compression
// have different fingerprints. Not a protection against forgery.
// Threads  any
std::uint64_t model_fingerprint(const QsfReader& reader);

}  // namespace qsf

#endif  // QSF_FORMAT_MODEL_FINGERPRINT_H_
