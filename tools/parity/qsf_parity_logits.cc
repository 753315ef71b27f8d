// SPDX-License-Identifier: MIT

#include "tools/parity/qsf_parity_logits.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32.h"
#include "tools/common/tool_support.h"
#include "tools/parity/json_schema.h"
#include "tools/parity/sha256.h"

namespace qsf_tools {
namespace {

constexpr char kMagic[8] = {'Q', 'S', 'F', 'L', 'O', 'G', 'I', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kMaxFileBytes = std::size_t{16} << 30;
constexpr std::size_t kMaxSourceBytes = 1U << 20;
constexpr std::uint32_t kMaxVocab = 1U << 24;

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
                                                   const nlohmann::json& source) {
  QSF_ASSIGN_OR_RETURN(qsf::AtomicFile file, qsf::AtomicFile::create(path));
  LogitsRecorder recorder(std::move(file));
  const std::string text = source.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  recorder.n_vocab_ = n_vocab;
  recorder.header_.assign(kHeaderBytes, '\0');
  std::memcpy(recorder.header_.data(), kMagic, sizeof kMagic);
  put_u32(recorder.header_, 8, kVersion);
  put_u32(recorder.header_, 12, n_vocab);
  put_u32(recorder.header_, 16, static_cast<std::uint32_t>(tokens.size()));
  put_u32(recorder.header_, 24, static_cast<std::uint32_t>(text.size()));
  recorder.offset_ = kHeaderBytes;
  for (const qsf::ByteSpan part :
       {as_span(text.data(), text.size()), as_span(tokens.data(), 4 * tokens.size())}) {
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
  if (bytes->size() < kHeaderBytes || std::memcmp(bytes->data(), kMagic, sizeof kMagic) != 0) {
    return qsf::corrupt("%s: no file of recorded logits, which begins with QSFLOGIT", name);
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
  const bool has_rows = source->n_vocab_ > 0 && source->n_vocab_ <= kMaxVocab;
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
    return qsf::corrupt("%s: the checksum is another; the file is damaged", name);
  }
  source->source_ = parse_json(body.substr(0, source_bytes));
  if (!source->source_.is_object()) {
    return qsf::corrupt("%s: does not say where its logits come from", name);
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
          "%s: holds %u rows, and one more is asked for; give fewer --steps", path_.c_str(),
          n_rows_);
    }
    if (next_row_ < tokens_.size() && tokens_[next_row_] != token) {
      return qsf::invalid_argument("%s: row %u was recorded after token %u, asked for is %u",
                                   path_.c_str(), next_row_, tokens_[next_row_], token);
    }
    const auto row =
        std::span<const float>(logits_).subspan(std::size_t{next_row_} * n_vocab_, n_vocab_);
    std::copy(row.begin(), row.end(), logits.begin());
    logits = logits.subspan(n_vocab_);
    ++next_row_;
  }
  return qsf::ok_status();
}

nlohmann::json RecordedSource::describe() const {
  return {{"kind", "file"},    {"name", "recorded logits"}, {"path", path_},
          {"sha256", sha256_}, {"n_vocab", n_vocab_},       {"recorded_from", source_}};
}

}  // namespace qsf_tools
