// SPDX-License-Identifier: MIT
//
// Chat prompts of a request: messages, tools and template variables as JSON, in; the prompt's
// tokens, out. Nothing of a conversation is kept, unlike in a Chat.
//
// Only the template and the known roles can write control tokens (engine/chat_format.h).

#ifndef QSF_ENGINE_CHAT_PROMPTS_H_
#define QSF_ENGINE_CHAT_PROMPTS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/chat_template_traits.h"
#include "engine/chat_format.h"

namespace qsf {

struct ChatPromptOptions {
  std::string_view messages;       // a JSON array
  std::string_view tools;          // a JSON array, or null; empty: none
  std::string_view variables;      // a JSON object, or null; empty: none
  std::string_view chat_template;  // as ChatFormat::create takes it
  std::int64_t now_seconds = 0;    // the date for templates
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message's text goes on; no generation prompt
};

struct ChatPrompt {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<TokenId> end_tokens;  // as those of ChatFormat
  std::vector<std::string> end_texts;
  bool merges_system = false;
  bool tools_in_system = false;
};

class ChatPrompts {
 public:
  // Requires  both outlive this object
  ChatPrompts(const ModelSpec& spec, const Tokenizer& tokenizer)
      : spec_(spec), tokenizer_(tokenizer) {}

  // Fails    kInvalidArgument: JSON that cannot be read, with the byte; messages, tools or
  //          variables of another form, by name; what the template raises. kUnsupported: past the
  //          limits of ChatTemplate::render. As ChatFormat::create
  // Threads  any
  Result<ChatPrompt> make(const ChatPromptOptions& options);

 private:
  struct Prepared {
    std::string name_or_source;
    ChatFormat format;
    ChatTemplateTraits traits;
  };

  // Returns a parsed template, one of the last few or new.
  Result<std::shared_ptr<const Prepared>> prepare(std::string_view name_or_source,
                                                  std::int64_t now_seconds);

  const ModelSpec& spec_;
  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Prepared>> kept_;  // the last used at the end
};

}  // namespace qsf

#endif  // QSF_ENGINE_CHAT_PROMPTS_H_
