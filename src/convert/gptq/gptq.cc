// SPDX-License-Identifier: MIT

#include "convert/gptq/gptq.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/f16.h"
#include "convert/gptq/dense.h"
#include "quant/codec.h"
#include "quant/fields.h"
#include "quant/mxfp4.h"
#include "quant/search/trellis_search.h"
#include "quant/trellis.h"

namespace qsf {
namespace {

static_assert(kGptqRows % kDenseRowStrip == 0);

constexpr float kMostDamping = 1e4F;  // H is then almost only its damping

// Returns the mean of the diagonal, or why H is no Hessian.
Result<double> check_hessian(std::span<const float> hessian, std::size_t n) {
  double sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      if (std::isfinite(hessian[i * n + j])) continue;
      return invalid_argument(
          "Hessian: row %zu, column %zu: got %g, expected a finite sum of products of inputs", i, j,
          static_cast<double>(hessian[i * n + j]));
    }
    const float diagonal = hessian[i * n + i];
    if (diagonal < 0.0F) {
      return invalid_argument("Hessian: column %zu: got %g, expected a sum of squares", i,
                              static_cast<double>(diagonal));
    }
    sum += diagonal;
  }
  return sum / static_cast<double>(n);
}

// Copies the triangle below the diagonal to the one above it, or the reverse.
enum class Copy : std::uint8_t { kUp, kDown };
void copy_triangle(Copy copy, std::span<float> matrix, std::size_t n) noexcept {
  constexpr std::size_t kTile = 64;  // of either triangle, together in cache
  for (std::size_t first_col = 0; first_col < n; first_col += kTile) {
    for (std::size_t first = 0; first <= first_col; first += kTile) {
      for (std::size_t j = first_col; j < std::min(n, first_col + kTile); ++j) {
        for (std::size_t i = first; i < std::min(j, first + kTile); ++i) {
          float& above = matrix[j * n + i];
          float& below = matrix[i * n + j];
          copy == Copy::kUp ? above = below : below = above;
        }
      }
    }
  }
}

// Whether no pivot is below the damping; no pivot of the exact factor is.
bool is_sound(std::span<const float> matrix, std::size_t n, double damping) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const double pivot = matrix[i * n + i];
    if (!(pivot * pivot >= 0.5 * damping && pivot < HUGE_VAL)) return false;
  }
  return true;
}

}  // namespace

Result<GptqFactor> GptqFactor::create(std::vector<float> hessian, std::size_t n_cols,
                                      float damping) {
  const std::size_t n = n_cols;
  QSF_CHECK(n > 0 && hessian.size() == n * n && damping > 0.0F);
  QSF_ASSIGN_OR_RETURN(const double checked_mean, check_hessian(hessian, n));
  const double mean = checked_mean > 0.0 ? checked_mean : 1.0;
  std::vector<float> squares(n);
  for (std::size_t i = 0; i < n; ++i) squares[i] = hessian[i * n + i];
  // In reverse order, rows of the lower triangle are columns of an upper one, and a lower factor of
  // the reversed H is the upper factor of H. The triangle above the diagonal survives a failure.
  std::reverse(hessian.begin(), hessian.end());
  copy_triangle(Copy::kUp, hessian, n);
  std::vector<float> importance(n);
  for (;; damping *= 10.0F) {
    if (!(damping <= kMostDamping)) {
      return invalid_argument(
          "Hessian of %zu columns: not positive definite with %g times its mean on the diagonal, "
          "expected a sum of products of inputs",
          n, static_cast<double>(kMostDamping));
    }
    const double added = damping * mean;
    for (std::size_t i = 0; i < n; ++i) importance[i] = static_cast<float>(squares[i] + added);
    copy_triangle(Copy::kDown, hessian, n);
    for (std::size_t i = 0; i < n; ++i) hessian[i * n + i] = importance[n - 1 - i];
    if (factor_cholesky(n, hessian) && is_sound(hessian, n, added)) break;
  }
  std::reverse(hessian.begin(), hessian.end());
  for (std::size_t j = 0; j < n; ++j) {
    float* const column = hessian.data() + j * n;
    for (std::size_t i = 0; i < j; ++i) column[i] /= column[j];
  }
  return GptqFactor(std::move(hessian), std::move(importance), damping);
}

