// SPDX-License-Identifier: MIT

#include "convert/choose/allocation.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace qsf {
namespace {

using Choices = std::vector<AllocationChoice>;

Status check_items(std::span<const Choices> items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].empty())
      return invalid_argument("item %zu: got no choices, expected at least one", i);
    for (const AllocationChoice& choice : items[i]) {
      if (std::isfinite(choice.cost) && choice.cost >= 0.0) continue;
      return invalid_argument("item %zu: cost: got %g, expected a finite number >= 0", i,
                              choice.cost);
    }
  }
  return ok_status();
}

// Returns the choices of the lower convex hull by rising bytes: costs fall, and each step gains
// less per byte than the one before.
std::vector<std::size_t> hull_of(const Choices& choices) {
  std::vector<std::size_t> order(choices.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(choices[a].bytes, choices[a].cost) <
           std::pair(choices[b].bytes, choices[b].cost);
  });
  const auto gain = [&](std::size_t a, std::size_t b) {
    return (choices[a].cost - choices[b].cost) /
           static_cast<double>(choices[b].bytes - choices[a].bytes);
  };
  std::vector<std::size_t> hull;
  for (const std::size_t next : order) {
    if (!hull.empty() && choices[next].cost >= choices[hull.back()].cost) continue;
    while (hull.size() >= 2 &&
           gain(hull[hull.size() - 2], hull.back()) <= gain(hull.back(), next)) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

class Allocator {
 public:
  Allocator(std::span<const Choices> items, std::uint64_t max_bytes)
      : items_(items), max_bytes_(max_bytes) {}

  Allocation run() {
    climb();
    while (improve()) {
    }
    Allocation result{std::move(taken_), bytes_, 0.0};
    for (std::size_t i = 0; i < items_.size(); ++i) {
      result.cost += items_[i][result.choices[i]].cost;
    }
    return result;
  }

 private:
  struct Move {
    std::size_t item;
    std::size_t choice;
  };
  struct Change {
    double cost = 0.0;  // below zero: what is gained
    std::int64_t bytes = 0;
  };

  Change change_of(Move move) const noexcept {
    const AllocationChoice& from = items_[move.item][taken_[move.item]];
    const AllocationChoice& to = items_[move.item][move.choice];
    return {to.cost - from.cost,
            static_cast<std::int64_t>(to.bytes) - static_cast<std::int64_t>(from.bytes)};
  }
  std::int64_t room() const noexcept { return static_cast<std::int64_t>(max_bytes_ - bytes_); }
  void take(Move move) noexcept {
    bytes_ = static_cast<std::uint64_t>(static_cast<std::int64_t>(bytes_) + change_of(move).bytes);
    taken_[move.item] = move.choice;
  }
  void climb();
  bool improve();

  std::span<const Choices> items_;
  std::uint64_t max_bytes_;
  std::vector<std::size_t> taken_;
  std::uint64_t bytes_ = 0;
};

// Climbs the hulls by falling gain per byte, skipping steps that no longer fit.
void Allocator::climb() {
  struct Step {
    Move move;
    double gain;  // per byte
  };
  std::vector<Step> steps;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::vector<std::size_t> hull = hull_of(items_[i]);
    taken_.push_back(hull.front());
    bytes_ += items_[i][hull.front()].bytes;
    for (std::size_t k = 1; k < hull.size(); ++k) {
      const AllocationChoice& from = items_[i][hull[k - 1]];
      const AllocationChoice& to = items_[i][hull[k]];
      steps.push_back(
          {{i, hull[k]}, (from.cost - to.cost) / static_cast<double>(to.bytes - from.bytes)});
    }
  }
  // The gains of one item fall from step to step, so a stable sort keeps its steps in order. After
  // a step that did not fit no later one fits: it takes more bytes, and the room only shrinks.
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.gain > b.gain; });
  for (const Step& step : steps) {
    if (change_of(step.move).bytes <= room()) take(step.move);
  }
}

// Makes the best change of one or two items. Returns whether there was one.
bool Allocator::improve() {
  // Gains within rounding would make two allocations alternate forever.
  constexpr double kLeastGain = 1e-12;
  double scale = 0.0;
  std::vector<Move> moves;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    scale += items_[i][taken_[i]].cost;
    for (std::size_t k = 0; k < items_[i].size(); ++k) {
      if (k != taken_[i]) moves.push_back({i, k});
    }
  }
  double best = -kLeastGain * scale;
  std::optional<Move> first;
  std::optional<Move> second;
  for (std::size_t a = 0; a < moves.size(); ++a) {
    const Change one = change_of(moves[a]);
    if (one.bytes <= room() && one.cost < best) {
      best = one.cost;
      first = moves[a];
      second.reset();
    }
    for (std::size_t b = a + 1; b < moves.size(); ++b) {
      if (moves[b].item == moves[a].item) continue;
      const Change other = change_of(moves[b]);
      if (one.bytes + other.bytes > room() || !(one.cost + other.cost < best)) continue;
      best = one.cost + other.cost;
      first = moves[a];
      second = moves[b];
    }
  }
  if (first) take(*first);
  if (second) take(*second);
  return first.has_value();
}

}  // namespace

std::uint64_t fewest_bytes(std::span<const Choices> items) noexcept {
  std::uint64_t sum = 0;
  for (const Choices& choices : items) {
    std::uint64_t fewest = choices.empty() ? 0 : choices.front().bytes;
    for (const AllocationChoice& choice : choices) fewest = std::min(fewest, choice.bytes);
    sum += fewest;
  }
  return sum;
}

Result<Allocation> allocate(std::span<const Choices> items, std::uint64_t max_bytes) {
  QSF_RETURN_IF_ERROR(check_items(items));
  const std::uint64_t fewest = fewest_bytes(items);
  if (fewest > max_bytes) {
    return out_of_budget(
        "size: got %llu bytes, expected at least %llu, the total of the smallest choices",
        static_cast<unsigned long long>(max_bytes), static_cast<unsigned long long>(fewest));
  }
  return Allocator(items, max_bytes).run();
}

}  // namespace qsf
