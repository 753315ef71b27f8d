// SPDX-License-Identifier: MIT
//
// Ctrl-C in a chat: it stops the answer, not the program.
//
// One at a time, since signals belong to the process.

#ifndef QSF_TOOLS_RUN_CHAT_INTERRUPT_H_
#define QSF_TOOLS_RUN_CHAT_INTERRUPT_H_

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

  enum class Wake { kInput, kInterrupted, kRedraw };
  // Waits until `fd` can be read or a signal came. Signals of before are forgotten by forget().
  Wake wait(int fd);
  void forget();

 private:
  int pipe_[2] = {-1, -1};  // a signal writes its number, so that waiting ends whenever it comes
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_CHAT_INTERRUPT_H_