namespace {

// Weights are scale * (code - zero) + min with codes 0 .. top. Signed codes count from the lowest.
struct CodeRange {
  float zero;
  float top;
};

CodeRange code_range(QuantType type) noexcept {
  const auto largest = static_cast<float>(largest_code(type));
  if (type_traits(type).code_form == CodeForm::kSigned) return {largest, 2.0F * largest};
  return {type_traits(type).zero, largest};
}

// Number of columns whose fields are found together.
std::size_t unit_columns_of(BlockFormat format) noexcept {
  switch (scale_form(format.type)) {
    case ScaleForm::kBlock:
    case ScaleForm::kBlockMin: return format.block;
    case ScaleForm::kRow:
    case ScaleForm::kNone: return kSuperColumns / format.block * format.block;
    default: return kSuperColumns;
  }
}

// Whether the fields, if any, belong to the whole row.
bool has_row_fields(BlockFormat format) noexcept {
  const ScaleForm form = scale_form(format.type);
  return form == ScaleForm::kRow || form == ScaleForm::kRowNibble || form == ScaleForm::kNone;
}

// Columns that have a say in the path through a block of 64. Paths take some fifty symbols to
// merge: with one block behind in view errors are 10 % larger than in a path through the whole row,
// with two 6 %, with three 3 %.
constexpr std::size_t kTrellisSeen = 4 * kTrellisBlock;
static_assert(kTrellisSeen <= kMaxBlock);

// Encodes one to kGptqRows rows at a time. Matrices have a column of strip_ floats, one per row,
// for each column of weights; floats past the last row stay 0.
class RowEncoder {
 public:
  RowEncoder(const GptqFactor& factor, BlockFormat format, Rounding rounding)
      : factor_(factor),
        format_(format),
        options_{rounding, factor.importance()},
        range_(code_range(format.type)),
        row_bytes_(row_major_bytes(format, factor.n_cols())) {}

  void encode(std::span<const float> rows, MutableByteSpan out);

 private:
  void load_weights(std::span<const float> rows);
  void adjust(std::size_t from, std::size_t first, std::size_t n);
  void find_fields(std::size_t first, std::size_t n);
  void encode_block(std::size_t unit, std::size_t first, std::size_t n);
  void pack_block(std::size_t block, std::size_t n);
  void encode_trellis();
  std::vector<float> trellis_block_costs() const;
  void adjust_in_view(std::size_t seen);
  void adapt_trellis_scale(std::size_t first, std::size_t n, std::size_t r);
  void expect_compensation(std::size_t first, std::size_t end);
  void encode_trellis_block(std::size_t end, std::size_t seen, std::size_t r,
                            TrellisSearch& search);
  void load_fields(std::size_t block);
  void encode_column(std::size_t column, std::size_t index);

  MutableByteSpan row(std::size_t r) noexcept { return out_.subspan(r * row_bytes_, row_bytes_); }
  float* errors(std::size_t column) noexcept { return errors_.data() + column * strip_; }
  float* adjusted(std::size_t column) noexcept {
    return adjusted_.data() + (column - panel_) * strip_;
  }

