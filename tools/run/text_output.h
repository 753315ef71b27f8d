// SPDX-License-Identifier: MIT
//
// Text on its way to standard output, piece by piece, each written at once.

#ifndef QSF_TOOLS_RUN_TEXT_OUTPUT_H_
#define QSF_TOOLS_RUN_TEXT_OUTPUT_H_

#include <string_view>

namespace qsf_tools {

// Requires  SIGPIPE is ignored, so that a closed pipe is an error and not the end of the process.
class TextOutput {
 public:
  // Writes a piece. Returns false when this or an earlier write failed.
  bool write(std::string_view text);

  // Ends the text with a newline when there is a text that does not end in one.
  bool end_line();

  bool failed() const { return error_ != 0; }
  // True when the reader closed its end, as `head` does: no reason to complain.
  bool reader_left() const;
  // Why a write failed, for people.
  const char* reason() const;

 private:
  int error_ = 0;  // errno of the first failure
  char last_ = '\n';
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_TEXT_OUTPUT_H_
