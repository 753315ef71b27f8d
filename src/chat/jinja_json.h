// SPDX-License-Identifier: MIT
//
// JSON of a request as values of the template language.
//
// Strings and names of members are untrusted: whoever writes a tool's description, an argument or
// a variable must not be able to write a control token. Numbers and booleans are trusted, since no
// control token consists of them. The roles of messages are trusted as far as they are known
// (is_known_role).

#ifndef QSF_CHAT_JINJA_JSON_H_
#define QSF_CHAT_JINJA_JSON_H_

#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chat_json.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

// Whether templates build control tokens around this role ('<|' + role + '|>').
bool is_known_role(std::string_view role);

// Fails  kUnsupported past the heap's limits
Result<Value> make_value(Heap& heap, const ChatJson& json);

// The same for a message, whose role is trusted when it is known.
Result<Value> make_message_value(Heap& heap, const ChatJson& message);

// Writes `json` as the filter tojson does.
Result<std::string> write_json(const ChatJson& json);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_JSON_H_
