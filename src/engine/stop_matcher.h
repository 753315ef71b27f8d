// SPDX-License-Identifier: MIT
//
// Stop strings in a stream of text: holds back text that may begin a stop string, passes the rest.
//
// The result depends on the text alone, not on how it is cut into pieces: the text ends before the
// first stop string completed; where several end at the same byte, before the longest.

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
  // Reserves memory for pieces of `piece_bytes`; a longer piece costs an allocation when it is the
  // longest so far. Empty stop strings match nothing.
  explicit StopMatcher(std::span<const std::string> stops, std::size_t piece_bytes = 256);

  // Takes the next piece, whole UTF-8 characters, and returns the text that can be shown.
  // Guarantees  The text is whole characters and valid until the next call. When a stop
  //             string is found it is the text before it; stopped() is true, and later calls return
  //             nothing. No allocation (see the constructor).
  std::string_view push(std::string_view piece);

  // Returns the text held back, at the end of the stream.
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
