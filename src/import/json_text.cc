// SPDX-License-Identifier: MIT

#include "import/json_text.h"

#include <string>
#include <vector>

namespace qsf {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxDepth = 32;

// Builds the tree from parser events, so that limits act before anything is allocated.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json root;
  std::string problem;
  std::size_t problem_at = 0;

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(Json(value));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return fail("binary data"); }
  bool start_object(std::size_t /*n*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*n*/) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (stack_.back()->contains(name)) return fail("the key \"" + name.substr(0, 64) + "\" twice");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    problem_at = position;
    return fail("no valid JSON");
  }

 private:
  bool fail(std::string what) {
    problem = std::move(what);
    return false;
  }
  Json* place(Json&& value) {
    if (stack_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool add(Json&& value) {
    if (stack_.empty()) return fail("a value that is not an object");
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (stack_.empty() && !value.is_object()) return fail("a value that is not an object");
    if (stack_.size() >= kMaxDepth) return fail("more than 32 levels of nesting");
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  // A parent gets no new elements while a child of it is open, so the pointers stay valid.
  std::vector<Json*> stack_;
  std::string key_;
};

}  // namespace

Result<nlohmann::json> parse_json_object(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    const std::string what = builder.problem.empty() ? "no valid JSON" : builder.problem;
    if (builder.problem_at > 0) {
      return corrupt("%s at byte %zu, expected a JSON object", what.c_str(), builder.problem_at);
    }
    return corrupt("%s, expected a JSON object", what.c_str());
  }
  return std::move(builder.root);
}

}  // namespace qsf