  const GptqFactor& factor_;
  const BlockFormat format_;
  const QuantOptions options_;
  const CodeRange range_;
  const std::size_t row_bytes_;
  MutableByteSpan out_;
  std::size_t n_rows_ = 0;
  std::size_t strip_ = 0;                  // n_rows_ in whole strips
  std::size_t panel_ = 0;                  // first column of the panel
  std::vector<float> errors_;              // w - q of columns done, w of the others  [n_cols]
  std::vector<float> adjusted_;            // compensated weights  [columns of a panel]
  std::vector<std::uint8_t> codes_;        // of a block, row by row  [n_rows_ * kMaxBlock]
  std::array<float, kGptqRows> scales_{};  // of a block, by row
  std::array<float, kGptqRows> inverses_{};
  std::array<float, kGptqRows> mins_{};
  std::array<std::array<std::uint16_t, kTrellisStreams>, kGptqRows> windows_{};  // of trellis types
  std::vector<float> in_view_;  // weights adjusted for the errors of columns before panel_
  std::size_t in_view_end_ = 0;
  std::vector<float> expected_;  // errors that the columns behind count on
  std::vector<float> costs_;
  TrellisTargets targets_;
};

void RowEncoder::load_weights(std::span<const float> rows) {
  const std::size_t n_cols = factor_.n_cols();
  n_rows_ = rows.size() / n_cols;
  strip_ = (n_rows_ + kDenseRowStrip - 1) / kDenseRowStrip * kDenseRowStrip;
  errors_.assign(n_cols * strip_, 0.0F);
  adjusted_.resize(kMaxBlock * strip_);
  codes_.resize(kMaxBlock * n_rows_);
  constexpr std::size_t kTile = 16;  // columns of a row that share cache lines
  for (std::size_t first = 0; first < n_cols; first += kTile) {
    for (std::size_t r = 0; r < n_rows_; ++r) {
      for (std::size_t c = first; c < std::min(n_cols, first + kTile); ++c) {
        errors(c)[r] = rows[r * n_cols + c];
      }
    }
  }
}

// Adds the errors of columns [from, first) to the adjusted weights of the n columns from `first`.
void RowEncoder::adjust(std::size_t from, std::size_t first, std::size_t n) {
  add_product({errors(from), strip_}, {factor_.compensation(first) + from, factor_.n_cols()},
              strip_, first - from, n, adjusted(first), strip_);
}

// Finds fields for the adjusted weights of a unit by the codec; its codes are overwritten later.
void RowEncoder::find_fields(std::size_t first, std::size_t n) {
  std::array<float, kMaxBlock> weights;
  const QuantOptions options = options_of_columns(options_, first, n);
  const std::uint64_t at = locate_in_row(format_, first / format_.block).fields;
  for (std::size_t r = 0; r < n_rows_; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      weights[i] = std::clamp(adjusted(first + i)[r], -kF16Max, kF16Max);
    }
    encode_row(format_, std::span(weights).first(n), options,
               row(r).subspan(at, row_major_bytes(format_, n)));
  }
}

void RowEncoder::load_fields(std::size_t block) {
  constexpr float kTinyScale = 1e-30F;  // a ternary row below it counts as zero
  for (std::size_t r = 0; r < n_rows_; ++r) {
    const BlockScale fields = row_block_scale(format_, row(r), block);
    scales_[r] = fields.scale;
    inverses_[r] = std::fabs(fields.scale) > kTinyScale ? 1.0F / fields.scale : 0.0F;
    mins_[r] = fields.min;
  }
}

