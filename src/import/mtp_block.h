// SPDX-License-Identifier: MIT
//
// Blocks for multi-token prediction, which stand behind the layers of a model: as models of their
// own.

#ifndef QSF_IMPORT_MTP_BLOCK_H_
#define QSF_IMPORT_MTP_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "format/model_spec.h"

namespace qsf {

// What is read of a model: all but such blocks, or the first of them.
enum class ModelPart : std::uint8_t { kModel, kMtpBlock };

// Returns the spec of a block: a model of one layer, which is as the last one of `model`, with its
// embedding and head.
// Fails  kInvalidArgument where the model has no block; kUnsupported where its layers differ in
//        more than their experts, or keep a state
Result<ModelSpec> mtp_block_spec(const ModelSpec& model, std::uint32_t n_blocks);

// Returns the warning of a model that is read without the tensors of its blocks.
std::string left_out_blocks(const ModelSpec& model, std::size_t n_tensors);

}  // namespace qsf

#endif  // QSF_IMPORT_MTP_BLOCK_H_
