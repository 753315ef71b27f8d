// SPDX-License-Identifier: MIT
//
// Clusters of equal size: an order of the rows of a matrix in which similar rows are neighbours, so
// that rows which are read together stand together.
//
// A set of rows is halved until every part is a cluster (balanced 2-means, recursively). A halving
// is k-means with two centres and sizes that are fixed: for given centres the best assignment is
// the order of the rows along the line through both, cut at the wanted size. The first centres lie
// along the way from the mean to the row that is farthest from it. No step is random, so there is
// no seed; sums are f64 in one order, so the result is the same on every machine of an
// architecture.
//
// All k centres at once (k-means with capacities) need the distances of all rows to all centres,
// n_rows * k floats, or to compute them again for each row that is turned away, and kept no more of
// the rows' norms: docs/decisions/057-head-clusters.md.
//
// Memory  16 bytes a row and four rows of f64; rows are decoded one at a time, when needed
// Work    about 2 * kHalvingSteps + 2 readings of all rows for each level, of which there are
//         log2(n_rows / cluster_rows): 80 readings for 256 clusters

#ifndef QSF_CONVERT_HEAD_BALANCED_CLUSTERS_H_
#define QSF_CONVERT_HEAD_BALANCED_CLUSTERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace qsf {

inline constexpr int kHalvingSteps = 4;  // more move few rows

// Writes a row of the matrix. Shapes  values [n_cols]
using ReadRowFn = FunctionRef<void(std::uint32_t row, std::span<float> values)>;

// Returns the rows, cluster after cluster: every cluster_rows of them are one, the last may have
// fewer. In a cluster rows ascend. Neighbouring clusters come from one halving.
// Requires  n_cols > 0, cluster_rows > 0
// Fails     kInvalidArgument if a value is not finite
// Threads   any
Result<std::vector<std::uint32_t>> order_by_clusters(std::uint32_t n_rows, std::uint32_t n_cols,
                                                     std::uint32_t cluster_rows,
                                                     ReadRowFn read_row);

}  // namespace qsf

#endif  // QSF_CONVERT_HEAD_BALANCED_CLUSTERS_H_