// Chooses the codes of a column, at `index` of its block, and stores its errors.
void RowEncoder::encode_column(std::size_t column, std::size_t index) {
  const float* const weights = adjusted(column);
  float* const error = errors(column);
  std::array<float, kGptqRows> decoded;
  std::uint8_t* const codes = codes_.data() + index;
  if (format_.type == QuantType::kQk256) {
    for (std::size_t r = 0; r < n_rows_; ++r) {
      const float w = weights[r];
      const unsigned code = w < -1.5F ? 0U : w < 0.0F ? 1U : w < 1.5F ? 2U : 3U;
      codes[r * kMaxBlock] = static_cast<std::uint8_t>(code);
      error[r] -= static_cast<float>(kQk256Levels[code]);
    }
    return;
  }
  if (format_.type == QuantType::kMxfp4) {
    for (std::size_t r = 0; r < n_rows_; ++r) {
      const std::uint8_t code = nearest_mxfp4_code(weights[r] * inverses_[r]);
      codes[r * kMaxBlock] = code;
      error[r] -= scales_[r] * static_cast<float>(kMxfp4Levels[code]);
    }
    return;
  }
  std::array<int, kGptqRows> steps;
  if (is_codebook_type(format_.type)) {
    const auto levels = codebook_levels(format_.type);
    std::array<float, kGptqRows> level;
    for (std::size_t r = 0; r < n_rows_; ++r) {
      level[r] = static_cast<float>(levels[0]);
      steps[r] = 0;
    }
    for (std::size_t j = 1; j < levels.size(); ++j) {
      const float middle = 0.5F * static_cast<float>(levels[j - 1] + levels[j]);
      const float to_next = static_cast<float>(levels[j] - levels[j - 1]);
      for (std::size_t r = 0; r < n_rows_; ++r) {
        const bool is_above = weights[r] * inverses_[r] > middle;
        level[r] += is_above ? to_next : 0.0F;
        steps[r] += is_above ? 1 : 0;
      }
    }
    for (std::size_t r = 0; r < n_rows_; ++r) {
      error[r] -= scales_[r] * level[r];
      codes[r * kMaxBlock] = static_cast<std::uint8_t>(steps[r]);
    }
    return;
  }
  const float zero = range_.zero;
  for (std::size_t r = 0; r < n_rows_; ++r) {
    const float at = (weights[r] - mins_[r]) * inverses_[r] + (zero + 0.5F);
    steps[r] = static_cast<int>(std::min(std::max(at, 0.0F), range_.top));
    decoded[r] = scales_[r] * (static_cast<float>(steps[r]) - zero) + mins_[r];
  }
  const bool is_signed = type_traits(format_.type).code_form == CodeForm::kSigned;
  const int first_code = is_signed ? -static_cast<int>(zero) : 0;
  for (std::size_t r = 0; r < n_rows_; ++r) {
    error[r] -= decoded[r];
    codes[r * kMaxBlock] = static_cast<std::uint8_t>(steps[r] + first_code);
  }
}

// Encodes the n columns of a block from `first`, in the unit from column `unit`.
void RowEncoder::encode_block(std::size_t unit, std::size_t first, std::size_t n) {
  const std::size_t block = first / format_.block;
  load_fields(block);
  std::fill(codes_.begin(), codes_.end(), std::uint8_t{0});
  for (std::size_t c = first; c < first + n; ++c) {
    add_column_product({errors(unit), strip_}, factor_.compensation(c) + unit, strip_, c - unit,
                       adjusted(c));
    encode_column(c, c - first);
  }
  pack_block(block, n);
}

// Packs the codes of a block's n columns.
void RowEncoder::pack_block(std::size_t block, std::size_t n) {
  for (std::size_t r = 0; r < n_rows_; ++r) {
    block_codec(format_.type)
        .pack(codes_.data() + r * kMaxBlock, format_.block, static_cast<std::uint32_t>(n),
              row(r).data() + locate_in_row(format_, block).codes);
  }
}

// Lets the scale of a block follow the size of its weights, n of them from `first` on. Once the
// path through the block in front has been chosen with it, it stays.
void RowEncoder::adapt_trellis_scale(std::size_t first, std::size_t n, std::size_t r) {
  double adjusted_squares = 0.0;
  double squares = 0.0;
  for (std::size_t c = first; c < first + n; ++c) {
    adjusted_squares += double{costs_[c]} * adjusted(c)[r] * adjusted(c)[r];
    squares += double{costs_[c]} * errors(c)[r] * errors(c)[r];  // of columns ahead: the weights
  }
  if (!(squares > 0.0 && adjusted_squares > 0.0)) return;
  const std::size_t block = first / kTrellisBlock;
  const double wanted =
      trellis_scale(format_, row(r), block) * std::sqrt(adjusted_squares / squares);
  put_trellis_scale(format_, block,
                    static_cast<unsigned>(std::lround(
                        std::clamp(wanted, 1.0, static_cast<double>(kTopTrellisScale)))),
                    row(r));
}

