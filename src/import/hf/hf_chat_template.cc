// SPDX-License-Identifier: MIT

#include "import/hf/hf_chat_template.h"

#include <utility>

#include "base/utf8_text.h"
#include "import/json_access.h"
#include "import/json_text.h"

namespace qsf {
namespace {

struct NamedTemplate {
  std::string name;
  const Json* text;
};

// Several templates are a list of {name, template}, or an object of names and templates.
Result<std::vector<NamedTemplate>> list_templates(const Json& value) {
  std::vector<NamedTemplate> templates;
  if (value.is_object()) {
    for (const auto& item : value.items()) templates.push_back({item.key(), &item.value()});
    return templates;
  }
  if (!value.is_array()) {
    return corrupt("chat_template: expected a string or a list of named templates");
  }
  for (const Json& entry : value) {
    const std::string* name = json_string(entry, "name");
    if (name == nullptr) return corrupt("chat_template: an entry of the list has no name");
    templates.push_back({*name, json_member(entry, "template")});
  }
  return templates;
}

// The names as they may stand in a message: short, on one line, ASCII.
std::string shown(const std::string& name) {
  return Json(name.substr(0, 40)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Status take_default(const Json& value, HfChatTemplate& result) {
  QSF_ASSIGN_OR_RETURN(const std::vector<NamedTemplate> templates, list_templates(value));
  constexpr std::size_t kMaxShown = 8;
  bool found = false;
  std::string others;
  std::size_t n_others = 0;
  for (const NamedTemplate& entry : templates) {
    if (entry.name != "default") {
      if (n_others++ < kMaxShown) others += (others.empty() ? "" : ", ") + shown(entry.name);
      continue;
    }
    const std::string* text = entry.text == nullptr ? nullptr : json_string(*entry.text);
    if (text == nullptr) return corrupt("chat_template: the entry \"default\" has no template");
    if (!found) result.text = *text;
    found = true;
  }
  if (n_others > kMaxShown) others += " and " + std::to_string(n_others - kMaxShown) + " more";
  if (!found) {
    result.warnings.push_back("none of its chat templates is called default" +
                              (others.empty() ? others : ": " + others));
  } else if (n_others > 0) {
    result.warnings.push_back("of its chat templates \"default\" is taken; left out: " + others);
  }
  return ok_status();
}

Status read_json(std::string_view text, HfChatTemplate& result) {
  QSF_ASSIGN_OR_RETURN(const Json json, parse_json_object(text));
  const Json* value = json_member(json, "chat_template");
  if (value == nullptr) return ok_status();
  if (const std::string* only = json_string(*value); only != nullptr) {
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
  return corrupt("chat template: byte %zu is NUL or no UTF-8; save it as UTF-8 text", at);
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
