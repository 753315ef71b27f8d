// SPDX-License-Identifier: MIT
//
// The configuration files of a Hugging Face folder as a ModelSpec.
//
// config.json says what the model is, generation_config.json which tokens end a text, others how a
// conversation is written (hf_chat_template.h). Every value that is used has its type and range
// checked; what this version cannot run as the original would is refused by name, never ignored.

#ifndef QSF_IMPORT_HF_HF_CONFIG_H_
#define QSF_IMPORT_HF_HF_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "io/file.h"

namespace qsf {

// How the matrices of layers are stored where they are ternary.
enum class TernaryStorage : std::uint8_t {
  kNone,        // they are not
  kTimesScale,  // codes, a byte for four rows, or numbers; times NAME_scale
  kOverScale,   // the same; over NAME_scale
  kMasters,     // as they were trained; to be rounded to ternary, by the mean of their magnitudes
};

struct HfConfig {
  ModelSpec spec;  // validate(spec) is OK; natively_ternary, default_type and block not filled in
  // Which biases the weights must have.
  bool qkv_bias = false;
  bool attn_out_bias = false;
  bool ffn_bias = false;
  TernaryStorage ternary = TernaryStorage::kNone;
  std::vector<std::string> warnings;
};

// The texts of the files; empty means that the file is not there. config must be there.
struct HfConfigTexts {
  std::string_view config;
  std::string_view generation_config;
  std::string_view tokenizer_config;
  std::string_view chat_template;       // chat_template.jinja
  std::string_view chat_template_json;  // chat_template.json
};

// Fails  kCorrupt on text that is not JSON or values of a wrong type or range; kUnsupported, naming
//        it, on an architecture or feature that this version does not run. Messages begin with the
//        file's name.
Result<HfConfig> parse_hf_config(const HfConfigTexts& texts);

// Reads the files of `folder`.
// Fails  also kNotFound without config.json, kIo; messages begin with the folder
Result<HfConfig> read_hf_config(const std::string& folder, FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_CONFIG_H_
