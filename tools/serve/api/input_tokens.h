// SPDX-License-Identifier: MIT
//
// The job that counts the tokens of a conversation's prompt.

#ifndef QSF_TOOLS_SERVE_API_INPUT_TOKENS_H_
#define QSF_TOOLS_SERVE_API_INPUT_TOKENS_H_

#include <memory>
#include <string>
#include <vector>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/router.h"

namespace qsf_tools {

// `body` writes the answer for a number of tokens.
std::shared_ptr<ServeJob> make_input_tokens_job(ChatCall call,
                                                const std::vector<std::string>& ignored_fields,
                                                const ApiRequest& request, std::string (*body)(int),
                                                HttpResponse (*error_response)(const ApiError&));

// {"object": "response.input_tokens", "input_tokens": n}
std::string input_tokens_body(int n_tokens);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_INPUT_TOKENS_H_