// Finds the path of row `r` through the block from panel_ to `end`, seeing the columns up to
// `seen`.
void RowEncoder::encode_trellis_block(std::size_t end, std::size_t seen, std::size_t r,
                                      TrellisSearch& search) {
  std::array<float, kTrellisSeen> weights;
  std::array<float, kTrellisSeen> scales;
  std::array<float, kTrellisBlock> values;
  float scale = 0.0F;
  for (std::size_t c = panel_; c < seen; ++c) {
    if (c % kTrellisBlock == 0) scale = row_block_scale(format_, row(r), c / kTrellisBlock).scale;
    weights[c - panel_] = adjusted(c)[r];
    scales[c - panel_] = scale;
  }
  set_trellis_targets(std::span(weights).first(seen - panel_),
                      std::span(costs_).subspan(panel_, seen - panel_), scales, targets_);
  search.set_windows(windows_[r]);
  search.next(targets_, std::span(codes_).subspan(r * kMaxBlock, end - panel_),
              std::span(values).first(end - panel_));
  windows_[r] = search.windows();
  for (std::size_t c = panel_; c < end; ++c)
    errors(c)[r] -= scales[c - panel_] * values[c - panel_];
}

// Adjusts columns [first, end) to each other as if they were then encoded without an error: what a
// column takes over of earlier errors, those behind it need not.
void RowEncoder::expect_compensation(std::size_t first, std::size_t end) {
  expected_.resize((end - first) * strip_);
  for (std::size_t c = first; c < end; ++c) {
    add_column_product({expected_.data(), strip_}, factor_.compensation(c) + first, strip_,
                       c - first, adjusted(c));
    float* const expected = expected_.data() + (c - first) * strip_;
    for (std::size_t r = 0; r < strip_; ++r) expected[r] = errors(c)[r] - adjusted(c)[r];
  }
}

// What an error costs that the columns of its block do not compensate, but all behind do: the terms
// of those columns in the sum that gptq.h gives.
std::vector<float> RowEncoder::trellis_block_costs() const {
  const std::size_t n_cols = factor_.n_cols();
  std::vector<float> costs(n_cols);
  for (std::size_t i = 0; i < n_cols; ++i) {
    const std::size_t end = std::min(n_cols, (i / kTrellisBlock + 1) * kTrellisBlock);
    for (std::size_t j = i; j < end; ++j) {
      const float pivot = factor_.compensation(j)[j];
      const float term = j == i ? pivot : factor_.compensation(j)[i] * pivot;
      costs[i] += term * term;
    }
  }
  return costs;
}

// Adjusts the weights of the columns from panel_ to `seen`. Of those that were in view before, only
// the errors of the block in front are new.
void RowEncoder::adjust_in_view(std::size_t seen) {
  const std::size_t known = panel_ == 0 ? 0 : std::max(in_view_end_, panel_) - panel_;
  const auto from = in_view_.begin() + static_cast<std::ptrdiff_t>(kTrellisBlock * strip_);
  if (known > 0) {
    std::copy_n(from, known * strip_, in_view_.begin());
    const std::size_t before = panel_ - kTrellisBlock;
    add_product({errors(before), strip_}, {factor_.compensation(panel_) + before, factor_.n_cols()},
                strip_, kTrellisBlock, known, in_view_.data(), strip_);
  }
  if (const std::size_t first = panel_ + known; first < seen) {
    float* const added = in_view_.data() + known * strip_;
    std::copy(errors(first), errors(seen), added);
    add_product({errors(0), strip_}, {factor_.compensation(first), factor_.n_cols()}, strip_,
                panel_, seen - first, added, strip_);
  }
  in_view_end_ = seen;
  std::copy_n(in_view_.begin(), (seen - panel_) * strip_, adjusted_.begin());
}

