// SPDX-License-Identifier: MIT
//
// ChildSource: a reference in a child process, which is asked over its standard input and answers
// on its standard output (docs/parity.md has the protocol). Nothing the child says is believed:
// kinds, sizes, ids and the hello are checked, and each answer has a deadline. What a trace keeps
// of a point is computed here, from the values that the child sends.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_CHILD_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_CHILD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/parity/qsf_parity_process.h"
#include "tools/parity/qsf_parity_source.h"

namespace qsf_tools {

struct ChildOptions {
  std::string program;
  std::string model;
  std::uint32_t context = 0;
  std::uint32_t n_threads = 1;
  std::string kv_type = "f16";
  double timeout_seconds = 120.0;
  bool trace = false;  // have the points of its graph sent as well
};

class ChildSource final : public LogitsSource {
 public:
  // Starts the program and hears its hello.
  // Fails  kIo as ChildProcess; kCorrupt for an answer that is none; kUnsupported for another
  //        protocol, and with the child's words when it refuses
  static qsf::Result<std::unique_ptr<ChildSource>> start(const ChildOptions& options);

  std::uint32_t n_vocab() const override { return n_vocab_; }
  qsf::Result<std::vector<std::uint32_t>> tokenize(const std::string& text,
                                                   bool parse_special) override;
  qsf::Status evaluate(std::span<const std::uint32_t> tokens, bool generated,
                       std::span<float> logits) override;
  std::span<const TracePoint> points() const override { return points_; }
  nlohmann::json describe() const override;

 private:
  ChildSource(ChildOptions options, std::unique_ptr<ChildProcess> process);
  qsf::Status hear_hello();
  std::uint64_t deadline() const;
  qsf::Status send(std::uint32_t kind, const std::string& payload);
  struct Message {
    std::uint32_t kind = 0;
    std::string payload;
  };
  // Receives a message of this kind, of any size up to `max_bytes`; or a point, if those may come.
  qsf::Result<Message> receive_any(std::uint32_t kind, std::uint64_t max_bytes, bool points);
  qsf::Result<std::string> receive(std::uint32_t kind, std::uint64_t max_bytes);
  // Takes a point of the pass in work, which has `n_rows` tokens.
  qsf::Status add_point(const std::string& message, std::size_t n_rows);

  ChildOptions options_;
  std::unique_ptr<ChildProcess> process_;
  std::uint32_t n_vocab_ = 0;
  std::uint32_t n_past_ = 0;
  std::int32_t pass_ = 0;
  std::vector<TracePoint> points_;
  nlohmann::json hello_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_CHILD_H_
