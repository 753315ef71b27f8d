// SPDX-License-Identifier: MIT
//
// JsonDocument: a parsed JSON text as a compact, read-only tree.
//
// The only unit of src/import that includes a JSON library; every other unit reads JSON through
// this interface. The parser throws nothing and bounds the depth of nesting. Accessors are
// type-checked: a value of another type reads as absent.

#ifndef QSF_IMPORT_JSON_DOCUMENT_H_
#define QSF_IMPORT_JSON_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace qsf {

struct JsonMember;

enum class JsonType : std::uint8_t {
  kNull,
  kBool,
  kUnsigned,  // an integer without a sign, below 2^64
  kSigned,    // an integer with a minus sign, at least -2^63
  kFloat,     // any other number
  kString,
  kArray,
  kObject,
};

// One value of a document: 16 bytes. Texts, elements and members belong to the document.
class JsonValue {
 public:
  constexpr JsonValue() noexcept : unsigned_(0) {}  // null
  static JsonValue of_bool(bool value) noexcept;
  static JsonValue of_unsigned(std::uint64_t value) noexcept;
  static JsonValue of_signed(std::int64_t value) noexcept;
  static JsonValue of_float(double value) noexcept;
  // Requires  the text, elements or members outlive the value; fewer than 2^32 of them
  static JsonValue of_string(std::string_view text) noexcept;
  static JsonValue of_array(std::span<const JsonValue> elements) noexcept;
  // Requires  members are sorted by name, each name once
  static JsonValue of_object(std::span<const JsonMember> members) noexcept;

  JsonType type() const noexcept { return type_; }
  bool is_array() const noexcept { return type_ == JsonType::kArray; }
  bool is_object() const noexcept { return type_ == JsonType::kObject; }
  // Returns the number of elements or members; 0 for other types.
  std::size_t size() const noexcept { return is_array() || is_object() ? size_ : 0; }

  // Return nothing when the value is of another type. number() takes every kind of number.
  std::optional<bool> boolean() const noexcept;
  std::optional<std::uint64_t> unsigned_integer() const noexcept;
  std::optional<double> number() const noexcept;
  std::optional<std::string_view> text() const noexcept;

  // Return an empty range for other types. Members are sorted by name.
  std::span<const JsonValue> elements() const noexcept;
  std::span<const JsonMember> members() const noexcept;

  // Returns whether this is an object with a member of that name.
  bool contains(std::string_view name) const noexcept { return member(name) != nullptr; }
  // Returns the member of that name; null when there is none, when its value is null or when this
  // is not an object.
  const JsonValue* find(std::string_view name) const noexcept;
  // The same, read as a type.
  std::optional<bool> boolean(std::string_view name) const noexcept;
  std::optional<std::uint64_t> unsigned_integer(std::string_view name) const noexcept;
  std::optional<std::string_view> text(std::string_view name) const noexcept;

  // Returns the value for an error message: at most 64 characters on one line, ASCII.
  std::string shown() const;

 private:
  const JsonValue* member(std::string_view name) const noexcept;

  union {
    bool bool_;
    std::uint64_t unsigned_;
    std::int64_t signed_;
    double float_;
    const char* text_;
    const JsonValue* elements_;
    const JsonMember* members_;
  };
  std::uint32_t size_ = 0;  // bytes of the text, elements or members
  JsonType type_ = JsonType::kNull;
};

struct JsonMember {
  std::string_view name;
  JsonValue value;
};

// What an object with the same name twice means.
enum class JsonRepeats : std::uint8_t {
  kRefused,
  kLastCounts,
};

class JsonDocument {
 public:
  // The document {}.
  JsonDocument();
  ~JsonDocument();
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;

  // Parses one JSON object in UTF-8. Memory is at most about 40 times the text, which callers
  // bound.
  // Guarantees  the document does not refer to `text`
  // Fails       kCorrupt, with the byte of a syntax error, on text that is not JSON or not an
  //             object, on more than 32 levels of nesting and on a refused repetition of a name;
  //             kUnsupported on 4 GiB and more
  static Result<JsonDocument> parse(std::string_view text,
                                    JsonRepeats repeats = JsonRepeats::kRefused);

  const JsonValue& root() const noexcept { return root_; }

 private:
  struct Storage;
  std::unique_ptr<Storage> storage_;
  JsonValue root_;
};

// Receives a JSON text piece by piece, for texts too large to hold as a tree. Each function returns
// whether the parser goes on.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  // A null, boolean, number or string, valid during the call.
  virtual bool scalar(const JsonValue& value) = 0;
  virtual bool key(std::string_view name) = 0;
  virtual bool start_object() = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
};

// Parses a text of any depth.
// Returns  the byte of a syntax error; nothing when there is none, or an event stopped the parser
std::optional<std::size_t> read_json_events(std::string_view text, JsonEvents& events);

}  // namespace qsf

#endif  // QSF_IMPORT_JSON_DOCUMENT_H_
