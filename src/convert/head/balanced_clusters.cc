// SPDX-License-Identifier: MIT

#include "convert/head/balanced_clusters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace qsf {
namespace {

// Halves parts of the order, one after the other.
class Halver {
 public:
  Halver(std::uint32_t n_rows, std::uint32_t n_cols, ReadRowFn read_row)
      : read_row_(read_row),
        order_(n_rows),
        places_(n_rows),
        row_(n_cols),
        left_(n_cols),
        right_(n_cols),
        line_(n_cols) {
    std::iota(order_.begin(), order_.end(), 0U);
  }

  // Moves the n_left rows of one half to the start of the part.
  Status halve(std::size_t first, std::size_t last, std::size_t n_left) {
    const std::span<std::uint32_t> part(&order_[first], last - first);
    QSF_RETURN_IF_ERROR(start_line(part));
    for (int step = 0; step < kHalvingSteps; ++step) {
      cut(part, n_left);
      aim(part, n_left);
    }
    cut(part, n_left);
    return ok_status();
  }

  std::vector<std::uint32_t> take() { return std::move(order_); }

 private:
  // Points the line from the mean to the row that is farthest from it, the first of equal ones.
  Status start_line(std::span<const std::uint32_t> part) {
    sum(part, left_);
    for (double& value : left_) value /= static_cast<double>(part.size());
    double farthest = -1.0;
    for (const std::uint32_t row : part) {
      read_row_(row, row_);
      double distance = 0.0;
      for (std::size_t i = 0; i < row_.size(); ++i) {
        const double difference = static_cast<double>(row_[i]) - left_[i];
        distance += difference * difference;
      }
      if (!std::isfinite(distance)) {
        return invalid_argument("clusters: row %u holds a value that is not finite", row);
      }
      if (distance <= farthest) continue;
      farthest = distance;
      for (std::size_t i = 0; i < row_.size(); ++i) {
        line_[i] = static_cast<double>(row_[i]) - left_[i];
      }
    }
    return ok_status();
  }

  // Sorts the part by place on the line, of equal places by row, as far as the cut needs.
  void cut(std::span<std::uint32_t> part, std::size_t n_left) {
    for (const std::uint32_t row : part) {
      read_row_(row, row_);
      double place = 0.0;
      for (std::size_t i = 0; i < row_.size(); ++i) {
        place += static_cast<double>(row_[i]) * line_[i];
      }
      places_[row] = place;
    }
    std::nth_element(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n_left), part.end(),
                     [this](std::uint32_t a, std::uint32_t b) {
                       return places_[a] < places_[b] || (places_[a] == places_[b] && a < b);
                     });
    // So that the bits of sums do not depend on the library.
    std::sort(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n_left));
    std::sort(part.begin() + static_cast<std::ptrdiff_t>(n_left), part.end());
  }

  // Points the line from the centre of one half to that of the other.
  void aim(std::span<const std::uint32_t> part, std::size_t n_left) {
    sum(part.first(n_left), left_);
    sum(part.subspan(n_left), right_);
    const auto n = static_cast<double>(n_left);
    const auto n_right = static_cast<double>(part.size() - n_left);
    for (std::size_t i = 0; i < line_.size(); ++i) line_[i] = right_[i] / n_right - left_[i] / n;
  }

  void sum(std::span<const std::uint32_t> rows, std::vector<double>& sums) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (const std::uint32_t row : rows) {
      read_row_(row, row_);
      for (std::size_t i = 0; i < row_.size(); ++i) sums[i] += static_cast<double>(row_[i]);
    }
  }

  ReadRowFn read_row_;
  std::vector<std::uint32_t> order_;
  std::vector<double> places_;  // [n_rows]
  std::vector<float> row_;
  std::vector<double> left_;
  std::vector<double> right_;
  std::vector<double> line_;
};

}  // namespace

Result<std::vector<std::uint32_t>> order_by_clusters(std::uint32_t n_rows, std::uint32_t n_cols,
                                                     std::uint32_t cluster_rows,
                                                     ReadRowFn read_row) {
  QSF_CHECK(n_cols > 0 && cluster_rows > 0);
  Halver halver(n_rows, n_cols, read_row);
  struct Part {
    std::size_t first, last;
  };
  std::vector<Part> parts = {{0, n_rows}};
  while (!parts.empty()) {
    const auto [first, last] = parts.back();
    parts.pop_back();
    const std::size_t n_clusters = (last - first + cluster_rows - 1) / cluster_rows;
    if (n_clusters < 2) continue;  // its rows ascend since the last cut
    // Whole clusters, so that the last of all alone has fewer rows.
    const std::size_t n_left = (n_clusters + 1) / 2 * cluster_rows;
    const std::size_t middle = first + n_left;
    QSF_RETURN_IF_ERROR(halver.halve(first, last, n_left));
    parts.push_back({middle, last});
    parts.push_back({first, middle});
  }
  return halver.take();
}

}  // namespace qsf
