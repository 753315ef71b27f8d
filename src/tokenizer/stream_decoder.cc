// SPDX-License-Identifier: MIT

#include "tokenizer/stream_decoder.h"

#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::size_t kMaxHeldBytes = 3;                   // of a four-byte sequence

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer),
      skip_special_(options.skip_special),
      strip_space_(options.at_text_start && tokenizer.strips_leading_space()) {
  const std::size_t most = kMaxHeldBytes + tokenizer.longest_token_bytes();
  pending_.reserve(most);
  ready_.reserve(most * kReplacement.size());  // every byte may be an invalid one
}

std::string_view StreamDecoder::push(TokenId id) {
  const std::size_t n_held = pending_.size();
  tokenizer_->append_bytes(id, skip_special_, pending_);
  if (strip_space_ && pending_.size() > n_held && !tokenizer_->is_special(id)) {
    if (pending_[n_held] == ' ') pending_.erase(n_held, 1);
    strip_space_ = false;
  }
  ready_.clear();
  std::size_t done = 0;
  while (done < pending_.size()) {
    const Utf8Char next = decode_utf8(pending_, done);
    if (next.incomplete) break;
    ready_.append(next.valid ? std::string_view(pending_).substr(done, next.n_bytes)
                             : kReplacement);
    done += next.n_bytes;
  }
  pending_.erase(0, done);
  return ready_;
}

std::string_view StreamDecoder::finish() {
  ready_.clear();
  if (!pending_.empty()) ready_.append(kReplacement);
  pending_.clear();
  return ready_;
}

}  // namespace qsf
