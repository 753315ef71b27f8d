// SPDX-License-Identifier: MIT
#include "tools/serve/api/input_tokens.h"

#include <utility>

#include "tools/serve/api/compute_job.h"
#include "tools/serve/api/json_writer.h"

namespace qsf_tools {

namespace {

class InputTokensJob : public ComputeJob {
 public:
  InputTokensJob(ChatCall call, const std::vector<std::string>& ignored_fields,
                 const ApiRequest& request, std::string (*body)(int),
                 HttpResponse (*error_response)(const ApiError&))
      : ComputeJob(call.model, request.tenant, request.exchange, ignored_fields, error_response),
        call_(std::move(call)),
        settings_(*request.settings),
        body_(body) {}

  std::optional<ApiError> begin(const LoadedModel& model) override {
    ChatPromptRequest request;
    request.messages = call_.messages;
    request.tools = call_.tools;
    request.variables = call_.variables;
    request.add_generation_prompt = call_.add_generation_prompt;
    request.continue_final_message = call_.continue_final_message;
    request.now_seconds = settings_.now_seconds();
    ChatPrompt prompt;
    if (auto error = settings_.access->chat_prompt(model, request, prompt)) return error;
    n_tokens_ = static_cast<int>(prompt.tokens.size());
    return std::nullopt;
  }

  bool compute_step(const LoadedModel& /*model*/) override {
    output_.respond(200, body_(n_tokens_));
    return false;
  }

 private:
  ChatCall call_;
  const ApiSettings& settings_;
  std::string (*body_)(int);
  int n_tokens_ = 0;
};

}  // namespace

std::shared_ptr<ServeJob> make_input_tokens_job(ChatCall call,
                                                const std::vector<std::string>& ignored_fields,
                                                const ApiRequest& request, std::string (*body)(int),
                                                HttpResponse (*error_response)(const ApiError&)) {
  return std::make_shared<InputTokensJob>(std::move(call), ignored_fields, request, body,
                                          error_response);
}

std::string input_tokens_body(int n_tokens) {
  JsonWriter json;
  json.begin_object().member("object", "response.input_tokens");
  json.member("input_tokens", n_tokens).end_object();
  return json.take();
}

}  // namespace qsf_tools
