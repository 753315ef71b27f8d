// SPDX-License-Identifier: MIT
//
// /v1/embeddings. Each input is a step, and its embedding is written at once: 2,048 of them are
// some 50 MB of JSON, which nobody has to hold.

#include <bit>
#include <cstring>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/compute_job.h"
#include "tools/serve/api/embedding_inputs.h"
#include "tools/serve/api/openai_common.h"
#include "tools/serve/api/raw_prompt.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxInputs = 2048;

struct EmbeddingsCall {
  std::string model;
  std::string cache_salt;
  std::vector<RawPrompt> inputs;
  bool base64 = false;
  int dimensions = -1;  // -1: not named
  qsf_pooling pooling = QSF_POOLING_MODEL;
};

EmbeddingsCall read_embeddings(const JsonValue& body, const ApiSettings& settings,
                               FieldReport& report) {
  EmbeddingsCall call;
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  refuse_adapter(fields, settings, call.model);
  call.inputs = read_raw_prompts(fields, "input", kMaxInputs);
  for (RawPrompt& input : call.inputs) input.parse_special = false;
  std::size_t word = 0;
  fields.read_word("encoding_format", {"float", "base64"}, word);
  call.base64 = word == 1;
  word = QSF_POOLING_MODEL;
  static_assert(QSF_POOLING_MEAN == 0 && QSF_POOLING_LAST == 1 && QSF_POOLING_FIRST == 2);
  fields.read_word("pooling", {"mean", "last", "first"}, word);
  call.pooling = static_cast<qsf_pooling>(word);
  fields.read("dimensions", call.dimensions, 1, 1 << 30);
  accept_without_effect(fields);
  fields.accept({"cache_salt"});
  fields.finish(settings.strict_fields);
  return call;
}

// The bytes of 32-bit floats, little-endian, as OpenAI's clients read them.
std::string base64_text(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t n_bytes = values.size() * sizeof(float);
  const std::size_t n_padding = (3 - n_bytes % 3) % 3;
  std::vector<unsigned char> bytes(n_bytes + n_padding);
  if (n_bytes != 0) std::memcpy(bytes.data(), values.data(), n_bytes);
  std::string text;
  text.reserve(bytes.size() / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const unsigned bits = bytes[i] << 16U | bytes[i + 1] << 8U | bytes[i + 2];
    for (const unsigned shift : {18U, 12U, 6U, 0U}) text += kDigits[bits >> shift & 63U];
  }
  text.replace(text.size() - n_padding, n_padding, n_padding, '=');
  return text;
}

class EmbeddingsJob : public ComputeJob {
 public:
  EmbeddingsJob(EmbeddingsCall call, const std::vector<std::string>& ignored_fields,
                const ApiRequest& request)
      : ComputeJob(call.model, request.tenant, request.exchange, ignored_fields,
                   &openai_error_response),
        call_(std::move(call)),
        settings_(*request.settings) {}

  std::optional<ApiError> begin(const LoadedModel& model) override {
    return make_embedding_inputs(settings_, model, call_.dimensions, /*truncate=*/false,
                                 call_.inputs, inputs_);
  }

  bool compute_step(const LoadedModel& model) override {
    std::vector<float> embedding(static_cast<std::size_t>(model.info.hidden_size));
    const auto error =
        settings_.access->embed(model, inputs_.tokens[n_done_], call_.pooling, true, embedding);
    if (error) {
      on_error(*error);
      return false;
    }
    inputs_.tokens[n_done_] = {};
    write(embedding);
    if (++n_done_ < inputs_.tokens.size()) return true;
    JsonWriter json;
    json.member("model", name_of(model)).name("usage").begin_object();
    json.member("prompt_tokens", inputs_.n_tokens)
        .member("total_tokens", inputs_.n_tokens)
        .end_object();
    output_.piece("]," + json.str() + "}");
    output_.finish();
    return false;
  }

  std::size_t step_positions() const noexcept override { return inputs_.tokens[n_done_].size(); }

 private:
  void write(const std::vector<float>& embedding) {
    JsonWriter json;
    json.begin_object().member("object", "embedding").member("index", n_done_).name("embedding");
    if (call_.base64) {
      json.text(base64_text(embedding));
    } else {
      json.begin_array();
      for (const float value : embedding) json.number(value);
      json.end_array();
    }
    json.end_object();
    if (n_done_ == 0) output_.start_json();
    output_.piece((n_done_ == 0 ? R"({"object":"list","data":[)" : ",") + json.take());
  }

  EmbeddingsCall call_;
  const ApiSettings& settings_;
  EmbeddingInputs inputs_;  // the tokens of each are freed once it is computed
  std::size_t n_done_ = 0;
};

}  // namespace

std::shared_ptr<ServeJob> handle_embeddings(const ApiRequest& request) {
  FieldReport report;
  EmbeddingsCall call;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    call = read_embeddings(*body, *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  return std::make_shared<EmbeddingsJob>(std::move(call), report.ignored, request);
}

}  // namespace qsf_tools
