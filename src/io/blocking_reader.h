// SPDX-License-Identifier: MIT
//
// BlockingReader: the queue of a thread that reads with blocking calls, one at a time. Depth comes
// from having several such threads.

#ifndef QSF_IO_BLOCKING_READER_H_
#define QSF_IO_BLOCKING_READER_H_

#include <memory>
#include <string_view>

#include "io/async_reader.h"
#include "io/pending_read.h"

namespace qsf {

class BlockingReader final : public AsyncReader {
 public:
  // Requires  `source` outlives the reader
  explicit BlockingReader(const ReadSource& source) noexcept : source_(&source) {}

  unsigned depth() const noexcept override { return 1; }
  unsigned in_flight() const noexcept override { return is_waiting_ ? 1 : 0; }
  void start(const ReadRequest& request) override;
  ReadDone wait() override;
  std::string_view note() const noexcept override { return note_; }

 private:
  const ReadSource* source_;
  ReadRequest request_;
  bool is_waiting_ = false;
  std::string_view note_;
};

}  // namespace qsf

#endif  // QSF_IO_BLOCKING_READER_H_
