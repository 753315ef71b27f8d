// SPDX-License-Identifier: MIT

#include "tools/parity/parity_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32.h"
#include "tools/common/option_parser.h"
#include "tools/common/tool_support.h"
#include "tools/parity/parity_json.h"
#include "tools/parity/sha256.h"

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
  if (level == qsf::LogLevel::kWarning)
    print_error(program_name(), "warning: " + std::string(line));
}

const char* kind_name(qsf::TokenizerKind kind) {
  switch (kind) {
    case qsf::TokenizerKind::kByteBpe: return "byte-level BPE";
    case qsf::TokenizerKind::kScoredBpe: return "SentencePiece BPE";
    case qsf::TokenizerKind::kWordPiece: return "WordPiece";
    case qsf::TokenizerKind::kRankedBpe: break;
  }
  return "ranked BPE";
}

std::optional<std::uint32_t> token_or_none(qsf::TokenId token) {
  return token == qsf::kNoToken ? std::nullopt : std::optional<std::uint32_t>(token);
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

SourceDescription EngineSource::describe() const {
  SourceDescription source;
  source.kind = "engine";
  source.name = "qsf";
  source.n_vocab = n_vocab();
  source.backend = "cpu";
  source.device = "cpu";
  source.instruction_set = std::string(engine_->instruction_set());
  source.exact = options_.exact;
  source.kv_type = options_.kv_types.text();
  source.threads = engine_->n_threads();
  return source;
}

ModelDescription describe_model(const qsf::Engine& engine) {
  const qsf::ModelSpec& spec = engine.spec();
  return {.architecture = spec.architecture,
          .quantisation = std::string(engine.quant_name()),
          .layers = spec.n_layers,
          .hidden = spec.hidden,
          .heads = spec.n_heads,
          .kv_heads = spec.n_kv_heads,
          .n_vocab = spec.n_vocab,
          .parameters = engine.n_parameters(),
          .natively_ternary = spec.natively_ternary,
          .int8_rows = spec.int8_rows,
          .source = spec.source,
          .quantiser = spec.quantiser};
}

std::optional<TokenizerDescription> describe_tokenizer(const qsf::Engine& engine) {
  const qsf::Tokenizer* const tokenizer = engine.tokenizer();
  if (tokenizer == nullptr) return std::nullopt;
  return TokenizerDescription{.source = "model",
                              .kind = kind_name(tokenizer->kind()),
                              .n_tokens = tokenizer->n_tokens(),
                              .bos = token_or_none(tokenizer->bos()),
                              .eos = token_or_none(tokenizer->eos()),
                              .add_bos = tokenizer->adds_bos(),
                              .add_eos = tokenizer->adds_eos()};
}

namespace {

constexpr char kLogitsMagic[8] = {'Q', 'S', 'F', 'L', 'O', 'G', 'I', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kMaxFileBytes = std::size_t{16} << 30;
constexpr std::size_t kMaxSourceBytes = 1U << 20;
constexpr std::uint32_t kMaxRecordedVocab = 1U << 24;

void put_u32(std::string& bytes, std::size_t offset, std::uint32_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

std::uint32_t get_u32(const std::string& bytes, std::size_t offset) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

qsf::ByteSpan as_span(const void* from, std::size_t n_bytes) {
  return {static_cast<const std::byte*>(from), n_bytes};
}

}  // namespace

qsf::Result<LogitsRecorder> LogitsRecorder::create(const std::string& path, std::uint32_t n_vocab,
                                                   const std::vector<std::uint32_t>& tokens,
                                                   const std::string& source) {
  QSF_ASSIGN_OR_RETURN(qsf::AtomicFile file, qsf::AtomicFile::create(path));
  LogitsRecorder recorder(std::move(file));
  recorder.n_vocab_ = n_vocab;
  recorder.header_.assign(kHeaderBytes, '\0');
  std::memcpy(recorder.header_.data(), kLogitsMagic, sizeof kLogitsMagic);
  put_u32(recorder.header_, 8, kVersion);
  put_u32(recorder.header_, 12, n_vocab);
  put_u32(recorder.header_, 16, static_cast<std::uint32_t>(tokens.size()));
  put_u32(recorder.header_, 24, static_cast<std::uint32_t>(source.size()));
  recorder.offset_ = kHeaderBytes;
  for (const qsf::ByteSpan part :
       {as_span(source.data(), source.size()), as_span(tokens.data(), 4 * tokens.size())}) {
    QSF_RETURN_IF_ERROR(recorder.file_.write_at(recorder.offset_, part));
    recorder.checksum_ = qsf::crc32(part, recorder.checksum_);
    recorder.offset_ += part.size();
  }
  return recorder;
}

qsf::Status LogitsRecorder::add(std::span<const float> logits) {
  const qsf::ByteSpan bytes = as_span(logits.data(), logits.size_bytes());
  QSF_RETURN_IF_ERROR(file_.write_at(offset_, bytes));
  checksum_ = qsf::crc32(bytes, checksum_);
  offset_ += bytes.size();
  n_rows_ += static_cast<std::uint32_t>(logits.size() / n_vocab_);
  return qsf::ok_status();
}

qsf::Status LogitsRecorder::finish() {
  QSF_CHECK(n_rows_ >= get_u32(header_, 16));
  put_u32(header_, 20, n_rows_);
  put_u32(header_, 28, checksum_);
  QSF_RETURN_IF_ERROR(file_.write_at(0, as_span(header_.data(), header_.size())));
  return file_.commit();
}

qsf::Result<std::unique_ptr<RecordedSource>> RecordedSource::open(const std::string& path) {
  std::string problem;
  const std::optional<std::string> bytes = read_text(path, kMaxFileBytes, problem);
  if (!bytes) return qsf::not_found("%s", problem.c_str());
  const char* const name = path.c_str();
  if (bytes->size() < kHeaderBytes ||
      std::memcmp(bytes->data(), kLogitsMagic, sizeof kLogitsMagic) != 0) {
    return qsf::corrupt("%s: not a file of recorded logits, which begins with QSFLOGIT", name);
  }
  if (get_u32(*bytes, 8) != kVersion) {
    return qsf::unsupported("%s: version %u of recorded logits, expected %u", name,
                            get_u32(*bytes, 8), kVersion);
  }
  std::unique_ptr<RecordedSource> source(new RecordedSource);
  source->path_ = path;
  source->n_vocab_ = get_u32(*bytes, 12);
  const std::uint32_t n_tokens = get_u32(*bytes, 16);
  source->n_rows_ = get_u32(*bytes, 20);
  const std::uint32_t source_bytes = get_u32(*bytes, 24);
  // Within 2^59: no sum of the header's words wraps once the vocabulary is bounded.
  const bool has_rows = source->n_vocab_ > 0 && source->n_vocab_ <= kMaxRecordedVocab;
  const std::uint64_t expected = std::uint64_t{source->n_vocab_} * 4 * source->n_rows_ +
                                 kHeaderBytes + source_bytes + std::uint64_t{n_tokens} * 4;
  if (!has_rows || n_tokens == 0 || source->n_rows_ < n_tokens || source_bytes > kMaxSourceBytes ||
      expected != bytes->size()) {
    return qsf::corrupt(
        "%s: %zu bytes do not hold %u rows of %u logits for %u tokens; the file is cut or damaged",
        name, bytes->size(), source->n_rows_, source->n_vocab_, n_tokens);
  }
  const std::string_view body = std::string_view(*bytes).substr(kHeaderBytes);
  if (qsf::crc32(as_span(body.data(), body.size())) != get_u32(*bytes, 28)) {
    return qsf::corrupt("%s: wrong checksum; the file is damaged", name);
  }
  source->source_ = body.substr(0, source_bytes);
  if (!is_source_text(source->source_)) {
    return qsf::corrupt("%s: has no description of the source of its logits", name);
  }
  source->tokens_.resize(n_tokens);
  std::memcpy(source->tokens_.data(), body.data() + source_bytes, 4 * std::size_t{n_tokens});
  const std::size_t n_logits = std::size_t{source->n_rows_} * source->n_vocab_;
  source->logits_.resize(n_logits);
  std::memcpy(source->logits_.data(), body.data() + source_bytes + 4 * std::size_t{n_tokens},
              4 * n_logits);
  source->sha256_ = sha256_of(*bytes);
  return source;
}

qsf::Result<std::vector<std::uint32_t>> RecordedSource::tokenize(const std::string&, bool) {
  return tokens_;
}

qsf::Status RecordedSource::evaluate(std::span<const std::uint32_t> tokens, bool,
                                     std::span<float> logits) {
  for (const std::uint32_t token : tokens) {
    if (next_row_ == n_rows_) {
      return qsf::invalid_argument(
          "%s: holds %u rows, and one more was requested; give fewer --steps", path_.c_str(),
          n_rows_);
    }
    if (next_row_ < tokens_.size() && tokens_[next_row_] != token) {
      return qsf::invalid_argument(
          "%s: row %u was recorded after token %u, and token %u was requested", path_.c_str(),
          next_row_, tokens_[next_row_], token);
    }
    const auto row =
        std::span<const float>(logits_).subspan(std::size_t{next_row_} * n_vocab_, n_vocab_);
    std::copy(row.begin(), row.end(), logits.begin());
    logits = logits.subspan(n_vocab_);
    ++next_row_;
  }
  return qsf::ok_status();
}

SourceDescription RecordedSource::describe() const {
  SourceDescription source;
  source.kind = "file";
  source.name = "recorded logits";
  source.n_vocab = n_vocab_;
  source.path = path_;
  source.sha256 = sha256_;
  source.recorded_from = source_;
  return source;
}

}  // namespace qsf_tools
