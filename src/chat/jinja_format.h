// SPDX-License-Identifier: MIT
//
// Values as text: Python's str(), repr() and json.dumps(). Text of a message stays untrusted in all
// three, escaped or not; the quotes, brackets and separators around it are trusted.

#ifndef QSF_CHAT_JINJA_FORMAT_H_
#define QSF_CHAT_JINJA_FORMAT_H_

#include <optional>
#include <string>

#include "base/result.h"
#include "chat/jinja_text.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

// Fails  kUnsupported: functions, generators, loops and namespaces, whose text in Python is an
// address
//        or an internal name; lists and dicts with text beyond ASCII, whose escapes need Unicode's
//        table of printable characters
Result<Text> to_str(Heap& heap, const Value& value);
Result<Text> to_repr(Heap& heap, const Value& value);

struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<Text> indent;  // of one level
  Text item_separator;
  Text key_separator;
};

// Fails  kInvalidArgument: a function, generator, loop, namespace or undefined value
Result<Text> to_json(Heap& heap, const Value& value, const JsonOptions& options);

// Python's repr of a float: the shortest digits that read back as `value`.
std::string format_float(double value);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_FORMAT_H_
