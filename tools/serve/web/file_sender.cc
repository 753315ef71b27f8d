// SPDX-License-Identifier: MIT
#include "tools/serve/web/file_sender.h"

#include <algorithm>
#include <string>
#include <utility>

namespace qsf_tools {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 10U;

}  // namespace

FileSender::FileSender() : thread_([this] { run(); }) {}

FileSender::~FileSender() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void FileSender::send(std::shared_ptr<HttpExchange> exchange, std::ifstream file,
                      std::uint64_t n_bytes) {
  exchange->set_on_change(&FileSender::on_change, this);
  {
    const std::lock_guard lock(mutex_);
    new_.push_back({std::move(exchange), std::move(file), n_bytes});
    is_woken_ = true;
  }
  changed_.notify_one();
}

// A client has taken some, or has gone.
void FileSender::on_change(void* self) {
  auto& sender = *static_cast<FileSender*>(self);
  {
    const std::lock_guard lock(sender.mutex_);
    sender.is_woken_ = true;
  }
  sender.changed_.notify_one();
}

void FileSender::run() {
  std::list<Part> parts;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_woken_ || is_ending_; });
      if (is_ending_) return;
      is_woken_ = false;
      parts.splice(parts.end(), new_);
    }
    // Without the lock, which on_change takes.
    for (bool has_sent = true; has_sent;) {
      has_sent = false;
      for (auto part = parts.begin(); part != parts.end();) {
        bool is_over = false;
        has_sent = send_piece(*part, is_over) || has_sent;
        part = is_over ? parts.erase(part) : std::next(part);
      }
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
      parts.splice(parts.end(), new_);
    }
  }
}

// Returns whether a piece was sent.
bool FileSender::send_piece(Part& part, bool& is_over) {
  HttpExchange& exchange = *part.exchange;
  is_over = part.left == 0 || exchange.is_gone();
  if (is_over) {
    exchange.finish(part.left == 0);
    return false;
  }
  if (exchange.is_full()) return false;
  std::string piece(static_cast<std::size_t>(std::min(part.left, kPieceBytes)), '\0');
  part.file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
  if (!part.file) {
    exchange.finish(/*complete=*/false);
    is_over = true;
    return false;
  }
  part.left -= piece.size();
  exchange.write(std::move(piece));
  return true;
}

}  // namespace qsf_tools
