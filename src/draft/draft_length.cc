// SPDX-License-Identifier: MIT

#include "draft/draft_length.h"

#include <algorithm>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {
namespace {

// Chances before anything is learned. 3 to 4 tokens: prompt look-up by 3-grams yields 1.54 to 1.75
// tokens a pass (Spec-Bench), which is a chance of 0.35 to 0.43. Summaries at 1.8 times the speed
// are 0.45, editing at 3 times is 0.67, and what copies on and on is more. Behind one token or two
// statistics of a text save a quarter of the passes at best. Small models of the family yield 2.0
// to 2.3 tokens a pass (the same).
constexpr std::array<double, DraftLength::kClasses> kPriorChances = {0.1, 0.25, 0.4, 0.55,
                                                                     0.7, 0.85, 0.55};
// Tokens that a prior counts as.
constexpr double kPriorSeen = 4.0;
// What counts keep at each pass that adds to them: about the last 20 passes count.
constexpr double kKeep = 0.95;

// The tokens that passes without drafts yield in the time that a draft takes.
double tokens_lost(const DraftOutcome& outcome, PassTimes pass_ns) noexcept {
  const std::uint64_t further_ns = pass_ns[outcome.n_drafted] - pass_ns[0] + outcome.drafting_ns;
  return outcome.n_undrafted * static_cast<double>(further_ns) / static_cast<double>(pass_ns[0]);
}

}  // namespace

std::uint32_t best_draft_tokens(double chance, PassTimes pass_ns, double n_undrafted) noexcept {
  std::uint32_t best = 0;
  double best_rate = kLeastDraftGain * n_undrafted / static_cast<double>(pass_ns[0]);
  double reached = 1.0;
  double yield = n_undrafted;
  for (std::uint32_t k = 1; k < pass_ns.size(); ++k) {
    reached *= chance;
    yield += reached;
    const double rate = yield / static_cast<double>(pass_ns[k]);
    if (rate < best_rate) continue;
    best = k;
    best_rate = rate;
  }
  return best;
}

DraftLength::DraftLength() noexcept {
  for (std::uint32_t i = 0; i < kClasses; ++i) {
    classes_[i].n_seen = kPriorSeen;
    classes_[i].n_accepted = kPriorSeen * kPriorChances[i];
  }
}

double DraftLength::chance(std::uint32_t match_tokens) const noexcept {
  const Class& of_match = classes_[class_of(match_tokens)];
  return of_match.n_accepted / of_match.n_seen;
}

std::uint32_t DraftLength::n_tokens(std::uint32_t match_tokens, PassTimes pass_ns,
                                    double n_undrafted) const noexcept {
  if (match_tokens == 0) return 0;
  const PassTimes times = pass_ns.first(std::min<std::size_t>(pass_ns.size(), kMaxDraftTokens + 1));
  const double most_ns = static_cast<double>(times[0]) * (1.0 + credit(match_tokens) / n_undrafted);
  const auto paid_for = ranges::partition_point(
      times, [most_ns](std::uint64_t ns) { return static_cast<double>(ns) <= most_ns; });
  const auto n_rows = static_cast<std::size_t>(paid_for - times.begin());
  const std::uint32_t best =
      best_draft_tokens(chance(match_tokens), times.first(n_rows), n_undrafted);
  return best == 0 && n_rows > 1 ? 1 : best;
}

double DraftLength::rate(std::uint32_t match_tokens, std::uint32_t n_drafted, PassTimes pass_ns,
                         double n_undrafted) const noexcept {
  QSF_DCHECK(n_drafted < pass_ns.size());
  const double of_each = chance(match_tokens);
  double reached = 1.0;
  double yield = n_undrafted;
  for (std::uint32_t k = 0; k < n_drafted; ++k) yield += reached *= of_each;
  return yield / static_cast<double>(pass_ns[n_drafted]);
}

void DraftLength::update(const DraftOutcome& outcome, PassTimes pass_ns) noexcept {
  QSF_DCHECK(outcome.n_accepted <= outcome.n_drafted && outcome.n_drafted < pass_ns.size());
  if (outcome.match_tokens == 0) return;
  Class& of_match = classes_[class_of(outcome.match_tokens)];
  if (outcome.n_drafted > 0) {
    const std::uint32_t n_seen = std::min(outcome.n_accepted + 1, outcome.n_drafted);
    of_match.n_seen = of_match.n_seen * kKeep + n_seen;
    of_match.n_accepted = of_match.n_accepted * kKeep + outcome.n_accepted;
  }
  const double change = kProbeShare + outcome.n_accepted - tokens_lost(outcome, pass_ns);
  of_match.credit = std::clamp(of_match.credit + change, 0.0, kMostCredit);
}

}  // namespace qsf
