// SPDX-License-Identifier: MIT
//
// Finds the chat template of a Hugging Face folder.
//
// In order of preference, as in transformers: chat_template.jinja, "chat_template" of
// tokenizer_config.json, and "chat_template" of chat_template.json (some models with images).

#ifndef QSF_IMPORT_HF_HF_CHAT_TEMPLATE_H_
#define QSF_IMPORT_HF_HF_CHAT_TEMPLATE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf {

inline constexpr std::uint64_t kMaxChatTemplateBytes = 4U << 20;
// JSON may write each character of a template as an escape of six.
inline constexpr std::uint64_t kMaxChatTemplateJsonBytes = 6 * kMaxChatTemplateBytes + 4096;

// The texts of the files; empty for an absent file.
struct HfChatTemplateTexts {
  std::string_view jinja;             // chat_template.jinja
  std::string_view tokenizer_config;  // tokenizer_config.json
  std::string_view json;              // chat_template.json
};

struct HfChatTemplate {
  std::string text;  // UTF-8 without NUL, up to 4 MiB; empty when the model has none
  std::vector<std::string> warnings;
};

// Returns the template, or the one named "default" where a file has several.
// Fails    kCorrupt, beginning with the file's name, on invalid JSON, a value that is not a
//          template, a template that is too long and invalid text
// Threads  any
Result<HfChatTemplate> read_hf_chat_template(const HfChatTemplateTexts& texts);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_CHAT_TEMPLATE_H_
