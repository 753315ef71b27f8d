// SPDX-License-Identifier: MIT
//
// What the endpoints of OpenAI's interface share.

#ifndef QSF_TOOLS_SERVE_API_OPENAI_COMMON_H_
#define QSF_TOOLS_SERVE_API_OPENAI_COMMON_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/router.h"

namespace qsf_tools {

// Most entries of top_logprobs in chats and responses.
inline constexpr int kMaxChatTopLogProbs = 20;

// A call as /v1/chat/completions has it.
struct OpenAiChatCall {
  ChatCall call;
  bool include_usage = false;
};

// Reads a body of /v1/chat/completions. Errors are in `report`.
OpenAiChatCall read_openai_chat(const JsonValue& body, const ApiSettings& settings,
                                FieldReport& report);

// Writes chat.completion, whole or in chunks.
std::unique_ptr<AnswerFormat> make_openai_chat_format(const OpenAiChatCall& call,
                                                      AnswerOutput output,
                                                      const ApiSettings& settings);

// Answers with the report's error, if there is one, and counts ignored fields otherwise. Returns
// whether the request goes on.
bool accept_request(const ApiRequest& request, const FieldReport& report);

// "stop", "length" or "tool_calls".
std::string_view finish_reason(const ChoiceEnd& end) noexcept;
// prompt_tokens, completion_tokens, total_tokens and their details.
void write_usage(JsonWriter& json, const AnswerUsage& usage);
// One entry of a chat's logprobs.content: token, logprob, bytes, top_logprobs.
void write_chat_log_prob(JsonWriter& json, const AnswerToken& token);
// {index?, id, type, function{name, arguments}}; `index` below 0: none.
void write_tool_call(JsonWriter& json, const ToolCall& call, std::string_view id, int index);
// The version of the server, in the form of llama-server's: "b0.2.0".
std::string system_fingerprint();
// A number that JSON can write in place of a log probability of -infinity.
float json_log_prob(float log_prob) noexcept;

// The handlers of openai_routes().
std::shared_ptr<ServeJob> handle_chat_completions(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_chat_input_tokens(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_completions(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_embeddings(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_models(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_model(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_responses(const ApiRequest& request);
std::shared_ptr<ServeJob> handle_responses_input_tokens(const ApiRequest& request);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_OPENAI_COMMON_H_
