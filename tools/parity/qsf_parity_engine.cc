// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_engine.h"

#include <algorithm>
#include <utility>

#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

// Rows of logits, each stored whole.
class LogitsRows final : public qsf::LogitsSink {
 public:
  LogitsRows(std::span<float> out, std::uint32_t n_vocab) noexcept : out_(out), n_vocab_(n_vocab) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    std::copy(
        logits.begin(), logits.end(),
        out_.begin() + static_cast<std::ptrdiff_t>(std::size_t{row} * n_vocab_ + first_token));
  }

 private:
  std::span<float> out_;
  std::uint32_t n_vocab_;
};

void print_warning(qsf::LogLevel level, std::string_view line, void*) {
  if (level == qsf::LogLevel::kWarning) print_error(kParityTool, "warning: " + std::string(line));
}

const char* kind_name(qsf::TokenizerKind kind) {
  switch (kind) {
    case qsf::TokenizerKind::kByteBpe: return "byte-level BPE";
    case qsf::TokenizerKind::kScoredBpe: return "SentencePiece BPE";
    case qsf::TokenizerKind::kRankedBpe: break;
  }
  return "ranked BPE";
}

nlohmann::json token_or_null(qsf::TokenId token) {
  return token == qsf::kNoToken ? nlohmann::json() : nlohmann::json(token);
}

}  // namespace

EngineSource::EngineSource(EngineSourceOptions options, std::unique_ptr<qsf::Engine> engine)
    : options_(std::move(options)), engine_(std::move(engine)) {}

qsf::Result<std::unique_ptr<EngineSource>> EngineSource::open(const EngineSourceOptions& options) {
  qsf::EngineOptions settings;
  settings.n_threads = options.n_threads;
  settings.max_context = options.context;
  for (const qsf::KvType type : qsf::kAllKvTypes) {
    if (qsf::kv_type_name(type) == options.kv_types.keys()) settings.k_type = type;
    if (qsf::kv_type_name(type) == options.kv_types.values()) settings.v_type = type;
  }
  settings.exact = options.exact;
  settings.observer = options.observer;
  settings.log.write = print_warning;
  QSF_ASSIGN_OR_RETURN(std::unique_ptr<qsf::Engine> engine,
                       qsf::Engine::open(options.model, settings));
  std::unique_ptr<EngineSource> source(new EngineSource(options, std::move(engine)));
  QSF_ASSIGN_OR_RETURN(source->session_, source->engine_->create_session());
  return source;
}

qsf::Result<std::vector<std::uint32_t>> EngineSource::tokenize(const std::string& text,
                                                               bool parse_special) {
  const qsf::Tokenizer* const tokenizer = engine_->tokenizer();
  if (tokenizer == nullptr) {
    return qsf::unsupported("%s: the file has no tokenizer; give token ids with --ids",
                            options_.model.c_str());
  }
  std::vector<std::uint32_t> tokens;
  qsf::EncodeOptions encoding;
  encoding.parse_special = parse_special;
  QSF_RETURN_IF_ERROR(tokenizer->encode(text, encoding, tokens));
  return tokens;
}

qsf::Status EngineSource::evaluate(std::span<const std::uint32_t> tokens, bool generated,
                                   std::span<float> logits) {
  LogitsRows rows(logits, n_vocab());
  if (generated) return session_->step(tokens[0], &rows);
  return session_->prefill_rows(tokens, rows);
}

nlohmann::json EngineSource::describe() const {
  return {{"kind", "engine"},
          {"name", "qsf"},
          {"backend", "cpu"},
          {"device", "cpu"},
          {"instruction_set", std::string(engine_->instruction_set())},
          {"exact", options_.exact},
          {"kv_type", options_.kv_types.text()},
          {"threads", engine_->n_threads()},
          {"n_vocab", n_vocab()}};
}

nlohmann::json describe_model(const qsf::Engine& engine) {
  const qsf::ModelSpec& spec = engine.spec();
  return {{"architecture", spec.architecture},
          {"quantisation", std::string(engine.quant_name())},
          {"layers", spec.n_layers},
          {"hidden", spec.hidden},
          {"heads", spec.n_heads},
          {"kv_heads", spec.n_kv_heads},
          {"n_vocab", spec.n_vocab},
          {"parameters", engine.n_parameters()},
          {"natively_ternary", spec.natively_ternary},
          {"int8_rows", spec.int8_rows},
          {"source", spec.source},
          {"quantiser", spec.quantiser}};
}

nlohmann::json describe_tokenizer(const qsf::Engine& engine) {
  const qsf::Tokenizer* const tokenizer = engine.tokenizer();
  if (tokenizer == nullptr) return {};
  return {{"source", "model"},
          {"kind", kind_name(tokenizer->kind())},
          {"n_tokens", tokenizer->n_tokens()},
          {"bos", token_or_null(tokenizer->bos())},
          {"eos", token_or_null(tokenizer->eos())},
          {"add_bos", tokenizer->adds_bos()},
          {"add_eos", tokenizer->adds_eos()}};
}

}  // namespace qsf_tools
