// SPDX-License-Identifier: MIT
//
// How a folder of sentence-transformers makes an embedding of a text.
//
// modules.json lists what follows the model: a pooling, whose folder has a configuration, two dense
// matrices in some models, and the division by the length, which whoever asks for an embedding
// chooses. Other modules are refused by name.

#ifndef QSF_IMPORT_HF_HF_EMBEDDING_H_
#define QSF_IMPORT_HF_HF_EMBEDDING_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "import/hf/hf_config.h"

namespace qsf {

// The folders that a modules.json names.
struct HfModules {
  std::string pooling;
  std::vector<std::string> dense;  // two or none
};
// Returns those of the text of a modules.json.
// Fails  kCorrupt, kUnsupported, naming what is not understood
Result<HfModules> read_hf_modules(std::string_view text);

// Sets the pooling by the text of its configuration.
// Fails  as read_hf_modules
Status read_hf_pooling(std::string_view text, HfConfig& config);

// Checks the text of the configuration of a dense matrix, and sets the columns between two of them
// by the first.
// Fails  as read_hf_modules
Status read_hf_dense(std::string_view text, bool is_first, HfConfig& config);

// Reads modules.json of `folder`, where there is one, and the pooling's configuration.
// Fails  also kNotFound, kIo; messages begin with the file's name
Status read_hf_embedding(const std::string& folder, FileOps& ops, HfConfig& config);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_EMBEDDING_H_
