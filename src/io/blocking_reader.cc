// SPDX-License-Identifier: MIT

#include "io/blocking_reader.h"

#include "base/check.h"

namespace qsf {

void BlockingReader::start(const ReadRequest& request) {
  QSF_CHECK(!is_waiting_);
  request_ = request;
  is_waiting_ = true;
}

ReadDone BlockingReader::wait() {
  QSF_CHECK(is_waiting_);
  is_waiting_ = false;
  PendingRead read(*source_, request_);
  read.read_blocking();
  if (read.used_cache()) note_ = kReadThroughCache;
  return read.outcome();
}

}  // namespace qsf
