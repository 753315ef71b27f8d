// SPDX-License-Identifier: MIT
//
// qsf convert with LoRA adapters: a PEFT folder or a GGUF adapter becomes an adapter file for a
// converted model (docs/format-adapter.md), or part of the weights of a model.

#ifndef QSF_TOOLS_CONVERT_CONVERT_ADAPTER_H_
#define QSF_TOOLS_CONVERT_CONVERT_ADAPTER_H_

#include <memory>

#include "base/result.h"
#include "base/status.h"
#include "convert/encode/merged_model.h"
#include "import/model_source.h"
#include "tools/convert/convert_options.h"

namespace qsf_tools {

// Returns whether the input is an adapter. A folder with the configuration of a model beside that
// of an adapter is one where --base says so.
bool is_adapter_input(const ConvertOptions& options);

// Writes the adapter file and prints a line about it. An adapter file as input is written anew for
// another base.
// Fails  kInvalidArgument without a base, on options of models, on an output that is a file of the
//        input or the base, and as check_adapter_fits(); as open_adapter(), QsfReader::open and
//        write_adapter_file()
qsf::Status convert_adapter(const ConvertOptions& options);

// Puts the adapters of --merge-lora, if there are any, around a model. Their values are not in
// memory yet: MergedModel::load().
// `keeps`: the weights of the model are kept unless the options say otherwise.
// Fails  kInvalidArgument when the weights would be kept, or an output is a file of an adapter; as
//        open_adapter() and MergedModel::add()
qsf::Result<std::unique_ptr<qsf::MergedModel>> merge_adapters(
    const ConvertOptions& options, bool keeps, std::unique_ptr<qsf::ModelSource> model);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_ADAPTER_H_
