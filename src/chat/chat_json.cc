// SPDX-License-Identifier: MIT

#include "chat/chat_json.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace qsf {
namespace {

using Json = nlohmann::json;

// Builds the tree from the parser's events.
class ChatJsonBuilder {
 public:
  ChatJsonBuilder(const char* what, int max_depth) : what_(what), max_depth_(max_depth) {}

  bool null() { return add({}); }
  bool boolean(bool value) {
    ChatJson json;
    json.type = ChatJsonType::kBool;
    json.boolean = value;
    return add(std::move(json));
  }
  bool number_integer(Json::number_integer_t value) { return add_integer(value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add_integer(static_cast<std::int64_t>(value));
    }
    return add_digits(std::to_string(value));
  }
  bool number_float(Json::number_float_t value, const Json::string_t& digits) {
    if (digits.find_first_of(".eE") == std::string::npos) return add_digits(digits);
    ChatJson json;
    json.type = ChatJsonType::kFloat;
    json.number = value;
    return add(std::move(json));
  }
  bool string(Json::string_t& value) {
    ChatJson json;
    json.type = ChatJsonType::kString;
    json.text = std::move(value);
    return add(std::move(json));
  }
  bool binary(Json::binary_t& /*value*/) { return false; }  // never in a text
  bool start_object(std::size_t /*n*/) { return open(ChatJsonType::kObject); }
  bool start_array(std::size_t /*n*/) { return open(ChatJsonType::kArray); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(Json::string_t& name) {
    open_.back()->names.push_back(std::move(name));
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token,
                   const Json::exception& /*error*/) {
    constexpr int kShownBytes = 40;
    status_ = invalid_argument("%s: byte %zu: not valid JSON, at '%.*s'", what_,
                               position == 0 ? 0 : position - 1, kShownBytes, token.c_str());
    return false;
  }

  Result<ChatJson> take() {
    if (!status_.ok()) return std::move(status_);
    return std::move(root_);
  }

 private:
  bool add_integer(std::int64_t value) {
    ChatJson json;
    json.type = ChatJsonType::kInteger;
    json.integer = value;
    return add(std::move(json));
  }

  bool add_digits(std::string digits) {
    ChatJson json;
    json.type = ChatJsonType::kLongInteger;
    json.text = std::move(digits);
    return add(std::move(json));
  }

  bool add(ChatJson json) {
    if (++n_values_ > kMaxChatJsonValues) {
      status_ = invalid_argument("%s: more than %zu values", what_, kMaxChatJsonValues);
      return false;
    }
    ChatJson* place = &root_;
    if (!open_.empty()) place = &open_.back()->items.emplace_back();
    *place = std::move(json);
    return true;
  }

  bool open(ChatJsonType type) {
    if (static_cast<int>(open_.size()) == max_depth_) {
      status_ = invalid_argument("%s: nested deeper than %d levels", what_, max_depth_);
      return false;
    }
    ChatJson json;
    json.type = type;
    ChatJson* const parent = open_.empty() ? nullptr : open_.back();
    if (!add(std::move(json))) return false;
    open_.push_back(parent == nullptr ? &root_ : &parent->items.back());
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const char* what_;
  int max_depth_;
  ChatJson root_;
  // A parent gets no further item while one of its items is open, so these stay valid.
  std::vector<ChatJson*> open_;
  std::size_t n_values_ = 0;
  Status status_;
};

}  // namespace

ChatJson ChatJson::of_string(std::string_view text) {
  ChatJson json;
  json.type = ChatJsonType::kString;
  json.text = text;
  return json;
}

ChatJson ChatJson::of_array(std::vector<ChatJson> items) {
  ChatJson json;
  json.type = ChatJsonType::kArray;
  json.items = std::move(items);
  return json;
}

ChatJson ChatJson::of_object(std::vector<std::pair<std::string_view, ChatJson>> members) {
  ChatJson json;
  json.type = ChatJsonType::kObject;
  for (auto& [name, value] : members) json.set(name, std::move(value));
  return json;
}

const ChatJson* ChatJson::find(std::string_view name) const noexcept {
  if (!is_object()) return nullptr;
  for (std::size_t i = names.size(); i > 0; --i) {
    if (names[i - 1] == name) return &items[i - 1];
  }
  return nullptr;
}

ChatJson* ChatJson::find(std::string_view name) noexcept {
  return const_cast<ChatJson*>(std::as_const(*this).find(name));
}

const std::string* ChatJson::find_string(std::string_view name) const noexcept {
  const ChatJson* found = find(name);
  return found != nullptr && found->is_string() ? &found->text : nullptr;
}

void ChatJson::set(std::string_view name, ChatJson value) {
  if (ChatJson* found = find(name)) {
    *found = std::move(value);
    return;
  }
  names.emplace_back(name);
  items.push_back(std::move(value));
}

void ChatJson::remove(std::string_view name) {
  std::size_t n_kept = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) continue;
    if (n_kept != i) {
      names[n_kept] = std::move(names[i]);
      items[n_kept] = std::move(items[i]);
    }
    ++n_kept;
  }
  names.resize(n_kept);
  items.resize(n_kept);
}

Result<ChatJson> parse_chat_json(std::string_view text, const char* what, int max_depth) {
  if (text.size() > kMaxChatJsonBytes) {
    return invalid_argument("%s: %zu bytes, expected at most %zu", what, text.size(),
                            kMaxChatJsonBytes);
  }
  // The parser would take a NUL for the end.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    return invalid_argument("%s: byte %zu: not valid JSON, a NUL", what, at);
  }
  ChatJsonBuilder builder(what, max_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace qsf
