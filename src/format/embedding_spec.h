// SPDX-License-Identifier: MIT
//
// The fields of a ModelSpec that say how a model embeds texts. Checked, written and read here, for
// model_spec.cc.

#ifndef QSF_FORMAT_EMBEDDING_SPEC_H_
#define QSF_FORMAT_EMBEDDING_SPEC_H_

#include "base/status.h"
#include "format/metadata.h"
#include "format/model_spec.h"

namespace qsf {

// Fails  kInvalidArgument, naming the field
Status check_embedding(const ModelSpec& spec);
void encode_embedding(const ModelSpec& spec, Metadata& metadata);
// Fails  kUnsupported: a pooling that this version does not know
Status decode_embedding(const Metadata& metadata, ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_FORMAT_EMBEDDING_SPEC_H_
