// SPDX-License-Identifier: MIT
//
// /infill: the text between a prefix and a suffix, for editors.

#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/chat_job.h"
#include "tools/serve/api/json_writer.h"
#include "tools/serve/api/llama_server.h"
#include "tools/serve/api/openai_common.h"

namespace qsf_tools {

namespace {

class InfillFormat : public AnswerFormat {
 public:
  InfillFormat(const ChatCall& call, AnswerOutput output)
      : output_(std::move(output)), streams_(call.stream) {}

  void on_start(const AnswerStart& start) override {
    model_ = start.model_name;
    if (streams_) output_.start_events();
  }
  void on_part(std::size_t /*choice*/, const AnswerPart& part,
               std::span<const AnswerToken> /*tokens*/) override {
    text_ += part.text;
    if (!streams_) return;
    JsonWriter json;
    json.begin_object().member("index", 0).member("content", part.text);
    json.member("stop", false).end_object();
    output_.event(json.str());
  }
  void on_choice_end(std::size_t /*choice*/, const ChoiceEnd& end) override {
    result_ = end.result;
  }
  void on_end(const AnswerUsage& usage) override {
    JsonWriter json;
    json.begin_object().member("index", 0).member("content", streams_ ? "" : text_);
    json.member("stop", true).member("model", model_);
    json.member("tokens_predicted", usage.generated_tokens);
    json.member("tokens_evaluated", usage.prompt_tokens);
    json.member("tokens_cached", usage.cached_tokens).member("truncated", false);
    json.member("stop_type", stop_type()).member("stopping_word", result_.stop_string);
    json.end_object();
    if (!streams_) return output_.respond(200, json.take());
    output_.event(json.str());
    output_.finish();
  }
  void on_error(const ApiError& error) override {
    if (!output_.has_started()) return output_.respond(openai_error_response(error));
    output_.event(openai_error_body(error));
    output_.finish();
  }

 private:
  std::string_view stop_type() const {
    if (result_.end == TextEnd::kLength) return "limit";
    return result_.end == TextEnd::kStopString ? "word" : "eos";
  }

  AnswerOutput output_;
  bool streams_;
  std::string model_;
  std::string text_;
  TextResult result_;
};

// Returns other files of the project as text that stands before the prefix.
std::string extra_text(FieldReader& fields) {
  std::string text;
  const JsonArray* files = fields.read_array("input_extra");
  if (files == nullptr) return text;
  for (const JsonValue& file : *files) {
    const JsonValue* words = file.member("text");
    if (words == nullptr || words->text() == nullptr) {
      fields.fail("input_extra", "'input_extra' has an entry without a text");
      return text;
    }
    const JsonValue* name = file.member("filename");
    if (name != nullptr && name->text() != nullptr) text += "--- " + *name->text() + "\n";
    text += *words->text() + "\n";
  }
  return text;
}

}  // namespace

ChatCall read_infill(const JsonValue& body, const ApiSettings& settings, FieldReport& report) {
  ChatCall call;
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  RawPrompt& raw = call.raw.emplace_back();
  std::string prefix;
  std::string suffix;
  std::string prompt;
  if (fields.find("input_prefix") == nullptr) {
    fields.fail("input_prefix", "'input_prefix' is missing, expected the text before the gap");
  }
  if (fields.find("input_suffix") == nullptr) {
    fields.fail("input_suffix", "'input_suffix' is missing, expected the text behind the gap");
  }
  fields.read("input_prefix", prefix);
  fields.read("input_suffix", suffix);
  fields.read("prompt", prompt);  // the beginning of what fills the gap
  raw.text = extra_text(fields) + prefix + prompt;
  raw.suffix = std::move(suffix);
  read_max_tokens(fields, "n_predict", call.text.max_tokens);
  read_max_tokens(fields, "max_tokens", call.text.max_tokens);
  read_sampling(fields, settings, call);
  read_stop(fields, "stop", settings, call.text);
  read_constraint(fields, report, call.text.constraint);
  fields.read("stream", call.stream);
  fields.not_built("n_probs", kNeutralZero);
  // What bounds the time of a draft, or asks for more of the answer than editors read.
  fields.accept({"t_max_prompt_ms", "t_max_predict_ms", "n_cache_reuse", "response_fields",
                 "return_tokens", "timings_per_token", "post_sampling_probs", "n_keep",
                 "n_indent"});
  accept_without_effect(fields);
  fields.finish(settings.strict_fields);
  return call;
}

std::unique_ptr<AnswerFormat> make_infill_format(const ChatCall& call, AnswerOutput output) {
  return std::make_unique<InfillFormat>(call, std::move(output));
}

std::shared_ptr<ServeJob> handle_infill(const ApiRequest& request) {
  FieldReport report;
  ChatCall call;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    call = read_infill(*body, *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  std::unique_ptr<AnswerFormat> format =
      make_infill_format(call, AnswerOutput(request.exchange, report.ignored));
  return make_chat_job(std::move(call), std::move(format), request.exchange, request.tenant,
                       *request.settings);
}

}  // namespace qsf_tools
