// SPDX-License-Identifier: MIT
//
// What a chat template does with messages, found by rendering small conversations with it.
//
// Templates differ in what they read: some have no place for tools or system messages, some want
// the arguments of a call as text and others as an object. A request looks the same for every
// model, so its messages are adapted to these traits (chat_messages.h).

#ifndef QSF_CHAT_CHAT_TEMPLATE_TRAITS_H_
#define QSF_CHAT_CHAT_TEMPLATE_TRAITS_H_

#include <cstdint>
#include <string_view>

#include "chat/chat_template.h"

namespace qsf {

struct ChatTemplateTraits {
  bool takes_system = false;     // writes a system message that stands first
  bool takes_developer = false;  // treats the role "developer" in a way of its own
  bool takes_text = false;       // writes content that is a string
  bool takes_parts = false;      // writes content that is a list of text parts
  bool takes_tools = false;      // describes the tools
  bool needs_tool_list = false;  // fails where the tools are none; an empty list is well
  bool takes_calls = false;      // writes the calls of an assistant message and their results
  // The rest holds where takes_calls does.
  bool calls_without_content = false;  // only in messages whose content is none
  bool arguments_as_text = false;      // a string of JSON, in place of an object
  bool short_call_ids = false;         // refuses ids that do not have nine letters and digits
  bool single_calls = false;           // refuses or drops further calls of a message
};

// `now_seconds` is the date for templates that write one.
// Threads  any
ChatTemplateTraits find_chat_template_traits(const ChatTemplate& chat_template,
                                             std::string_view bos_token, std::string_view eos_token,
                                             std::int64_t now_seconds);

}  // namespace qsf

#endif  // QSF_CHAT_CHAT_TEMPLATE_TRAITS_H_
