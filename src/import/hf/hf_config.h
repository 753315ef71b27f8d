// SPDX-License-Identifier: MIT
//
// The configuration files of a Hugging Face folder as a ModelSpec.
//
// config.json describes the model, generation_config.json the end-of-text tokens;
// hf_chat_template.h lists the files of the chat template. Types and ranges of all used values are
// checked. Unsupported features are rejected by name, never ignored.

#ifndef QSF_IMPORT_HF_HF_CONFIG_H_
#define QSF_IMPORT_HF_HF_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "io/file.h"

namespace qsf {

// How ternary matrices of layers are stored.
enum class TernaryStorage : std::uint8_t {
  kNone,        // no ternary matrices
  kTimesScale,  // codes, four rows in a byte, or numbers; multiplied by NAME_scale
  kOverScale,   // the same, divided by NAME_scale
  kMasters,     // full-precision master weights; rounded to ternary by their mean magnitude
};

struct HfConfig {
  ModelSpec spec;  // validate(spec) is OK; without natively_ternary, default_type and block
  // Biases that the weights must have.
  bool qkv_bias = false;
  bool attn_out_bias = false;
  bool ffn_bias = false;
  bool head_bias = false;   // of the output head, in families of which some have it
  bool head_norms = false;  // of queries and keys, in families of which some have them
  bool mixer_bias = false;  // of products of layers with a state; so of their convolutions
  bool conv_bias = false;
  bool router_correction = false;  // in families of which some have it
  bool scan_norm = false;          // the same, of what a scan gives
  // Factors of a matrix's rows, which its weights are multiplied by in turn: of the first n_rows,
  // the next ... The last ones hold to the end.
  struct RowFactors {
    std::uint32_t n_rows;
    float first;
    float second;
  };
  std::map<TensorKind, std::vector<RowFactors>> factors;
  // Of the table of tensors, where files name them otherwise than the architecture's others.
  std::string_view tensor_table;
  // Folders of the matrices that what is pooled of a text is multiplied by, in turn: two or none.
  std::vector<std::string> dense_folders;
  TernaryStorage ternary = TernaryStorage::kNone;
  // The model is the text part of a larger one, whose other tensors are left out.
  bool multimodal = false;
  std::uint32_t n_mtp_layers = 0;  // blocks behind the layers that predict further tokens; left out
  std::vector<std::string> warnings;
};

// The texts of the files; empty for an absent file. `config` is required.
struct HfConfigTexts {
  std::string_view config;
  std::string_view generation_config;
  std::string_view tokenizer_config;
  std::string_view chat_template;       // chat_template.jinja
  std::string_view chat_template_json;  // chat_template.json
};

// Fails  kCorrupt on invalid JSON and on values of a wrong type or range; kUnsupported, naming it,
//        on an unsupported architecture or feature. Messages begin with the file's name.
Result<HfConfig> parse_hf_config(const HfConfigTexts& texts);

// Reads the files of `folder`.
// Fails  also kNotFound without config.json, kIo; messages begin with the folder
Result<HfConfig> read_hf_config(const std::string& folder, FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_CONFIG_H_
