// SPDX-License-Identifier: MIT
//
// LogitsSource: turns tokens into logits. EngineSource is this engine, RecordedSource a file of
// recorded logits, which LogitsRecorder writes (docs/parity-protocol.md has the format);
// ChildSource is another program (parity_child.h).

#ifndef QSF_TOOLS_PARITY_PARITY_SOURCE_H_
#define QSF_TOOLS_PARITY_PARITY_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "io/atomic_file.h"
#include "ops/operator_observer.h"
#include "tools/common/engine_options.h"
#include "tools/parity/parity_trace.h"

namespace qsf_tools {

inline constexpr const char* kParityTool = "qsf-parity";

// What the receipt records about a source. Fields without a value do not apply to its kind.
struct SourceDescription {
  std::string kind;  // "engine", "child", "file", or "none" where it could not be opened
  std::string name;
  std::uint32_t n_vocab = 0;
  std::optional<std::string> backend;  // of an engine
  std::optional<std::string> device;
  std::optional<std::string> instruction_set;
  std::optional<bool> exact;
  std::optional<std::string> kv_type;
  std::optional<std::uint32_t> threads;
  std::optional<std::string> program;  // of a child
  std::optional<std::string> commit;
  std::optional<std::string> system;
  std::optional<double> timeout_seconds;
  std::optional<std::string> path;  // of a file
  std::optional<std::optional<std::string>> sha256;
  std::optional<std::string> recorded_from;  // a JSON object
};

class LogitsSource {
 public:
  virtual ~LogitsSource() = default;

  virtual std::uint32_t n_vocab() const = 0;
  // Returns the ids of a text as the model begins texts.
  virtual qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                           bool parse_special) = 0;
  // Appends tokens to the context, as a prompt or as one generated token, and writes the logits
  // after each.
  // Shapes    logits [tokens.size(), n_vocab]
  // Requires  1 token or more; exactly 1 with `generated`
  virtual qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                               std::span<float> logits) = 0;
  // The points of the graph, where tracing was requested and is possible.
  virtual std::span<const TracePoint> points() const { return {}; }
  virtual SourceDescription describe() const = 0;
};

struct EngineSourceOptions {
  std::string model;
  std::uint32_t context = 0;
  unsigned n_threads = 0;
  KvTypeChoice kv_types;
  bool exact = false;
  qsf::OperatorObserver* observer = nullptr;  // outlives the source
};

class EngineSource final : public LogitsSource {
 public:
  // Fails  as Engine::open
  static qsf::Result<std::unique_ptr<EngineSource>> open(const EngineSourceOptions& options);

  const qsf::Engine& engine() const noexcept { return *engine_; }
  const EngineSourceOptions& options() const noexcept { return options_; }

  std::uint32_t n_vocab() const override { return engine_->spec().n_vocab; }
  qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                   bool parse_special) override;
  qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                       std::span<float> logits) override;
  SourceDescription describe() const override;

 private:
  EngineSource(EngineSourceOptions options, std::unique_ptr<qsf::Engine> engine);

  EngineSourceOptions options_;
  std::unique_ptr<qsf::Engine> engine_;
  std::unique_ptr<qsf::Session> session_;
};

// What the receipt records about a model and its tokenizer.
struct ModelDescription {
  std::string architecture;
  std::string quantisation;
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t n_vocab = 0;
  std::uint64_t parameters = 0;
  bool natively_ternary = false;
  bool int8_rows = false;
  std::string source;
  std::string quantiser;
};
struct TokenizerDescription {
  std::string source;
  std::string kind;
  std::uint64_t n_tokens = 0;
  std::optional<std::uint32_t> bos;
  std::optional<std::uint32_t> eos;
  bool add_bos = false;
  bool add_eos = false;
};
ModelDescription describe_model(const qsf::Engine& engine);
// Returns nothing for a model without a tokenizer.
std::optional<TokenizerDescription> describe_tokenizer(const qsf::Engine& engine);

// Writes a file row by row; it appears whole when it is finished, or not at all.
class LogitsRecorder {
 public:
  // `tokens`: of the prompt; rows of generated tokens may follow. `source`: source_text().
  static qsf::Result<LogitsRecorder> create(const std::string& path, std::uint32_t n_vocab,
                                            const std::vector<std::uint32_t>& tokens,
                                            const std::string& source);
  // Shapes  logits [any number of rows, n_vocab]
  qsf::Status add(std::span<const float> logits);
  // Requires  a row for each token of the prompt at least
  qsf::Status finish();

 private:
  explicit LogitsRecorder(qsf::AtomicFile file) : file_(std::move(file)) {}

  qsf::AtomicFile file_;
  std::uint32_t n_vocab_ = 0;
  std::uint32_t n_rows_ = 0;
  std::uint64_t offset_ = 0;
  std::uint32_t checksum_ = 0;  // of all bytes behind the header
  std::string header_;
};

class RecordedSource final : public LogitsSource {
 public:
  // Reads and checks a file.
  // Fails  kNotFound, kIo; kCorrupt for a file that is none, is cut, or whose checksum is another
  static qsf::Result<std::unique_ptr<RecordedSource>> open(const std::string& path);

  std::uint32_t n_vocab() const override { return n_vocab_; }
  const std::vector<std::uint32_t>& tokens() const noexcept { return tokens_; }
  std::uint32_t n_rows() const noexcept { return n_rows_; }
  // Returns the recorded tokens, whatever the text; the comparison checks them against ours.
  qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                   bool parse_special) override;
  qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                       std::span<float> logits) override;
  SourceDescription describe() const override;

 private:
  RecordedSource() = default;

  std::string path_;
  std::string sha256_;
  std::string source_;
  std::uint32_t n_vocab_ = 0;
  std::uint32_t n_rows_ = 0;
  std::uint32_t next_row_ = 0;
  std::vector<std::uint32_t> tokens_;
  std::vector<float> logits_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_SOURCE_H_
