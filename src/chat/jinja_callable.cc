// SPDX-License-Identifier: MIT

#include "chat/jinja_callable.h"

#include <algorithm>

namespace qsf::jinja {

const Value* CallArgs::find_keyword(std::string_view name) const {
  const auto found = std::find_if(keywords.begin(), keywords.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == keywords.end() ? nullptr : &found->second;
}

Result<std::vector<const Value*>> bind_arguments(const CallArgs& args, std::string_view callee,
                                                 std::initializer_list<std::string_view> names) {
  const std::string where(callee);
  if (args.positional.size() > names.size()) {
    return invalid_argument("%s: got %zu arguments, expected at most %zu", where.c_str(),
                            args.positional.size(), names.size());
  }
  std::vector<const Value*> bound(names.size(), nullptr);
  for (std::size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return invalid_argument("%s: no argument is called '%s'", where.c_str(), name.c_str());
    }
    const Value*& slot = bound[static_cast<std::size_t>(found - names.begin())];
    if (slot != nullptr) {
      return invalid_argument("%s: argument '%s' is given twice", where.c_str(), name.c_str());
    }
    slot = &value;
  }
  return bound;
}

}  // namespace qsf::jinja
