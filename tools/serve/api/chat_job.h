// SPDX-License-Identifier: MIT
//
// The job of a ChatCall: makes its prompts, takes its answers apart and hands them to the format of
// an interface.

#ifndef QSF_TOOLS_SERVE_API_CHAT_JOB_H_
#define QSF_TOOLS_SERVE_API_CHAT_JOB_H_

#include <memory>
#include <string>

#include "tools/serve/api/api_settings.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {

// `tenant` is that of the API key; the call's cache_salt is added to it.
std::shared_ptr<ServeJob> make_chat_job(ChatCall call, std::unique_ptr<AnswerFormat> format,
                                        std::shared_ptr<HttpExchange> exchange, std::string tenant,
                                        const ApiSettings& settings);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_CHAT_JOB_H_
