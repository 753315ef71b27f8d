// SPDX-License-Identifier: MIT
//
// The filters of Jinja, `value | name(...)`.

#ifndef QSF_CHAT_JINJA_FILTERS_H_
#define QSF_CHAT_JINJA_FILTERS_H_

#include <span>
#include <string_view>

#include "base/result.h"
#include "chat/jinja_callable.h"

namespace qsf::jinja {

class Interpreter;

using FilterFunction = Result<Value> (*)(Interpreter&, const Value& input, const CallArgs&);

struct FilterEntry {
  std::string_view name;
  FilterFunction apply;
};

// Returns the filter, null when none has this name.
FilterFunction find_filter(std::string_view name);

// Filters of text and numbers, and of sequences and dicts, each in the file of its name.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_FILTERS_H_
