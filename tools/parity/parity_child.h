// SPDX-License-Identifier: MIT
//
// A reference in a child process: ChildProcess, with a deadline for every wait, and ChildSource,
// which speaks the protocol of docs/parity-protocol.md over its standard input and output.
//
// Nothing from the child is trusted: kinds, sizes, ids and the hello are checked, and each answer
// has a deadline. The points of a trace are computed here, from the values that the child sends.
// The end of its standard error is kept for the message when it fails. A child that does not end is
// killed with its process group.

#ifndef QSF_TOOLS_PARITY_PARITY_CHILD_H_
#define QSF_TOOLS_PARITY_PARITY_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/parity/parity_source.h"

namespace qsf_tools {

class ChildProcess {
 public:
  // Starts a program, looked up in PATH when its name has no slash.
  // Fails  kIo when it cannot be started
  static qsf::Result<std::unique_ptr<ChildProcess>> start(
      const std::vector<std::string>& arguments);
  // Closes the pipes, gives the child a second to end, and kills it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Write and read exactly the bytes of the span before `deadline_ns` of the monotonic clock.
  // Fails  kIo: the deadline passed, or the child closed its end; the message has the child's exit
  //        status and its last output on standard error
  qsf::Status write(std::span<const char> bytes, std::uint64_t deadline_ns);
  qsf::Status read(std::span<char> bytes, std::uint64_t deadline_ns);
  // Returns "; it said: ..." with the end of the child's standard error; empty for none.
  std::string last_words();

 private:
  ChildProcess(std::string name, pid_t pid, int in, int out, int err) noexcept;
  // Waits until `handle` is ready; meanwhile reads the child's standard error.
  qsf::Status wait_for(int handle, short events, std::uint64_t deadline_ns);
  void drain_errors();
  // Waits for the child to end; returns whether it did.
  bool reap(std::uint64_t deadline_ns);
  qsf::Status gone();

  std::string name_;
  pid_t pid_;
  int in_;
  int out_;
  int err_;
  int exit_status_ = 0;
  bool reaped_ = false;
  std::string errors_;
};

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
  SourceDescription describe() const override;

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
  SourceDescription described_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_PARITY_CHILD_H_
