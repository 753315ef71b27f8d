// SPDX-License-Identifier: MIT
//
// A request for text in terms of no interface, and the answer as it comes.
//
// An interface (OpenAI's, Anthropic's, ollama's) is two parts: a function that reads a body into a
// ChatCall, and an AnswerFormat that writes the answer's bytes. ChatJob (chat_job.h) does what lies
// between: the prompt, the constraint, the parts of the answer.

#ifndef QSF_TOOLS_SERVE_API_CHAT_CALL_H_
#define QSF_TOOLS_SERVE_API_CHAT_CALL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/syntax/chat_syntax.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

// Text or tokens that a model completes as they are, without a chat template.
struct RawPrompt {
  std::string text;
  std::optional<std::vector<int>> tokens;  // in place of the text
  bool parse_special = true;               // of special tokens in the text
  bool add_bos = true;                     // where the model's tokenizer does
  std::optional<std::string> suffix;  // the model fills in what stands before it (fim_prompt.h)
};

struct ChatCall {
  std::string model;       // as the client named it; may be empty
  std::string cache_salt;  // prefixes are shared among requests with the same one alone

  // A conversation in OpenAI's form, unless `raw` has prompts. normalize_messages() has checked it.
  std::string messages;   // a JSON array
  std::string tools;      // a JSON array of {type, function{name, description, parameters}}, or ""
  std::string variables;  // a JSON object: further variables of the template, or ""
  ToolUse tool_use;       // the same tools
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the answer continues the last message
  bool split_reasoning = true;          // false: reasoning stays in the text, with its markers

  std::vector<RawPrompt> raw;

  int n = 1;  // answers for each prompt; those of one prompt follow each other
  std::optional<std::uint64_t> seed;  // of the first answer; the others have seed + 1, ...
  // All else of each text: `prompt` and the seed are set from the above.
  TextRequest text;
  bool stream = false;
  // Where the prompt exceeds the context, the oldest turns are left out rather than refused.
  bool drops_oldest = false;
  int max_context = 0;  // most tokens of a prompt and its answer, if the model's context has more
};

// A token that was drawn, for log probabilities.
struct AnswerToken {
  struct Candidate {
    int token = 0;
    std::string bytes;  // as the tokenizer decodes it; perhaps a part of a character
    float log_prob = 0.0F;
  };
  Candidate drawn;
  std::vector<Candidate> top;  // the likeliest; as many as were asked for
};

struct AnswerStart {
  const LoadedModel* model = nullptr;  // as long as the job
  std::string model_name;              // as the client named it, or the model's own
  std::size_t n_choices = 0;
  int prompt_tokens = 0;  // of all prompts
};

struct ChoiceEnd {
  TextResult result;
  bool called_tools = false;
};

struct AnswerUsage {
  int prompt_tokens = 0;       // each prompt once
  int cached_tokens = 0;       // of them, read from the prefix cache
  int generated_tokens = 0;    // of all choices
  int reasoning_tokens = 0;    // of them, those of reasoning
  int dropped_messages = 0;    // left out of the prompt
  std::uint64_t total_ns = 0;  // since the request
  std::uint64_t load_ns = 0;
  std::uint64_t prompt_ns = 0;  // the longest of the choices, as the next
  std::uint64_t generate_ns = 0;
};

// Writes an answer in the form of one interface. Calls come in this order, on one thread:
//   on_start, then of each choice on_part ... and on_choice_end, then on_end
// or on_error at any time, as the last one: before on_start it is a whole response, after it the
// end of a stream.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  virtual void on_start(const AnswerStart& start) = 0;
  // `tokens` are those that made up the part's text; empty unless the call asks for log_probs.
  virtual void on_part(std::size_t choice, const AnswerPart& part,
                       std::span<const AnswerToken> tokens) = 0;
  // Tokens of the choice's prompt, in order and before its parts; with prompt_log_probs alone. One
  // that nothing predicts has NaN.
  virtual void on_prompt(std::size_t /*choice*/, std::span<const AnswerToken> /*tokens*/) {}
  virtual void on_choice_end(std::size_t choice, const ChoiceEnd& end) = 0;
  virtual void on_end(const AnswerUsage& usage) = 0;
  virtual void on_error(const ApiError& error) = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_CHAT_CALL_H_
