// SPDX-License-Identifier: MIT
//
// The text of a generation: whole characters for its callback, nothing of a stop string.

#ifndef QSF_ENGINE_TEXT_STREAM_H_
#define QSF_ENGINE_TEXT_STREAM_H_

#include <string_view>

#include "engine/engine.h"
#include "engine/stop_matcher.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace qsf {

class TextStream {
 public:
  // Requires  tokenizer and options outlive the stream
  TextStream(const Tokenizer& tokenizer, const GenerateOptions& options)
      : options_(options),
        decoder_(tokenizer, {.skip_special = !options.keep_special, .at_text_start = false}),
        stops_(options.stop, tokenizer.longest_token_bytes() + 8) {}

  // Delivers a token of the prompt, without a search for stop strings.
  void echo(TokenId token) { emit(token, decoder_.push(token)); }
  // Delivers a generated token, all but its text filled. Returns whether to go on: false when a
  // stop string was found, or the receiver ends it.
  bool push(GeneratedToken token) {
    token.text = stops_.push(decoder_.push(token.token));
    emit(token.token, token.text);
    deliver(token);
    return !stops_.stopped() && !ended_by_receiver_;
  }
  // Delivers the token that ended the text, behind its rest.
  void deliver_end(const GeneratedToken& token) { deliver(token); }
  bool ended_by_receiver() const noexcept { return ended_by_receiver_; }
  // Ends all deliveries.
  void mute() noexcept { muted_ = true; }
  // Delivers the text held back, if any, with the id of the last token.
  void finish() {
    if (stops_.stopped()) return;
    emit_rest(stops_.push(decoder_.finish()));
    if (!stops_.stopped()) emit_rest(stops_.finish());
  }

 private:
  void emit_rest(std::string_view text) {
    if (text.empty()) return;
    emit(last_, text);
    deliver({.token = last_, .is_rest = true, .text = text});
  }
  void deliver(const GeneratedToken& token) {
    if (muted_ || ended_by_receiver_ || options_.on_generated == nullptr) return;
    ended_by_receiver_ = options_.on_generated(token, options_.user) != 0;
  }
  void emit(TokenId token, std::string_view text) {
    last_ = token;
    if (!muted_ && options_.on_token != nullptr) options_.on_token(token, text, options_.user);
  }

  const GenerateOptions& options_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  bool muted_ = false;
  bool ended_by_receiver_ = false;
  TokenId last_ = 0;  // delivered last; text is held back only after some token
};

}  // namespace qsf

#endif  // QSF_ENGINE_TEXT_STREAM_H_
