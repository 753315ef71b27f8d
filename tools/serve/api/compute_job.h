// SPDX-License-Identifier: MIT
//
// A job that generates no text: it computes in prepare() and compute_step().

#ifndef QSF_TOOLS_SERVE_API_COMPUTE_JOB_H_
#define QSF_TOOLS_SERVE_API_COMPUTE_JOB_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/serve/api/answer_output.h"
#include "tools/serve/http/http_exchange.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

class ComputeJob : public ServeJob {
 public:
  // `error_response` makes the response of an error, in the form of the interface.
  ComputeJob(std::string model, std::string tenant, std::shared_ptr<HttpExchange> exchange,
             const std::vector<std::string>& ignored_fields,
             HttpResponse (*error_response)(const ApiError& error))
      : output_(exchange, ignored_fields),
        exchange_(std::move(exchange)),
        model_(std::move(model)),
        tenant_(std::move(tenant)),
        error_response_(error_response) {}

  const std::string& model() const noexcept override { return model_; }
  const std::string& tenant() const noexcept override { return tenant_; }

  std::optional<ApiError> prepare(const LoadedModel& model,
                                  std::vector<TextRequest>& /*texts*/) override {
    return begin(model);
  }
  void on_admitted() override {}
  bool on_token(std::size_t /*text*/, const TextToken& /*token*/) override { return false; }
  void on_text_end(std::size_t /*text*/, const TextResult& /*result*/) override {}
  void on_end() override {}
  void on_error(const ApiError& error) override {
    if (output_.has_started()) return output_.cut();
    output_.respond(error_response_(error));
  }

  bool is_full() const noexcept override { return exchange_->is_full(); }
  bool is_gone() const noexcept override { return exchange_->is_gone(); }

 protected:
  // Checks the request against the model, before the first step.
  virtual std::optional<ApiError> begin(const LoadedModel& model) = 0;

  // The name that an answer gives the model.
  const std::string& name_of(const LoadedModel& model) const {
    return model_.empty() ? model.id : model_;
  }

  AnswerOutput output_;

 private:
  std::shared_ptr<HttpExchange> exchange_;
  std::string model_;
  std::string tenant_;
  HttpResponse (*error_response_)(const ApiError& error);
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_COMPUTE_JOB_H_
