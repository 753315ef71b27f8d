// SPDX-License-Identifier: MIT
//
// AdapterSource: an adapter of any format that is read, opened for a base: a PEFT folder, a GGUF
// adapter or an adapter file of our own.

#ifndef QSF_IMPORT_ADAPTER_SOURCE_H_
#define QSF_IMPORT_ADAPTER_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/adapter_spec.h"
#include "format/adapter_writer.h"
#include "format/model_spec.h"
#include "io/file_ops.h"

namespace qsf {

enum class AdapterFormat : std::uint8_t { kNone, kPeft, kGguf, kQsf };

// Returns what a path holds as an adapter: of a folder by its adapter_config.json, of a file by its
// first bytes and, of a GGUF file, by its keys. kNone for everything that is no adapter or cannot
// be opened.
AdapterFormat find_adapter_format(const std::string& path, FileOps& ops = system_file_ops());

struct AdapterSource {
  AdapterSpec spec;  // validate() is OK; base_fingerprint is 0 but for kQsf
  std::unique_ptr<AdapterValues> values;
  std::vector<std::string> warnings;
};

// Opens an adapter for models that `base` describes. Adapter files of our own hold shapes that are
// not compared with it.
// Requires  validate(base) is OK; `ops` outlives the adapter
// Fails     kInvalidArgument where the path holds no adapter, or one of another architecture; as
//           PeftAdapter, GgufAdapter and AdapterReader
Result<AdapterSource> open_adapter(const std::string& path, const ModelSpec& base,
                                   FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_IMPORT_ADAPTER_SOURCE_H_
