// SPDX-License-Identifier: MIT
//
// Messages and tools of a request, in OpenAI's form, adapted to one chat template.
//
// What a template cannot read is rewritten so that nothing is lost: parts are joined to text, a
// system message without a place opens the first user message, and tools that a template cannot
// describe come in a system message, with calls and results as text (the form of the Hermes
// models). A call of the history whose arguments are no JSON object stays text: a model may have
// written it, and a conversation must go on after that.

#ifndef QSF_CHAT_CHAT_MESSAGES_H_
#define QSF_CHAT_CHAT_MESSAGES_H_

#include <optional>
#include <string_view>

#include "base/result.h"
#include "chat/chat_json.h"
#include "chat/chat_template_traits.h"

namespace qsf {

// Ends the text that goes on, see AdaptedChat; two characters for private use.
inline constexpr std::string_view kContinueMark = "\xEE\x83\xBF\xEE\x83\xBE";

struct AdaptedChat {
  ChatJson messages;               // an array
  std::optional<ChatJson> tools;   // an array, empty only for a template that needs one
  bool tools_in_system = false;    // tools had no place
  bool has_odd_arguments = false;  // a call's arguments are text where the template takes objects
};

// Adapts `messages`, an array, and `tools`, an array, null or not given. With `continue_final` the
// text of the last message, an assistant's, gets kContinueMark at its end.
// Fails  kInvalidArgument, naming message and field: other than objects with a role, content that
//        is neither text nor text parts, calls or tools without a name, no messages
Result<AdaptedChat> adapt_chat(ChatJson messages, std::optional<ChatJson> tools,
                               const ChatTemplateTraits& traits, bool continue_final);

// Puts arguments that stayed text into an object, for templates that refuse the text.
void wrap_odd_arguments(AdaptedChat& chat);

}  // namespace qsf

#endif  // QSF_CHAT_CHAT_MESSAGES_H_
