// SPDX-License-Identifier: MIT
//
// Upper bounds of logits from a sketch of the output head, so that only rows that may be among the
// best are read. They hold for the logits that kernels compute, with all their roundings.
//
// Write w for a row of the head as stored, c for a row that is subtracted from all (their mean), h
// for a hidden row, Q for the stored basis and s for the row's sketch, decoded, in coordinates of
// Q. The error of the sketch is e = w - c - Q^T s, for any Q at all. Then
//
//   w.h = c.h + s.(Q h) + e.h
//   e.h = (Q e).(Q h) + e.((I - Q^T Q) h)
//      <= sum over blocks b of |(Q e)_b| |(Q h)_b|  +  |e| defect |h|
//
// with defect >= the spectral norm of I - Q^T Q, which is small: Q is orthonormal but for its
// rounding. Blocks are kSketchColumns neighbouring coordinates. Conversion knows |(Q e)_b| and
// stores it rounded up (convert/head/sketch_errors.h); |(Q h)_b| is known when h is.
//
// Roundings. With u = 2^-24, a sum of n products in f32 has an error of at most
// n u / (1 - n u) * sum of |products|, in any order, with or without fused operations (Higham,
// "Accuracy and stability of numerical algorithms", 2002, section 3.1), and that sum is at most
// |a| |b| (Cauchy and Schwarz). Int8 kernels add whole numbers exactly and round a few times a
// block of columns, which is fewer times than n + kExtraRoundings. Their rounding of activations is
// no error here: h is what the kernel multiplies, codes times scale, not what they were made of.
// The same holds for the sketch's product, whose input may be int8 too: what it leaves out of Q h
// is measured and bounded by the largest norm of a block of sketches.
//
// Bounds are of logits before bias, scale and soft cap.
//
// Based on: docs/decisions/057-head-clusters.md.

#ifndef QSF_MODEL_HEAD_BOUNDS_H_
#define QSF_MODEL_HEAD_BOUNDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace qsf {

inline constexpr std::uint32_t kSketchColumns = 64;   // of a block: what int8 activations share
inline constexpr std::uint32_t kExtraRoundings = 32;  // of a sum, beside one for each product

constexpr std::uint32_t sketch_blocks(std::uint32_t n_cols) noexcept {
  return n_cols / kSketchColumns + (n_cols % kSketchColumns != 0 ? 1 : 0);
}

// What bounds need of a head and its sketch. Every number is finite, at least 0 and rounded up.
struct HeadErrors {
  std::uint32_t n_rows = 0;
  std::uint32_t n_cols = 0;
  // |(Q e)_b| of row r is at most steps[b] * codes[b * n_rows + r].
  std::vector<float> steps;         // [blocks]
  std::vector<std::uint8_t> codes;  // [blocks, n_rows]
  std::vector<float> sketch_norms;  // [blocks]  largest |s_b| of a row
  float error_norm = 0.0F;          // largest |e| of a row
  float defect = 0.0F;              // of the basis; below 1 / 2
  // Largest norm of a row of which each column is |scale * code| + |min|: what a kernel adds up.
  float head_magnitude = 0.0F;
  float sketch_magnitude = 0.0F;
  std::vector<float> shared;  // [n_cols] c, or none
};

// A hidden row. Values that a kernel makes of codes may be rounded to f32 here.
struct HiddenRow {
  std::span<const float> input;       // [n_cols] h, as the head's kernel multiplies it
  std::span<const float> turned;      // [n_cols] Q h, computed of `input` in f32, in any order
  std::span<const float> multiplied;  // [n_cols] the same as the sketch's kernel multiplies it
  // The most operations of f32 that a product passes on its way into a sum, in any of the three
  // products: n_cols in a loop, n_cols / 16 and a few in 16 lanes. 0 stands for n_cols.
  std::uint32_t roundings = 0;
};

class HeadBounds {
 public:
  // With `codes`, which outlive the bounds, those of `errors` are empty.
  // Fails  kCorrupt if the shapes disagree or a number breaks HeadErrors' rules
  static Result<HeadBounds> create(HeadErrors errors, std::span<const std::uint8_t> codes = {});

  std::uint32_t n_rows() const noexcept { return errors_.n_rows; }

  // Takes the hidden row that bound() is for. Allocates nothing. Returns false, and then the head
  // is to be read in full, if a value is not finite or too large for bounds.
  // Requires  the row's shapes
  bool prepare(const HiddenRow& row) noexcept;

  // Replaces the sketch's products of rows first_row .. + scores.size() - 1, s.(Q h), by upper
  // bounds of their logits, +infinity for a product that is not finite.
  // Requires  prepare() returned true; rows of the head
  // Threads   any, on different rows
  void bound(std::uint32_t first_row, std::span<float> scores) const noexcept;

 private:
  HeadBounds(HeadErrors errors, std::span<const std::uint8_t> codes);
  const std::uint8_t* codes() const noexcept {
    return codes_.empty() ? errors_.codes.data() : codes_.data();
  }

  HeadErrors errors_;
  std::span<const std::uint8_t> codes_;  // in place of those of errors_
  std::vector<float> weights_;           // [blocks]  |(Q h)_b| * steps[b]
  double constant_ = 0.0;                // of all rows: c.h and what roundings may add
};

// Replaces bounds of rows by the largest of each run of unit_rows rows, +infinity where one is not
// finite; returns how many runs.
// Shapes    bounds [n_rows], units [ceil(n_rows / unit_rows)], which may be the start of bounds
// Requires  unit_rows > 0
std::size_t bound_units(std::span<const float> bounds, std::uint32_t unit_rows,
                        std::span<float> units) noexcept;

// Returns the next f32 that is at least `value`; +infinity for NaN.
float round_up(double value) noexcept;

}  // namespace qsf

#endif  // QSF_MODEL_HEAD_BOUNDS_H_
