// SPDX-License-Identifier: MIT
//
// /api/embed, and /api/embeddings, its older form of one text.

#include <utility>

#include "tools/serve/api/compute_job.h"
#include "tools/serve/api/embedding_inputs.h"
#include "tools/serve/api/interface_request.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/ollama.h"
#include "tools/serve/api/raw_prompt.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxEmbedInputs = 2048;

struct EmbedCall {
  std::string model;
  std::vector<RawPrompt> inputs;
  int dimensions = -1;    // -1: not named
  bool truncate = false;  // the end of an input that exceeds the context is left out
  bool is_old = false;
};

EmbedCall read_embed(const JsonValue& body, bool is_old, const ApiSettings& settings,
                     FieldReport& report) {
  EmbedCall call;
  call.is_old = is_old;
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  if (call.model.empty()) fields.fail("model", "'model' is missing, expected a model's name");
  call.model = ollama_model_name(std::move(call.model));
  refuse_adapter(fields, settings, call.model);
  call.inputs = read_raw_prompts(fields, is_old ? "prompt" : "input", is_old ? 1 : kMaxEmbedInputs);
  for (RawPrompt& input : call.inputs) input.parse_special = false;
  fields.read("dimensions", call.dimensions, 1, 1 << 30);
  fields.read("truncate", call.truncate);
  fields.accept({"options", "keep_alive"});
  fields.finish(settings.strict_fields);
  return call;
}

// Each input is a step, and its embedding is written at once.
class EmbedJob : public ComputeJob {
 public:
  EmbedJob(EmbedCall call, const std::vector<std::string>& ignored_fields,
           const ApiRequest& request)
      : ComputeJob(call.model, request.tenant, request.exchange, ignored_fields,
                   &ollama_error_response),
        call_(std::move(call)),
        settings_(*request.settings),
        begin_ns_(settings_.now_ns()) {}

  std::optional<ApiError> begin(const LoadedModel& model) override {
    return make_embedding_inputs(settings_, model, call_.dimensions, call_.truncate, call_.inputs,
                                 inputs_);
  }

  bool compute_step(const LoadedModel& model) override {
    std::vector<float> embedding(static_cast<std::size_t>(model.info.hidden_size));
    const auto error = settings_.access->embed(model, inputs_.tokens[n_done_], QSF_POOLING_MODEL,
                                               /*normalize=*/!call_.is_old, embedding);
    if (error) {
      on_error(*error);
      return false;
    }
    JsonWriter json;
    json.begin_array();
    for (const float value : embedding) json.number(value);
    json.end_array();
    if (call_.is_old) {
      output_.respond(200, R"({"embedding":)" + json.str() + "}");
      return false;
    }
    inputs_.tokens[n_done_] = {};
    if (n_done_ == 0) {
      JsonWriter name;
      name.text(name_of(model));
      output_.start_json();
      output_.piece(R"({"model":)" + name.str() + R"(,"embeddings":[)" + json.str());
    } else {
      output_.piece("," + json.str());
    }
    if (++n_done_ < inputs_.tokens.size()) return true;
    JsonWriter rest;
    rest.member("total_duration", settings_.now_ns() - begin_ns_);
    rest.member("load_duration", model.load_ns).member("prompt_eval_count", inputs_.n_tokens);
    output_.piece("]," + rest.str() + "}");
    output_.finish();
    return false;
  }
  std::size_t step_positions() const noexcept override { return inputs_.tokens[n_done_].size(); }

 private:
  EmbedCall call_;
  const ApiSettings& settings_;
  std::uint64_t begin_ns_;
  EmbeddingInputs inputs_;  // the tokens of each are freed once it is computed
  std::size_t n_done_ = 0;
};

std::shared_ptr<ServeJob> handle_embed(const ApiRequest& request, bool is_old) {
  FieldReport report;
  EmbedCall call;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    call = read_embed(*body, is_old, *request.settings, report);
  }
  if (!accept_request(request, report, &ollama_error_response)) return nullptr;
  return std::make_shared<EmbedJob>(std::move(call), report.ignored, request);
}

}  // namespace

std::shared_ptr<ServeJob> handle_ollama_embed(const ApiRequest& request) {
  return handle_embed(request, /*is_old=*/false);
}

std::shared_ptr<ServeJob> handle_ollama_embeddings(const ApiRequest& request) {
  return handle_embed(request, /*is_old=*/true);
}

}  // namespace qsf_tools
