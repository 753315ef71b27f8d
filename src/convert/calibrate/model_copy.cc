// SPDX-License-Identifier: MIT

#include "convert/calibrate/model_copy.h"

#include <utility>

#include "io/file.h"

namespace qsf {

Status write_copy(const ModelSource& source, const std::string& path, TranscodeOptions options,
                  FileOps& ops) {
  options.preset = QuantPreset::kKeep;
  options.vocabulary_type.reset();
  options.compensation = nullptr;
  options.layer_importance = {};
  options.expert_hits = {};
  options.compression = Compression::kNone;
  auto written = transcode(source, path, options, ops);
  if (!written) return std::move(written).error();
  if (options.max_cached_bytes == 0) return ok_status();
  source.drop_cached();
  QSF_ASSIGN_OR_RETURN(const File copy, File::open(path, ops));
  copy.drop_cached();
  return ok_status();
}

}  // namespace qsf
