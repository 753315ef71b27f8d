// SPDX-License-Identifier: MIT
//
// The order in which a budget is spent, and in which wishes are reduced.

#include "engine/budget.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"

namespace qsf {
namespace {

// Below this a prompt's products read their weights from memory more often than they compute; with
// every weight resident fewer rows cost nothing else.
constexpr std::uint32_t kRowsWorthKeeping = 64;
// Prompts of streamed models read the disk once for so many rows even when memory is shortest;
// fewer are taken only to run at all.
constexpr std::uint32_t kFewRows = 16;
// A table of 8 bytes for every page of 4 KiB that is mapped.
constexpr std::uint64_t kBytesOfAPageTableByte = 512;
constexpr std::uint64_t kMegabyte = 1'000'000;
// What a process measures of itself moves by some pages: a budget that a refusal names is still
// enough when the next start finds a few more.
constexpr std::uint64_t kMovementBytes = std::uint64_t{256} << 10;

// Sums of bytes that may come from a stranger's file: they saturate, far above every budget.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  return checked_add(a, b).value_or(UINT64_MAX);
}

class Fitter {
 public:
  Fitter(const BudgetCosts& costs, const BudgetWishes& wishes) : costs_(costs), wishes_(wishes) {}

  Result<BudgetFit> run(BudgetRefusal* refusal) const {
    for (std::uint32_t context = wishes_.context;; context = shorter(context)) {
      if (const auto fit = fit_context(context, kFewRows)) return *fit;
      if (context != least_context()) continue;
      if (const auto fit = fit_context(context, 1)) return *fit;
      return refuse(refusal);
    }
  }

 private:
  std::uint32_t least_context() const {
    return wishes_.context_named ? wishes_.context : std::min(kLeastContext, wishes_.context);
  }
  std::uint32_t shorter(std::uint32_t context) const {
    return std::max(least_context(), context / 2);
  }
  bool fits(std::uint32_t context, std::uint32_t rows, std::uint64_t weight_bytes) const {
    return bytes_of(costs_, context, rows, weight_bytes) <= wishes_.budget_bytes;
  }

  // Returns the most rows in [least, most] that leave room for the weights; nothing when even
  // `least` rows do not.
  std::optional<std::uint32_t> most_rows(std::uint32_t context, std::uint32_t least,
                                         std::uint32_t most, std::uint64_t weight_bytes) const {
    if (!fits(context, least, weight_bytes)) return std::nullopt;
    while (least < most) {
      const std::uint32_t middle = most - (most - least) / 2;
      if (fits(context, middle, weight_bytes)) {
        least = middle;
      } else {
        most = middle - 1;
      }
    }
    return least;
  }

  // Returns the most bytes that weights may take beside so many rows. Requires  the least fit
  std::uint64_t room(std::uint32_t context, std::uint32_t rows) const {
    std::uint64_t least = costs_.least_weight_bytes;
    std::uint64_t most = costs_.all_weight_bytes;
    while (least < most) {
      const std::uint64_t middle = most - (most - least) / 2;
      if (fits(context, rows, middle)) {
        least = middle;
      } else {
        most = middle - 1;
      }
    }
    return least;
  }

  // Fits a context with as much of the rest as there is room for, but at least `few` rows.
  std::optional<BudgetFit> fit_context(std::uint32_t context, std::uint32_t few) const {
    const std::uint32_t wished = std::min(wishes_.rows, context);
    const std::uint32_t kept = std::min(kRowsWorthKeeping, wished);
    few = std::min(few, wished);
    if (const auto rows = most_rows(context, kept, wished, costs_.all_weight_bytes)) {
      return BudgetFit{context, *rows, costs_.all_weight_bytes, true};
    }
    auto rows = most_rows(context, few, wished, costs_.ring_weight_bytes);
    if (!rows) rows = most_rows(context, few, few, costs_.least_weight_bytes);
    if (!rows && few == 1) {
      rows = most_rows(context, 1, std::min(kFewRows, wished), costs_.least_weight_bytes);
    }
    if (!rows) return std::nullopt;
    const std::uint64_t weight_bytes = room(context, *rows);
    return BudgetFit{context, *rows, weight_bytes, weight_bytes == costs_.all_weight_bytes};
  }

  Status refuse(BudgetRefusal* refusal) const {
    const std::uint64_t needed =
        plus(bytes_of(costs_, least_context(), 1, costs_.least_weight_bytes), kMovementBytes);
    const auto budget_mb = static_cast<unsigned long long>(wishes_.budget_bytes / kMegabyte);
    const auto needed_mb =
        static_cast<unsigned long long>(needed / kMegabyte + (needed % kMegabyte != 0 ? 1 : 0));
    if (refusal != nullptr) *refusal = {needed_mb * kMegabyte, wishes_.budget_bytes};
    std::uint32_t context = 0;  // the longest that would fit, by halving the distance
    for (std::uint32_t most = least_context(); context < most;) {
      const std::uint32_t middle = most - (most - context) / 2;
      if (fits(middle, 1, costs_.least_weight_bytes)) {
        context = middle;
      } else {
        most = middle - 1;
      }
    }
    if (context == 0) {
      return out_of_budget(
          "a budget of %llu MB is too small for this model with any context; with %u positions it "
          "needs %llu MB",
          budget_mb, least_context(), needed_mb);
    }
    return out_of_budget(
        "a budget of %llu MB is too small: with a context of %u positions the model needs %llu MB; "
        "a context of %u positions would fit",
        budget_mb, least_context(), needed_mb, context);
  }

  const BudgetCosts& costs_;
  const BudgetWishes& wishes_;
};

}  // namespace

std::uint64_t bytes_of(const BudgetCosts& costs, std::uint32_t context, std::uint32_t rows,
                       std::uint64_t weight_bytes) {
  const std::uint64_t mapped =
      plus(plus(costs.context_bytes(context), costs.rows_bytes(rows, context)), weight_bytes);
  return plus(plus(costs.base_bytes, mapped), mapped / kBytesOfAPageTableByte);
}

Result<BudgetFit> fit_budget(const BudgetCosts& costs, const BudgetWishes& wishes,
                             BudgetRefusal* refusal) {
  QSF_CHECK(wishes.rows >= 1 && wishes.rows <= wishes.context);
  QSF_CHECK(costs.least_weight_bytes <= costs.all_weight_bytes);
  Result<BudgetFit> fit = Fitter(costs, wishes).run(refusal);
  if (refusal != nullptr && fit.has_value()) *refusal = {};
  return fit;
}

std::uint64_t BudgetWatch::bytes_to_give_back(std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kBetweenLooksNs = 100'000'000;
  if (now_ns < next_look_ns_) return 0;
  next_look_ns_ = now_ns + kBetweenLooksNs;
  const std::uint64_t limit = limits_.limit_bytes();
  if (limit >= held_bytes_) return 0;
  const std::uint64_t excess = held_bytes_ - limit;
  held_bytes_ = limit;
  return excess;
}

}  // namespace qsf
