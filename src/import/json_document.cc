// SPDX-License-Identifier: MIT

#include "import/json_document.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace qsf {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxJsonDepth = 32;
constexpr std::size_t kMaxShown = 64;

// Hands the events of the parser on.
class EventAdapter {
 public:
  explicit EventAdapter(JsonEvents& events) : events_(events) {}

  std::optional<std::size_t> error_at() const noexcept { return error_at_; }

  bool null() { return events_.scalar(JsonValue()); }
  bool boolean(bool value) { return events_.scalar(JsonValue::of_bool(value)); }
  bool number_integer(Json::number_integer_t value) {
    return events_.scalar(JsonValue::of_signed(value));
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    return events_.scalar(JsonValue::of_unsigned(value));
  }
  bool number_float(Json::number_float_t value, const Json::string_t& /*text*/) {
    return events_.scalar(JsonValue::of_float(value));
  }
  bool string(Json::string_t& value) { return events_.scalar(JsonValue::of_string(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }  // never in a text
  bool start_object(std::size_t /*n*/) { return events_.start_object(); }
  bool start_array(std::size_t /*n*/) { return events_.start_array(); }
  bool end_object() { return events_.end_object(); }
  bool end_array() { return events_.end_array(); }
  bool key(Json::string_t& name) { return events_.key(name); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*error*/) {
    error_at_ = position;
    return false;
  }

 private:
  JsonEvents& events_;
  std::optional<std::size_t> error_at_;
};

// Arrays whose addresses stay, allocated many at a time.
template <typename T>
class Pool {
 public:
  std::span<T> copy(std::span<const T> from) {
    if (from.size() > left_) {
      constexpr std::size_t kPerBlock = 1024;
      left_ = std::max(kPerBlock, from.size());
      blocks_.push_back(std::make_unique<T[]>(left_));
      next_ = blocks_.back().get();
    }
    std::copy(from.begin(), from.end(), next_);
    const std::span<T> made(next_, from.size());
    next_ += from.size();
    left_ -= from.size();
    return made;
  }

 private:
  std::vector<std::unique_ptr<T[]>> blocks_;
  T* next_ = nullptr;
  std::size_t left_ = 0;
};

}  // namespace

JsonValue JsonValue::of_bool(bool value) noexcept {
  JsonValue made;
  made.bool_ = value;
  made.type_ = JsonType::kBool;
  return made;
}

JsonValue JsonValue::of_unsigned(std::uint64_t value) noexcept {
  JsonValue made;
  made.unsigned_ = value;
  made.type_ = JsonType::kUnsigned;
  return made;
}

JsonValue JsonValue::of_signed(std::int64_t value) noexcept {
  JsonValue made;
  made.signed_ = value;
  made.type_ = JsonType::kSigned;
  return made;
}

JsonValue JsonValue::of_float(double value) noexcept {
  JsonValue made;
  made.float_ = value;
  made.type_ = JsonType::kFloat;
  return made;
}

JsonValue JsonValue::of_string(std::string_view text) noexcept {
  JsonValue made;
  made.text_ = text.data();
  made.size_ = static_cast<std::uint32_t>(text.size());
  made.type_ = JsonType::kString;
  return made;
}

JsonValue JsonValue::of_array(std::span<const JsonValue> elements) noexcept {
  JsonValue made;
  made.elements_ = elements.data();
  made.size_ = static_cast<std::uint32_t>(elements.size());
  made.type_ = JsonType::kArray;
  return made;
}

JsonValue JsonValue::of_object(std::span<const JsonMember> members) noexcept {
  JsonValue made;
  made.members_ = members.data();
  made.size_ = static_cast<std::uint32_t>(members.size());
  made.type_ = JsonType::kObject;
  return made;
}

std::optional<bool> JsonValue::boolean() const noexcept {
  if (type_ != JsonType::kBool) return std::nullopt;
  return bool_;
}

std::optional<std::uint64_t> JsonValue::unsigned_integer() const noexcept {
  if (type_ != JsonType::kUnsigned) return std::nullopt;
  return unsigned_;
}

std::optional<double> JsonValue::number() const noexcept {
  if (type_ == JsonType::kUnsigned) return static_cast<double>(unsigned_);
  if (type_ == JsonType::kSigned) return static_cast<double>(signed_);
  if (type_ == JsonType::kFloat) return float_;
  return std::nullopt;
}

std::optional<std::string_view> JsonValue::text() const noexcept {
  if (type_ != JsonType::kString) return std::nullopt;
  return std::string_view(text_, size_);
}

std::span<const JsonValue> JsonValue::elements() const noexcept {
  if (!is_array()) return {};
  return {elements_, size_};
}

std::span<const JsonMember> JsonValue::members() const noexcept {
  if (!is_object()) return {};
  return {members_, size_};
}

const JsonValue* JsonValue::member(std::string_view name) const noexcept {
  const std::span<const JsonMember> all = members();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const JsonMember& member, std::string_view key) { return member.name < key; });
  return found != all.end() && found->name == name ? &found->value : nullptr;
}

const JsonValue* JsonValue::find(std::string_view name) const noexcept {
  const JsonValue* value = member(name);
  return value == nullptr || value->type_ == JsonType::kNull ? nullptr : value;
}

std::optional<bool> JsonValue::boolean(std::string_view name) const noexcept {
  const JsonValue* value = member(name);
  return value == nullptr ? std::nullopt : value->boolean();
}

std::optional<std::uint64_t> JsonValue::unsigned_integer(std::string_view name) const noexcept {
  const JsonValue* value = member(name);
  return value == nullptr ? std::nullopt : value->unsigned_integer();
}

