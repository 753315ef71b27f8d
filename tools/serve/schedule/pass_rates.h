// SPDX-License-Identifier: MIT
//
// The measured cost of a pass, and how many prompt rows the next one may carry.
//
// The time of a pass is modelled as the time of one without prompt rows plus a time for each prompt
// row. Both are learnt from the passes that run; a constant would be wrong on every machine but
// one.

#ifndef QSF_TOOLS_SERVE_SCHEDULE_PASS_RATES_H_
#define QSF_TOOLS_SERVE_SCHEDULE_PASS_RATES_H_

#include <cstdint>

namespace qsf_tools {

// The default bound on the time between two tokens of a text, as far as prompts of others matter:
// passes without prompt rows where weights are streamed, else seconds.
inline constexpr double kStreamedGapPasses = 1.25;
inline constexpr double kResidentGapSeconds = 0.2;

// Threads  one
class PassRates {
 public:
  // `streamed`: passes read weights from the disk. `max_token_gap_seconds` 0: the default bound.
  PassRates(bool streamed, double max_token_gap_seconds) noexcept
      : streamed_(streamed), max_gap_seconds_(max_token_gap_seconds) {}

  // Learns from a pass.
  void add(int prompt_rows, int generated_rows, double seconds) noexcept;

  // Returns how many prompt rows the next pass may have beside `generating` generating texts; 0 for
  // no limit, which is the answer where none generates.
  int max_prompt_rows(int generating) const noexcept;

  // Seconds of a pass without prompt rows, and of a prompt row; 0 where not known yet.
  double pass_seconds() const noexcept { return pass_seconds_; }
  double row_seconds() const noexcept { return row_seconds_; }
  // Seconds until that many prompt tokens are computed; 0 where not known.
  double prompt_seconds(std::uint64_t prompt_tokens) const noexcept {
    return static_cast<double>(prompt_tokens) * row_seconds_;
  }

 private:
  bool streamed_;
  double max_gap_seconds_;
  double pass_seconds_ = 0.0;
  double row_seconds_ = 0.0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SCHEDULE_PASS_RATES_H_
