// SPDX-License-Identifier: MIT

#include "chat/jinja_json.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "chat/jinja_format.h"

namespace qsf::jinja {
namespace {

constexpr std::array<std::string_view, 12> kKnownRoles = {
    "system",      "user",  "assistant", "tool",    "developer", "function",
    "environment", "model", "ipython",   "context", "tool_call", "tool_response"};

Result<Value> make_object(Heap& heap, const ChatJson& json, bool is_message) {
  std::vector<DictEntry> entries(json.items.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    QSF_ASSIGN_OR_RETURN(entries[i].key, heap.make_text(json.names[i], false));
    const ChatJson& item = json.items[i];
    if (is_message && json.names[i] == "role" && item.is_string()) {
      QSF_ASSIGN_OR_RETURN(entries[i].value, heap.make_text(item.text, is_known_role(item.text)));
    } else {
      QSF_ASSIGN_OR_RETURN(entries[i].value, make_value(heap, item));
    }
  }
  return heap.make_dict(entries);
}

}  // namespace

bool is_known_role(std::string_view role) {
  return std::find(kKnownRoles.begin(), kKnownRoles.end(), role) != kKnownRoles.end();
}

Result<Value> make_value(Heap& heap, const ChatJson& json) {
  switch (json.type) {
    case ChatJsonType::kNull: break;
    case ChatJsonType::kBool: return make_bool(json.boolean);
    case ChatJsonType::kInteger: return make_int(json.integer);
    case ChatJsonType::kLongInteger: return make_long_int(json.text);
    case ChatJsonType::kFloat: return make_float(json.number);
    case ChatJsonType::kString: return heap.make_text(json.text, false);
    case ChatJsonType::kArray: {
      std::vector<Value> items;
      items.reserve(json.items.size());
      for (const ChatJson& item : json.items) {
        QSF_ASSIGN_OR_RETURN(Value value, make_value(heap, item));
        items.push_back(std::move(value));
      }
      return heap.make_list(ListKind::kList, std::move(items));
    }
    case ChatJsonType::kObject: return make_object(heap, json, false);
  }
  return make_none();
}

Result<Value> make_message_value(Heap& heap, const ChatJson& message) {
  if (!message.is_object()) return make_value(heap, message);
  return make_object(heap, message, true);
}

Result<std::string> write_json(const ChatJson& json) {
  Heap heap({});
  QSF_ASSIGN_OR_RETURN(const Value value, make_value(heap, json));
  QSF_ASSIGN_OR_RETURN(const Text text, to_json(heap, value,
                                                {.ensure_ascii = false,
                                                 .indent = {},
                                                 .item_separator = Text(", ", true),
                                                 .key_separator = Text(": ", true)}));
  return text.bytes();
}

}  // namespace qsf::jinja
