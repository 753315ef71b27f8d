// SPDX-License-Identifier: MIT
//
// Recorded logits: a file of tokens and the logits after each, written from one source and replayed
// as another. docs/parity.md has the format.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_LOGITS_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_LOGITS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "tools/parity/qsf_parity_source.h"

namespace qsf_tools {

// Writes a file row by row; it appears whole when it is finished, or not at all.
class LogitsRecorder {
 public:
  // `tokens` are those of the prompt; rows of generated tokens may follow theirs.
  static qsf::Result<LogitsRecorder> create(const std::string& path, std::uint32_t n_vocab,
                                            const std::vector<std::uint32_t>& tokens,
                                            const nlohmann::json& source);
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
  // Returns the tokens that were recorded, whatever the text: they are then held to ours.
  qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                   bool parse_special) override;
  qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                       std::span<float> logits) override;
  nlohmann::json describe() const override;

 private:
  RecordedSource() = default;

  std::string path_;
  std::string sha256_;
  nlohmann::json source_;
  std::uint32_t n_vocab_ = 0;
  std::uint32_t n_rows_ = 0;
  std::uint32_t next_row_ = 0;
  std::vector<std::uint32_t> tokens_;
  std::vector<float> logits_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_LOGITS_H_
