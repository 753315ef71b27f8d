// SPDX-License-Identifier: MIT
//
// JSON of requests: messages, tools and template variables, as a tree that can be changed.
//
// Templates print tools and arguments again, so the order of members and the digits of long
// integers are kept. Everything is bounded, since the text comes from clients.

#ifndef QSF_CHAT_CHAT_JSON_H_
#define QSF_CHAT_CHAT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace qsf {

// Nesting of lists and objects. A template's values may be nested 60 levels deep (jinja_value.h),
// and it wraps those of a request.
inline constexpr int kMaxChatJsonDepth = 40;
inline constexpr std::size_t kMaxChatJsonBytes = std::size_t{16} << 20U;
// Values of a text, 100 bytes each: far more than a thousand messages and a hundred tools have.
inline constexpr std::size_t kMaxChatJsonValues = 200'000;

enum class ChatJsonType : std::uint8_t {
  kNull,
  kBool,
  kInteger,
  kLongInteger,  // beyond 64 bits
  kFloat,
  kString,
  kArray,
  kObject,
};

struct ChatJson {
  ChatJsonType type = ChatJsonType::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;
  std::string text;                // of a string; the digits of a long integer
  std::vector<std::string> names;  // of an object's members
  std::vector<ChatJson> items;     // of an array or object

  static ChatJson of_string(std::string_view text);
  static ChatJson of_array(std::vector<ChatJson> items = {});
  static ChatJson of_object(std::vector<std::pair<std::string_view, ChatJson>> members = {});

  bool is_null() const noexcept { return type == ChatJsonType::kNull; }
  bool is_string() const noexcept { return type == ChatJsonType::kString; }
  bool is_array() const noexcept { return type == ChatJsonType::kArray; }
  bool is_object() const noexcept { return type == ChatJsonType::kObject; }
  bool is_string(std::string_view expected) const noexcept {
    return is_string() && text == expected;
  }

  // Return the last member of that name, as Python reads repetitions; null when there is none or
  // this is no object.
  const ChatJson* find(std::string_view name) const noexcept;
  ChatJson* find(std::string_view name) noexcept;
  // The same, null also for members of another type.
  const std::string* find_string(std::string_view name) const noexcept;

  // Replaces that member, or adds it at the end. Requires  an object
  void set(std::string_view name, ChatJson value);
  // Drops every member of that name.
  void remove(std::string_view name);
};

// Parses one JSON value in UTF-8.
// Fails  kInvalidArgument, naming `what` and the byte: text that is not JSON; more than `max_depth`
//        levels, kMaxChatJsonBytes or kMaxChatJsonValues; numbers beyond the range of a double
Result<ChatJson> parse_chat_json(std::string_view text, const char* what,
                                 int max_depth = kMaxChatJsonDepth);

}  // namespace qsf

#endif  // QSF_CHAT_CHAT_JSON_H_
