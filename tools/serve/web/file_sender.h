// SPDX-License-Identifier: MIT
//
// Sends parts of files as their clients take them, on one thread: a piece of each in turn.

#ifndef QSF_TOOLS_SERVE_WEB_FILE_SENDER_H_
#define QSF_TOOLS_SERVE_WEB_FILE_SENDER_H_

#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "tools/serve/http/http_exchange.h"

namespace qsf_tools {

// Threads  any may send
class FileSender {
 public:
  FileSender();
  // Waits for the thread; what is not sent is cut off.
  ~FileSender();
  FileSender(const FileSender&) = delete;
  FileSender& operator=(const FileSender&) = delete;

  // Sends `n_bytes` of `file`, from where it stands, as the rest of a response. One that turns out
  // shorter ends the connection. Requires  exchange->start()
  void send(std::shared_ptr<HttpExchange> exchange, std::ifstream file, std::uint64_t n_bytes);

 private:
  struct Part {
    std::shared_ptr<HttpExchange> exchange;
    std::ifstream file;
    std::uint64_t left = 0;
  };

  static void on_change(void* self);
  void run();
  static bool send_piece(Part& part, bool& is_over);

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<Part> new_;
  bool is_woken_ = false;
  bool is_ending_ = false;

  std::thread thread_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_WEB_FILE_SENDER_H_
