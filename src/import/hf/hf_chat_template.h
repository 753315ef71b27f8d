// SPDX-License-Identifier: MIT
//
// The chat template of a Hugging Face folder: how its model writes a conversation.
//
// Folders keep it in one of three files. In order of preference, as the tokenizers of transformers
// take it: chat_template.jinja, "chat_template" of tokenizer_config.json, and that of
// chat_template.json, in which some folders of models with images keep theirs.

#ifndef QSF_IMPORT_HF_HF_CHAT_TEMPLATE_H_
#define QSF_IMPORT_HF_HF_CHAT_TEMPLATE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf {

inline constexpr std::uint64_t kMaxChatTemplateBytes = 4U << 20;
// A template's characters may be written as escapes of six.
inline constexpr std::uint64_t kMaxChatTemplateJsonBytes = 6 * kMaxChatTemplateBytes + 4096;

// The texts of the files; empty means that the file is not there.
struct HfChatTemplateTexts {
  std::string_view jinja;             // chat_template.jinja
  std::string_view tokenizer_config;  // tokenizer_config.json
  std::string_view json;              // chat_template.json
};

struct HfChatTemplate {
  std::string text;  // empty: the model has none; else UTF-8 without NUL, up to 4 MiB
  std::vector<std::string> warnings;
};

// Takes the template, or the one called "default" where a file names several.
// Fails    kCorrupt, beginning with the file's name, on what is not JSON, no template, too long or
//          no text
// Threads  any
Result<HfChatTemplate> read_hf_chat_template(const HfChatTemplateTexts& texts);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_CHAT_TEMPLATE_H_
