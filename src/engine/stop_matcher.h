// SPDX-License-Identifier: MIT
//
// Stop strings over a stream of text: holds back what may be the beginning of one, lets the rest
// through.
//
// The outcome depends on the text alone, never on how it was cut into pieces: the text ends before
// the stop string that is complete first; where several end at one byte, before the longest.

#ifndef QSF_ENGINE_STOP_MATCHER_H_
#define QSF_ENGINE_STOP_MATCHER_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qsf {

class StopMatcher {
 public:
  // Reserves what pieces of at most `piece_bytes` need; longer ones cost an allocation each time
  // they set a record. Empty stop strings match nothing.
  explicit StopMatcher(std::span<const std::string> stops, std::size_t piece_bytes = 256);

  // Takes the next piece, whole UTF-8 characters, and returns the text that is safe to show now.
  // Guarantees  The text is whole characters and valid until the next call. After a stop string
  //             was found it is what stood before it, stopped() is true and every later call
  //             returns nothing. No allocation (see the constructor).
  std::string_view push(std::string_view piece);

  // Returns what was held back: the stream ended and it was no stop string after all.
  std::string_view finish();

  bool stopped() const noexcept { return stopped_; }

 private:
  std::size_t longest_stop_ending_at(std::size_t end) const noexcept;
  std::size_t held_bytes() const noexcept;

  std::vector<std::string> stops_;
  std::string buffer_;  // [0, shown_) was returned by the last call, the rest is held back
  std::size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace qsf

#endif  // QSF_ENGINE_STOP_MATCHER_H_
