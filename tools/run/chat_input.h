// SPDX-License-Identifier: MIT
//
// The input of a chat: lines, messages of several lines, and Ctrl-C, which stops an answer and not
// the program.

#ifndef QSF_TOOLS_RUN_CHAT_INPUT_H_
#define QSF_TOOLS_RUN_CHAT_INPUT_H_

#include <memory>
#include <string>
#include <string_view>

#include "qsf/qsf.h"

namespace qsf_tools {

class ChatInterrupt {
 public:
  // Takes over SIGINT, and SIGWINCH and SIGCONT, after which a line being edited is drawn again.
  ChatInterrupt();
  ~ChatInterrupt();
  ChatInterrupt(const ChatInterrupt&) = delete;
  ChatInterrupt& operator=(const ChatInterrupt&) = delete;

  // From here to end_answer() Ctrl-C cancels what the engine computes.
  void begin_answer(QSFEngine* engine);
  // Returns whether Ctrl-C came since begin_answer().
  bool end_answer();
  // For the handler of Ctrl-C, and safe in a signal handler: cancels the answer that is being
  // computed. Returns whether one is.
  static bool cancel_answer() noexcept;

  enum class Wake { kInput, kInterrupted, kRedraw };
  // Waits until standard input can be read or a signal came. Signals of before are dropped by
  // discard(). Where the system cannot wait so, reading waits, and ends with EINTR.
  Wake wait();
  void discard();
};

class LineSource {
 public:
  enum class Outcome { kLine, kEnd, kInterrupted, kFailed };

  virtual ~LineSource() = default;
  // Reads a line without its newline; a line that was pasted or recalled may hold newlines.
  // `continued`: it goes on with a message. kFailed: `line` says why.
  virtual Outcome read(bool continued, std::string& line) = 0;
};

// Lines of standard input as they are: nothing is drawn and nothing edited.
std::unique_ptr<LineSource> make_plain_lines(ChatInterrupt& interrupt);

// Puts a message together: a line that ends in a backslash goes on in the next one, and what stands
// between two lines of three quotes is one message.
class MessageBuilder {
 public:
  // Takes the next line. Returns true when the message is complete.
  bool add(std::string_view line);
  // True in the middle of a message.
  bool open() const { return state_ != State::kEmpty; }
  // Returns the message so far and begins a new one.
  std::string take();

 private:
  enum class State { kEmpty, kContinued, kQuoted };
  bool add_quoted(std::string_view line);

  State state_ = State::kEmpty;
  std::string text_;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_CHAT_INPUT_H_
