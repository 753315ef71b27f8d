// SPDX-License-Identifier: MIT
//
// Reads the fields of a body that several interfaces have under the same names: sampling, limits,
// stop texts, and constraints.

#ifndef QSF_TOOLS_SERVE_API_CALL_FIELDS_H_
#define QSF_TOOLS_SERVE_API_CALL_FIELDS_H_

#include "tools/serve/api/api_settings.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"

namespace qsf_tools {

// temperature, top_k, top_p, min_p, typical_p, the penalties, DRY and XTC, logit_bias, seed,
// ignore_eos and lora, with the names of other servers for the same; samplers that are not built
// are refused unless they are switched off. Starts from the server's defaults.
void read_sampling(FieldReader& fields, const ApiSettings& settings, ChatCall& call);
// Reads a number of tokens; -1, as some clients write it, is no limit.
void read_max_tokens(FieldReader& fields, std::string_view field, int& max_tokens);
// Reads stop texts from `field`, and stop_token_ids.
void read_stop(FieldReader& fields, std::string_view field, const ApiSettings& settings,
               TextRequest& text);
// response_format (OpenAI), json_schema and grammar (llama-server), guided_json and guided_grammar
// (vLLM). At most one of them may ask for something.
void read_constraint(FieldReader& fields, FieldReport& report, TextConstraint& constraint);
// Reads {"type": "text" | "json_object" | "json_schema", ...}, the value of `field`. The schema
// stands in json_schema.schema, or beside the type (/v1/responses: text.format).
void read_format(FieldReader& fields, std::string_view field, FieldReport& report,
                 TextConstraint& constraint);
// chat_template_kwargs, reasoning_effort and enable_thinking as variables of the template.
void read_template_variables(FieldReader& fields, ChatCall& call);
// Fields without effect, of OpenAI and of local servers.
void accept_without_effect(FieldReader& fields);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_CALL_FIELDS_H_
