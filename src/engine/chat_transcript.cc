// SPDX-License-Identifier: MIT
//
// Text and tokens side by side; the contract is in chat_transcript.h.

#include "engine/chat_transcript.h"

#include <utility>

namespace qsf {

Result<ChatTranscript::Prompt> ChatTranscript::continue_with(ChatText text,
                                                             const ChatFormat& format) const {
  const std::size_t n_shared = shared_bytes(text_, text);
  Prompt prompt;
  prompt.n_marks = marks_.size();
  while (prompt.n_marks > 0 && marks_[prompt.n_marks - 1].n_bytes > n_shared) --prompt.n_marks;
  const Mark from = prompt.n_marks == 0 ? Mark{0, 0} : marks_[prompt.n_marks - 1];
  prompt.tokens.assign(tokens_.begin(),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(from.n_tokens));
  QSF_RETURN_IF_ERROR(format.encode(text, from.n_bytes, prompt.tokens));
  prompt.text = std::move(text);
  return prompt;
}

void ChatTranscript::record(Prompt prompt, std::string_view answer,
                            std::span<const TokenId> answer_tokens, bool whole) {
  marks_.resize(prompt.n_marks);
  text_ = std::move(prompt.text);
  tokens_ = std::move(prompt.tokens);
  marks_.push_back({text_.text.size(), tokens_.size()});
  text_.append(answer, false);
  tokens_.insert(tokens_.end(), answer_tokens.begin(), answer_tokens.end());
  if (whole) marks_.push_back({text_.text.size(), tokens_.size()});
}

void ChatTranscript::clear() noexcept {
  text_ = {};
  tokens_.clear();
  marks_.clear();
}

}  // namespace qsf