void RowEncoder::encode_trellis() {
  const std::size_t n_cols = factor_.n_cols();
  TrellisSearch search(format_.type);
  windows_.fill({});
  in_view_.resize(kTrellisSeen * strip_);
  costs_ = trellis_costs(trellis_block_costs(), n_cols);
  std::size_t adapted = kTrellisBlock;  // columns whose scales stay
  for (panel_ = 0; panel_ < n_cols; panel_ += kTrellisBlock) {
    const std::size_t seen = std::min(n_cols, panel_ + kTrellisSeen);
    const std::size_t end = std::min(n_cols, panel_ + kTrellisBlock);
    adjust_in_view(seen);
    expect_compensation(panel_, seen);
    for (; adapted < seen; adapted += kTrellisBlock) {
      const std::size_t n = std::min(kTrellisBlock, n_cols - adapted);
      for (std::size_t r = 0; r < n_rows_; ++r) adapt_trellis_scale(adapted, n, r);
    }
    std::fill(codes_.begin(), codes_.end(), std::uint8_t{0});
    for (std::size_t r = 0; r < n_rows_; ++r) encode_trellis_block(end, seen, r, search);
    pack_block(panel_ / kTrellisBlock, end - panel_);
  }
}

void RowEncoder::encode(std::span<const float> rows, MutableByteSpan out) {
  const std::size_t n_cols = factor_.n_cols();
  load_weights(rows);
  out_ = out;
  if (has_row_fields(format_)) {
    for (std::size_t r = 0; r < n_rows_; ++r) {
      encode_row(format_, rows.subspan(r * n_cols, n_cols), options_, row(r));
    }
  }
  if (is_trellis_type(format_.type)) return encode_trellis();
  const std::size_t unit_columns = unit_columns_of(format_);
  const std::size_t panel_columns = kMaxBlock / unit_columns * unit_columns;
  for (panel_ = 0; panel_ < n_cols; panel_ += panel_columns) {
    const std::size_t panel_end = std::min(n_cols, panel_ + panel_columns);
    std::copy(errors(panel_), errors(panel_end), adjusted_.begin());
    adjust(0, panel_, panel_end - panel_);
    for (std::size_t unit = panel_; unit < panel_end; unit += unit_columns) {
      const std::size_t unit_end = std::min(n_cols, unit + unit_columns);
      adjust(panel_, unit, unit_end - unit);
      if (!has_row_fields(format_)) find_fields(unit, unit_end - unit);
      for (std::size_t first = unit; first < unit_end; first += format_.block) {
        encode_block(unit, first, std::min<std::size_t>(format_.block, unit_end - first));
      }
    }
  }
}

}  // namespace

void encode_rows_gptq(const GptqFactor& factor, BlockFormat format, Rounding rounding,
                      std::span<const float> rows, MutableByteSpan out) {
  const std::size_t n_cols = factor.n_cols();
  const std::size_t row_bytes = row_major_bytes(format, n_cols);
  QSF_CHECK(is_valid(format) && !is_float_type(format.type) && rows.size() % n_cols == 0 &&
            out.size() == rows.size() / n_cols * row_bytes);
  RowEncoder encoder(factor, format, rounding);
  const std::size_t n_rows = rows.size() / n_cols;
  for (std::size_t first = 0; first < n_rows; first += kGptqRows) {
    const std::size_t n = std::min(kGptqRows, n_rows - first);
    encoder.encode(rows.subspan(first * n_cols, n * n_cols),
                   out.subspan(first * row_bytes, n * row_bytes));
  }
}

}  // namespace qsf
