// SPDX-License-Identifier: MIT

#include "import/hf/hf_chat_template.h"

#include <utility>

#include "base/utf8_text.h"
#include "import/json_document.h"

namespace qsf {
namespace {

struct NamedTemplate {
  std::string_view name;
  const JsonValue* text;  // null: absent
};

// Several templates are given as a list of {name, template} or as an object of name to template.
Result<std::vector<NamedTemplate>> list_templates(const JsonValue& value) {
  std::vector<NamedTemplate> templates;
  if (value.is_object()) {
    for (const JsonMember& item : value.members()) templates.push_back({item.name, &item.value});
    return templates;
  }
  if (!value.is_array()) {
    return corrupt("chat_template: expected a string or a list of named templates");
  }
  for (const JsonValue& entry : value.elements()) {
    const auto name = entry.text("name");
    if (!name) return corrupt("chat_template: an entry of the list has no name");
    templates.push_back({*name, entry.find("template")});
  }
  return templates;
}

Status take_default(const JsonValue& value, HfChatTemplate& result) {
  QSF_ASSIGN_OR_RETURN(const std::vector<NamedTemplate> templates, list_templates(value));
  constexpr std::size_t kMaxShown = 8;
  bool found = false;
  std::string others;
  std::size_t n_others = 0;
  for (const NamedTemplate& entry : templates) {
    if (entry.name != "default") {
      if (n_others++ < kMaxShown)
        others +=
            (others.empty() ? "" : ", ") + JsonValue::of_string(entry.name.substr(0, 40)).shown();
      continue;
    }
    const auto text = entry.text == nullptr ? std::nullopt : entry.text->text();
    if (!text) return corrupt("chat_template: the entry \"default\" has no template");
    if (!found) result.text = *text;
    found = true;
  }
  if (n_others > kMaxShown) others += " and " + std::to_string(n_others - kMaxShown) + " more";
  if (!found) {
    result.warnings.push_back("no chat template is named \"default\"" +
                              (others.empty() ? others : ": " + others));
  } else if (n_others > 0) {
    result.warnings.push_back("the chat template \"default\" is used; ignored: " + others);
  }
  return ok_status();
}

Status read_json(std::string_view text, HfChatTemplate& result) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::parse(text));
  const JsonValue* value = json.root().find("chat_template");
  if (value == nullptr) return ok_status();
  if (const auto only = value->text()) {
    result.text = *only;
    return ok_status();
  }
  return take_default(*value, result);
}

Status check_text(std::string_view text) {
  if (text.size() > kMaxChatTemplateBytes) {
    return corrupt("chat template: %zu bytes, expected at most 4 MiB", text.size());
  }
  const std::size_t at = find_non_text(text);
  if (at == text.size()) return ok_status();
  return corrupt("chat template: byte %zu is NUL or invalid UTF-8; save the file as UTF-8 text",
                 at);
}

}  // namespace

Result<HfChatTemplate> read_hf_chat_template(const HfChatTemplateTexts& texts) {
  HfChatTemplate result;
  if (!texts.jinja.empty()) {
    result.text = std::string(texts.jinja);
    QSF_RETURN_IF_ERROR(check_text(result.text).with_context("chat_template.jinja"));
    return result;
  }
  const std::pair<const char*, std::string_view> files[] = {
      {"tokenizer_config.json", texts.tokenizer_config}, {"chat_template.json", texts.json}};
  for (const auto& [name, text] : files) {
    if (text.empty() || !result.text.empty()) continue;
    const std::size_t n_before = result.warnings.size();
    QSF_RETURN_IF_ERROR(read_json(text, result).with_context(name));
    for (std::size_t i = n_before; i < result.warnings.size(); ++i) {
      result.warnings[i].insert(0, std::string(name) + ": ");
    }
    QSF_RETURN_IF_ERROR(check_text(result.text).with_context(name));
  }
  return result;
}

}  // namespace qsf