std::optional<std::string_view> JsonValue::text(std::string_view name) const noexcept {
  const JsonValue* value = member(name);
  return value == nullptr ? std::nullopt : value->text();
}

std::string JsonValue::shown() const {
  Json json;
  switch (type_) {
    case JsonType::kNull: break;
    case JsonType::kBool: json = bool_; break;
    case JsonType::kUnsigned: json = unsigned_; break;
    case JsonType::kSigned: json = signed_; break;
    case JsonType::kFloat: json = float_; break;
    case JsonType::kString:
      json = std::string(text_, std::min<std::size_t>(size_, kMaxShown));
      break;
    case JsonType::kArray: return "a list";
    case JsonType::kObject: return "an object";
  }
  std::string shown = json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (shown.size() > kMaxShown) shown = shown.substr(0, kMaxShown - 3) + "...";
  return shown;
}

struct JsonDocument::Storage {
  std::unique_ptr<char[]> texts;
  Pool<JsonValue> values;
  Pool<JsonMember> members;
};

namespace {

// Collects the values of open arrays and objects on two stacks and moves them into a pool when the
// container ends.
class TreeBuilder final : public JsonEvents {
 public:
  // Requires  `texts` has room for the whole text: a string is never longer than it is written
  TreeBuilder(char* texts, Pool<JsonValue>& values, Pool<JsonMember>& members, JsonRepeats repeats)
      : next_text_(texts), value_pool_(values), member_pool_(members), repeats_(repeats) {}

  const std::string& problem() const noexcept { return problem_; }
  const JsonValue& root() const noexcept { return values_.front(); }

  bool scalar(const JsonValue& value) override {
    if (open_.empty()) return fail("the JSON text is not an object");
    const std::optional<std::string_view> text = value.text();
    values_.push_back(text ? JsonValue::of_string(store(*text)) : value);
    return true;
  }
  bool key(std::string_view name) override {
    names_.push_back(store(name));
    return true;
  }
  bool start_object() override { return start(); }
  bool start_array() override {
    return open_.empty() ? fail("the JSON text is not an object") : start();
  }
  bool end_array() override {
    const std::span<const JsonValue> elements =
        std::span(values_).subspan(open_.back().first_value);
    finish(JsonValue::of_array(value_pool_.copy(elements)));
    return true;
  }
  bool end_object() override {
    const Container& object = open_.back();
    members_.clear();
    for (std::size_t i = 0; object.first_name + i < names_.size(); ++i) {
      members_.push_back({names_[object.first_name + i], values_[object.first_value + i]});
    }
    names_.resize(object.first_name);
    if (!sort_members()) return false;
    finish(JsonValue::of_object(member_pool_.copy(members_)));
    return true;
  }

 private:
  struct Container {
    std::size_t first_value = 0;
    std::size_t first_name = 0;
  };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  std::string_view store(std::string_view text) {
    if (!text.empty()) std::memcpy(next_text_, text.data(), text.size());
    const std::string_view stored(next_text_, text.size());
    next_text_ += text.size();
    return stored;
  }
  bool start() {
    if (open_.size() >= kMaxJsonDepth) return fail("the JSON text nests more than 32 levels deep");
    open_.push_back({values_.size(), names_.size()});
    return true;
  }
  void finish(JsonValue value) {
    values_.resize(open_.back().first_value);
    values_.push_back(value);
    open_.pop_back();
  }
  bool sort_members() {
    std::stable_sort(members_.begin(), members_.end(),
                     [](const JsonMember& a, const JsonMember& b) { return a.name < b.name; });
    std::size_t n = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const bool repeats = n > 0 && members_[n - 1].name == members_[i].name;
      if (repeats && repeats_ == JsonRepeats::kRefused) {
        return fail("the key " + JsonValue::of_string(members_[i].name).shown() +
                    " appears twice in one object");
      }
      members_[repeats ? n - 1 : n++] = members_[i];
    }
    members_.resize(n);
    return true;
  }

  char* next_text_;
  Pool<JsonValue>& value_pool_;
  Pool<JsonMember>& member_pool_;
  JsonRepeats repeats_;
  std::string problem_;
  std::vector<Container> open_;
  std::vector<JsonValue> values_;        // of all open containers; in the end the root
  std::vector<std::string_view> names_;  // of all open objects
  std::vector<JsonMember> members_;      // of the object that ends
};

}  // namespace

JsonDocument::JsonDocument() : root_(JsonValue::of_object({})) {}
JsonDocument::~JsonDocument() = default;
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;

Result<JsonDocument> JsonDocument::parse(std::string_view text, JsonRepeats repeats) {
  if (text.size() > UINT32_MAX) {
    return unsupported("%zu bytes of JSON, expected less than 4 GiB", text.size());
  }
  JsonDocument document;
  document.storage_ = std::make_unique<Storage>();
  Storage& storage = *document.storage_;
  storage.texts = std::make_unique_for_overwrite<char[]>(text.size());
  TreeBuilder builder(storage.texts.get(), storage.values, storage.members, repeats);
  if (const auto error_at = read_json_events(text, builder)) {
    return corrupt("not valid JSON: syntax error at byte %zu", *error_at);
  }
  if (!builder.problem().empty()) {
    return corrupt("%s", builder.problem().c_str());
  }
  document.root_ = builder.root();
  return document;
}

std::optional<std::size_t> read_json_events(std::string_view text, JsonEvents& events) {
  EventAdapter adapter(events);
  static_cast<void>(Json::sax_parse(text.begin(), text.end(), &adapter));
  return adapter.error_at();
}

}  // namespace qsf
