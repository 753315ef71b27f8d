// SPDX-License-Identifier: MIT
//
// A child process with pipes to its standard input and output, every wait of which has an end.
//
// The child's standard error is kept, its last bytes, for the message when it fails. A child that
// is given up is killed with its process group.

#ifndef QSF_TOOLS_PARITY_QSF_PARITY_PROCESS_H_
#define QSF_TOOLS_PARITY_QSF_PARITY_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

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
  // Fails  kIo: the deadline passed, or the child closed its end; what became of it and what it
  // said
  //        last are in the message
  qsf::Status write(std::span<const char> bytes, std::uint64_t deadline_ns);
  qsf::Status read(std::span<char> bytes, std::uint64_t deadline_ns);
  // Returns "; it said: ..." with the end of what the child wrote to standard error, empty for
  // nothing.
  std::string last_words();

 private:
  ChildProcess(std::string name, pid_t pid, int in, int out, int err) noexcept;
  // Waits until `handle` is ready; reads what the child says on the way.
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

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_QSF_PARITY_PROCESS_H_
