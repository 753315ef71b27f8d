// SPDX-License-Identifier: MIT
//
// SplitReader: a queue that reads in blocks of the size that the disk likes, whatever the size of
// what is asked for.
//
// As many blocks are in flight as the queue below takes, of the request that came first and then of
// those behind it.

#ifndef QSF_IO_SPLIT_READER_H_
#define QSF_IO_SPLIT_READER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "io/async_reader.h"

namespace qsf {

class SplitReader final : public AsyncReader {
 public:
  // Requires  block_bytes is a multiple of kDirectAlign, not 0
  SplitReader(std::unique_ptr<AsyncReader> blocks, std::uint32_t block_bytes);
  ~SplitReader() override;

  unsigned depth() const noexcept override { return blocks_->depth(); }
  unsigned in_flight() const noexcept override { return n_in_flight_; }
  void start(const ReadRequest& request) override;
  ReadDone wait() override;
  std::string_view note() const noexcept override { return blocks_->note(); }

 private:
  struct Entry {
    bool in_use = false;
    ReadRequest request;
    std::uint64_t number = 0;       // requests are begun in this order
    std::size_t started_bytes = 0;  // all of them once a block failed
    unsigned blocks_in_flight = 0;
    Status status;  // of the first block that failed
    bool is_over() const noexcept {
      return blocks_in_flight == 0 && started_bytes == request.to.size();
    }
  };

  Entry* next_to_begin() noexcept;
  void fill();

  std::unique_ptr<AsyncReader> blocks_;
  std::uint32_t block_bytes_;
  std::vector<Entry> entries_;  // [depth()]
  unsigned n_in_flight_ = 0;
  std::uint64_t n_started_ = 0;
};

}  // namespace qsf

#endif  // QSF_IO_SPLIT_READER_H_
