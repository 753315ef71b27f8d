// SPDX-License-Identifier: MIT
//
// /v1/completions: reads bodies, and writes text_completion, whole or in chunks. Log probabilities
// are arrays side by side here, unlike those of chats.

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/call_fields.h"
#include "tools/serve/api/chat_job.h"
#include "tools/serve/api/openai_common.h"
#include "tools/serve/api/raw_prompt.h"

namespace qsf_tools {

namespace {

constexpr int kDefaultMaxTokens = 16;
constexpr int kMaxCompletionTopLogProbs = 5;

struct CompletionCall {
  ChatCall call;
  bool include_usage = false;
  bool echo = false;
};

void read_completion_log_probs(FieldReader& fields, CompletionCall& completion) {
  TextRequest& text = completion.call.text;
  const JsonValue* value = fields.find("logprobs");
  // llama-server and chat clients send a boolean here.
  if (value != nullptr && value->boolean() != nullptr && !*value->boolean()) return;
  text.log_probs = value != nullptr;
  fields.read("logprobs", text.n_top_log_probs, 0, kMaxCompletionTopLogProbs);
  fields.read("echo", completion.echo);
  text.prompt_log_probs = completion.echo && text.log_probs;
}

void read_suffix(FieldReader& fields, bool echo, std::vector<RawPrompt>& prompts) {
  std::string suffix;
  fields.read("suffix", suffix);
  if (suffix.empty()) return;
  if (echo) fields.fail("echo", "'echo' is not supported beside 'suffix'");
  for (RawPrompt& prompt : prompts) {
    if (prompt.tokens) fields.fail("suffix", "'suffix' needs a prompt of text, not of tokens");
    prompt.suffix = suffix;
  }
}

void read_counts(FieldReader& fields, const ApiSettings& settings, ChatCall& call) {
  fields.read("n", call.n, 1, settings.max_choices);
  int best_of = call.n;
  fields.read("best_of", best_of, 1, settings.max_choices);
  if (best_of != call.n) fields.fail("best_of", "'best_of' is not supported unless it equals 'n'");
  const std::size_t n_texts = call.raw.size() * static_cast<std::size_t>(call.n);
  if (n_texts > static_cast<std::size_t>(settings.max_prompts)) {
    fields.fail("n", "'n' times the number of prompts is " + std::to_string(n_texts) +
                         ", expected at most " + std::to_string(settings.max_prompts));
  }
}

CompletionCall read_completion(const JsonValue& body, const ApiSettings& settings,
                               FieldReport& report) {
  CompletionCall completion;
  ChatCall& call = completion.call;
  FieldReader fields(body, "", report);
  fields.read("model", call.model);
  fields.read("cache_salt", call.cache_salt);
  call.raw = read_raw_prompts(fields, "prompt", static_cast<std::size_t>(settings.max_prompts));
  read_completion_log_probs(fields, completion);
  fields.read("echo", completion.echo);
  read_suffix(fields, completion.echo, call.raw);
  read_counts(fields, settings, call);
  call.text.max_tokens = kDefaultMaxTokens;
  read_max_tokens(fields, "max_tokens", call.text.max_tokens);
  read_max_tokens(fields, "n_predict", call.text.max_tokens);
  bool add_special_tokens = true;
  fields.read("add_special_tokens", add_special_tokens);
  for (RawPrompt& prompt : call.raw) prompt.add_bos = add_special_tokens;
  read_sampling(fields, settings, call);
  read_stop(fields, "stop", settings, call.text);
  read_constraint(fields, report, call.text.constraint);
  fields.read("stream", call.stream);
  if (const JsonValue* value = fields.read_object("stream_options")) {
    FieldReader options(*value, "stream_options", report);
    options.read("include_usage", completion.include_usage);
    options.accept({"include_obfuscation"});
  }
  accept_without_effect(fields);
  fields.finish(settings.strict_fields);
  return completion;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The arrays of log probabilities of one choice, or of a chunk of it.
class LogProbArrays {
 public:
  void add(const AnswerToken& token) {
    tokens_.text(token.drawn.bytes);
    offsets_.integer(static_cast<std::int64_t>(offset_));
    offset_ += count_characters(token.drawn.bytes);
    if (std::isnan(token.drawn.log_prob)) {
      log_probs_.null();
      top_.null();
      return;
    }
    log_probs_.number(json_log_prob(token.drawn.log_prob));
    write_top(token);
  }

  // Moves what was added since the last call into `json`.
  void write(JsonWriter& json) {
    json.begin_object();
    json.raw_member("tokens", "[" + tokens_.str() + "]");
    json.raw_member("token_logprobs", "[" + log_probs_.str() + "]");
    json.raw_member("top_logprobs", "[" + top_.str() + "]");
    json.raw_member("text_offset", "[" + offsets_.str() + "]");
    json.end_object();
    tokens_ = log_probs_ = top_ = offsets_ = JsonWriter();
  }

 private:
  // The likeliest tokens, and the drawn one. Texts are names, so each comes once: different tokens
  // may be the same broken character.
  void write_top(const AnswerToken& token) {
    std::vector<std::string> names;
    top_.begin_object();
    const auto write_one = [&](const AnswerToken::Candidate& candidate) {
      std::string name;
      append_json_string(candidate.bytes, name);
      if (std::find(names.begin(), names.end(), name) != names.end()) return;
      top_.member(candidate.bytes, json_log_prob(candidate.log_prob));
      names.push_back(std::move(name));
    };
    for (const AnswerToken::Candidate& candidate : token.top) write_one(candidate);
    write_one(token.drawn);
    top_.end_object();
  }

  JsonWriter tokens_;
  JsonWriter log_probs_;
  JsonWriter top_;
  JsonWriter offsets_;
  std::size_t offset_ = 0;  // in characters, of the next token
};

class CompletionFormat : public AnswerFormat {
 public:
  CompletionFormat(const CompletionCall& completion, AnswerOutput output,
                   const ApiSettings& settings)
      : output_(std::move(output)),
        settings_(settings),
        n_(static_cast<std::size_t>(completion.call.n)),
        stream_(completion.call.stream),
        include_usage_(completion.include_usage),
        log_probs_(completion.call.text.log_probs) {
    if (completion.echo) echo_ = completion.call.raw;
  }

  void on_start(const AnswerStart& start) override {
    id_ = settings_.make_id("cmpl-");
    created_ = settings_.now_seconds();
    model_ = start.model_name;
    choices_.resize(start.n_choices);
    if (stream_) output_.start_events();
    for (std::size_t i = 0; i < echo_.size() * n_; ++i) {
      const RawPrompt& prompt = echo_[i / n_];
      choices_[i].trims_space = !prompt.tokens && !prompt.text.starts_with(' ');
      add_text(i, echo_text(*start.model, prompt), {});
    }
    echo_ = {};
  }

  void on_part(std::size_t index, const AnswerPart& part,
               std::span<const AnswerToken> tokens) override {
    add_text(index, part.text, tokens);
  }

  void on_prompt(std::size_t index, std::span<const AnswerToken> tokens) override {
    Choice& choice = choices_[index];
    for (const AnswerToken& token : tokens) {
      AnswerToken entry = token;
      // The space that some tokenizers put before a text.
      std::string& bytes = entry.drawn.bytes;
      if (std::exchange(choice.trims_space, false) && bytes.starts_with(' ')) bytes.erase(0, 1);
      choice.log_probs.add(entry);
    }
    if (stream_) write_chunk(index);
  }

  void on_choice_end(std::size_t index, const ChoiceEnd& end) override {
    choices_[index].finish_reason = finish_reason(end);
    if (stream_) write_chunk(index);
  }

  void on_end(const AnswerUsage& usage) override {
    if (!stream_ || include_usage_) {
      JsonWriter json = begin_body();
      for (std::size_t i = 0; !stream_ && i < choices_.size(); ++i) write_choice(json, i);
      json.end_array().name("usage");
      write_usage(json, usage);
      json.end_object();
      if (!stream_) return output_.respond(200, json.take());
      output_.event(json.str());
    }
    output_.event("[DONE]");
    output_.finish();
  }

  void on_error(const ApiError& error) override {
    if (!output_.has_started()) return output_.respond(openai_error_response(error));
    output_.event(openai_error_body(error));
    output_.finish();
  }

 private:
  struct Choice {
    std::string text;  // not written yet
    LogProbArrays log_probs;
    std::string_view finish_reason;  // empty: null
    bool trims_space = false;        // off the first token of the prompt
  };

  std::string echo_text(const LoadedModel& model, const RawPrompt& prompt) const {
    if (!prompt.tokens) return prompt.text;
    std::string text;
    if (log_probs_) {  // that of the entries, special tokens included
      for (const int token : *prompt.tokens) text += settings_.access->token_bytes(model, token);
    } else {
      settings_.access->detokenize(model, *prompt.tokens, text);
    }
    return text;
  }

  void add_text(std::size_t index, std::string_view text, std::span<const AnswerToken> tokens) {
    Choice& choice = choices_[index];
    choice.text += text;
    for (const AnswerToken& token : tokens) choice.log_probs.add(token);
    if (stream_) write_chunk(index);
  }

  // Leaves the array of choices open.
  JsonWriter begin_body() const {
    JsonWriter json;
    json.begin_object().member("id", id_).member("object", "text_completion");
    json.member("created", created_).member("model", model_);
    json.member("system_fingerprint", fingerprint_).name("choices").begin_array();
    return json;
  }

  void write_choice(JsonWriter& json, std::size_t index) {
    Choice& choice = choices_[index];
    json.begin_object().member("index", index).member("text", choice.text);
    choice.text.clear();
    json.name("logprobs");
    if (log_probs_) {
      choice.log_probs.write(json);
    } else {
      json.null();
    }
    json.text_or_null("finish_reason", choice.finish_reason).end_object();
  }

  void write_chunk(std::size_t index) {
    JsonWriter json = begin_body();
    write_choice(json, index);
    json.end_array();
    if (include_usage_) json.null_member("usage");
    json.end_object();
    output_.event(json.str());
  }

  AnswerOutput output_;
  const ApiSettings& settings_;
  std::size_t n_;
  bool stream_;
  bool include_usage_;
  bool log_probs_;
  std::vector<RawPrompt> echo_;
  std::string id_;
  std::int64_t created_ = 0;
  std::string model_;
  std::string fingerprint_ = system_fingerprint();
  std::vector<Choice> choices_;
};

}  // namespace

std::shared_ptr<ServeJob> handle_completions(const ApiRequest& request) {
  FieldReport report;
  CompletionCall completion;
  if (const std::optional<JsonValue> body = parse_body(request.exchange->request().body, report)) {
    completion = read_completion(*body, *request.settings, report);
  }
  if (!accept_request(request, report)) return nullptr;
  auto format = std::make_unique<CompletionFormat>(
      completion, AnswerOutput(request.exchange, report.ignored), *request.settings);
  return make_chat_job(std::move(completion.call), std::move(format), request.exchange,
                       request.tenant, *request.settings);
}

}  // namespace qsf_tools
