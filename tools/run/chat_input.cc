// SPDX-License-Identifier: MIT

#include "tools/run/chat_input.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tools/common/console.h"

namespace qsf_tools {

namespace {

std::atomic<QSFEngine*> g_answering{nullptr};
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<QSFEngine*>::is_always_lock_free, "used in a signal handler");

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::size_t kMaxLineBytes = 256'000'000;

class PlainLines final : public LineSource {
 public:
  explicit PlainLines(ChatInterrupt& interrupt) : interrupt_(interrupt) {}

  Outcome read(bool, std::string& line) override {
    std::size_t searched = 0;
    for (;;) {
      const std::size_t newline = buffer_.find('\n', searched);
      if (newline != std::string::npos) {
        line.assign(buffer_, 0, newline);
        buffer_.erase(0, newline + 1);
        if (line.ends_with('\r')) line.pop_back();
        return Outcome::kLine;
      }
      searched = buffer_.size();
      if (ended_) {
        line = std::exchange(buffer_, {});
        return line.empty() ? Outcome::kEnd : Outcome::kLine;
      }
      const ChatInterrupt::Wake wake = interrupt_.wait();
      if (wake == ChatInterrupt::Wake::kInterrupted) return Outcome::kInterrupted;
      if (wake == ChatInterrupt::Wake::kRedraw) continue;
      if (!fill(line)) return Outcome::kFailed;
    }
  }

 private:
  bool fill(std::string& why) {
    char bytes[1 << 16];
    const std::ptrdiff_t n_read = read_input(bytes, sizeof bytes);
    if (n_read == -EINTR) return true;
    if (n_read < 0 || buffer_.size() > kMaxLineBytes) {
      why = n_read < 0 ? std::strerror(static_cast<int>(-n_read)) : "a line of more than 256 MB";
      return false;
    }
    ended_ = n_read == 0;
    buffer_.append(bytes, static_cast<std::size_t>(n_read));
    return true;
  }

  ChatInterrupt& interrupt_;
  std::string buffer_;
  bool ended_ = false;
};

// True for a line whose last backslash is no backslash that another one stands for.
bool goes_on(std::string_view line) {
  const std::size_t last = line.find_last_not_of('\\');
  const std::size_t n_backslashes = line.size() - (last == std::string_view::npos ? 0 : last + 1);
  return n_backslashes % 2 == 1;
}

}  // namespace

void ChatInterrupt::begin_answer(QSFEngine* engine) {
  g_interrupted.store(false);
  g_answering.store(engine);
}

bool ChatInterrupt::end_answer() {
  g_answering.store(nullptr);
  return g_interrupted.load();
}

bool ChatInterrupt::cancel_answer() noexcept {
  QSFEngine* engine = g_answering.load();
  if (engine == nullptr) return false;
  g_interrupted.store(true);
  qsf_engine_cancel(engine);
  return true;
}

std::unique_ptr<LineSource> make_plain_lines(ChatInterrupt& interrupt) {
  return std::make_unique<PlainLines>(interrupt);
}

bool MessageBuilder::add(std::string_view line) {
  if (state_ == State::kQuoted) return add_quoted(line);
  if (state_ == State::kEmpty && line.starts_with(kQuotes)) {
    state_ = State::kQuoted;
    line.remove_prefix(kQuotes.size());
    return line.empty() ? false : add_quoted(line);
  }
  if (!goes_on(line)) {
    text_ += line;
    return true;
  }
  state_ = State::kContinued;
  text_ += line.substr(0, line.size() - 1);
  text_ += '\n';
  return false;
}

bool MessageBuilder::add_quoted(std::string_view line) {
  const std::string_view text = line.substr(0, line.find_last_not_of(" \t") + 1);
  if (!text.ends_with(kQuotes)) {
    text_ += line;
    text_ += '\n';
    return false;
  }
  text_ += text.substr(0, text.size() - kQuotes.size());
  return true;
}

std::string MessageBuilder::take() {
  if (state_ == State::kQuoted && text_.ends_with('\n')) text_.pop_back();
  state_ = State::kEmpty;
  return std::exchange(text_, {});
}

}  // namespace qsf_tools
