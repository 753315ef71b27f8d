// SPDX-License-Identifier: MIT
//
// Copies of a model for the engine to run: its weights as they are, or some of them rounded.

#ifndef QSF_CONVERT_CALIBRATE_MODEL_COPY_H_
#define QSF_CONVERT_CALIBRATE_MODEL_COPY_H_

#include <string>

#include "base/status.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "io/file_ops.h"

namespace qsf {

// Writes a .qsf file of a model with every weight as it is but those that `options.formats` names,
// uncompressed. Where the page cache is bounded it forgets both files: the engine has all of the
// budget.
// Fails  as transcode()
Status write_copy(const ModelSource& source, const std::string& path, TranscodeOptions options,
                  FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_CONVERT_CALIBRATE_MODEL_COPY_H_
