// SPDX-License-Identifier: MIT

#include "import/gguf/i2s_decoder.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/f16.h"
#include "quant/code_packing.h"
#include "quant/codec.h"

namespace qsf {

namespace {

constexpr std::uint64_t kInt8BlockBytes = 64U
                                          << 10;  // of rows in memory at once, unless one is larger
constexpr std::uint32_t kBlock32 = 32;
constexpr BlockFormat kTernaryRowFormat = block_format(QuantType::kTernaryRow, 0);
constexpr BlockFormat k2Bit32Format = {QuantType::kQ2A, kBlock32};
constexpr BlockFormat kQk256Format = block_format(QuantType::kQk256, 0);

std::uint8_t code_at(std::byte byte, unsigned shift) noexcept {
  return static_cast<std::uint8_t>((static_cast<unsigned>(byte) >> shift) & 3U);
}

// Groups of `group` codes in group / 4 bytes, the first quarter in the upper bits.
void unpack_groups(const std::byte* packed, std::uint32_t group, std::span<std::uint8_t> codes) {
  const std::uint32_t quarter = group / 4;
  for (std::size_t first = 0; first < codes.size(); first += group, packed += quarter) {
    for (unsigned g = 0; g < 4; ++g) {
      std::uint8_t* to = codes.data() + first + g * std::size_t{quarter};
      for (std::uint32_t p = 0; p < quarter; ++p) to[p] = code_at(packed[p], 6 - 2 * g);
    }
  }
}

}  // namespace

// Bytes of the tensor from `offset` on.
struct I2sDecoder::Rows {
  std::uint64_t offset = 0;
  ByteSpan bytes;

  const std::byte* at(std::uint64_t place) const noexcept {
    return bytes.data() + (place - offset);
  }
};

I2sDecoder::I2sDecoder(I2sFlavor flavor, const I2sTensor& tensor, ReadBytes read,
                       std::vector<float> sibling_scales)
    : flavor_(flavor),
      name_(tensor.name),
      n_rows_(tensor.rows),
      n_cols_(tensor.cols),
      read_(std::move(read)),
      sibling_scales_(std::move(sibling_scales)) {}

Result<I2sDecoder> I2sDecoder::open(I2sFlavor flavor, const I2sTensor& tensor, ReadBytes read,
                                    std::vector<float> sibling_scales) {
  I2sDecoder decoder(flavor, tensor, std::move(read), std::move(sibling_scales));
  const std::uint64_t n = tensor.rows * tensor.cols;
  const std::uint64_t need = flavor == I2sFlavor::kSplit32WithSibling
                                 ? ceil_div(n, 4)
                                 : i2s_bytes(flavor, tensor.rows, tensor.cols).value_or(UINT64_MAX);
  if (tensor.available_bytes < need) {
    return corrupt("%s: %" PRIu64 " bytes of I2_S, expected %" PRIu64 " for %" PRIu64 " x %" PRIu64
                   " weights as %s",
                   decoder.name_.c_str(), tensor.available_bytes, need, tensor.rows, tensor.cols,
                   std::string(i2s_flavor_name(flavor)).c_str());
  }
  if (is_microsoft(flavor)) QSF_RETURN_IF_ERROR(decoder.read_microsoft_scale());
  if (flavor == I2sFlavor::kSplit32WithSibling) {
    QSF_RETURN_IF_ERROR(decoder.check_sibling_scales());
  }
  return decoder;
}

Status I2sDecoder::read_microsoft_scale() {
  std::byte bytes[4];
  QSF_RETURN_IF_ERROR(read_(n_rows_ * n_cols_ / 4, bytes));
  scale_ = load_le<float>(bytes, 0);
  if (std::isfinite(scale_) && scale_ > 0.0F) return ok_status();
  return corrupt(
      "%s: a scale of %g behind the codes of I2_S, expected a number above zero; the file is "
      "damaged or has another layout, see --i2s-layout",
      name_.c_str(), static_cast<double>(scale_));
}

Status I2sDecoder::check_sibling_scales() {
  const std::uint64_t n_blocks = ceil_div(n_rows_ * n_cols_, kBlock32);
  if (sibling_scales_.size() != n_blocks) {
    return corrupt("%s: %zu scales in the tensor beside it, expected %" PRIu64, name_.c_str(),
                   sibling_scales_.size(), n_blocks);
  }
  for (std::size_t i = 0; i < sibling_scales_.size(); ++i) {
    if (!std::isfinite(sibling_scales_[i])) {
      return corrupt("%s: scale %zu in the tensor beside it is not finite", name_.c_str(), i);
    }
    scales_fit_f16_ = scales_fit_f16_ && to_f32(to_f16(sibling_scales_[i])) == sibling_scales_[i];
  }
  return ok_status();
}

std::optional<BlockFormat> I2sDecoder::kept_format() const noexcept {
  if (is_microsoft(flavor_)) return kTernaryRowFormat;
  if (flavor_ == I2sFlavor::kGgmlQk256NoScale) return kQk256Format;
  if (n_cols_ % kBlock32 != 0 || !scales_fit_f16_) return std::nullopt;
  return k2Bit32Format;
}

Status I2sDecoder::read_chunk(std::uint64_t first_row, std::uint64_t n_rows,
                              std::vector<std::byte>& bytes, Rows& rows) const {
  const std::uint64_t first = first_row * n_cols_;
  const std::uint64_t last = first + n_rows * n_cols_;
  std::uint64_t end = 0;
  switch (flavor_) {
    case I2sFlavor::kMicrosoft128:
    case I2sFlavor::kMicrosoft64:
      rows.offset = first / 4;
      end = last / 4;
      break;
    case I2sFlavor::kMicrosoft4Row:
      rows.offset = first_row / 4 * n_cols_;
      end = ceil_div(first_row + n_rows, 4) * n_cols_;
      break;
    case I2sFlavor::kBitNet32F16:
      rows.offset = first / kBlock32 * 10;
      end = ceil_div(last, kBlock32) * 10;
      break;
    case I2sFlavor::kSplit32WithSibling:
      rows.offset = first / kBlock32 * 8;
      end = std::min(ceil_div(last, kBlock32) * 8, ceil_div(n_rows_ * n_cols_, 4));
      break;
    case I2sFlavor::kGgmlQk256NoScale:
      rows.offset = first_row * row_major_bytes(kQk256Format, n_cols_);
      end = rows.offset + n_rows * row_major_bytes(kQk256Format, n_cols_);
      break;
  }
  bytes.resize(end - rows.offset);
  rows.bytes = bytes;
  return read_(rows.offset, bytes);
}

Status I2sDecoder::unpack_row(const Rows& rows, std::uint64_t row,
                              std::span<std::uint8_t> codes) const {
  const std::uint64_t first = row * n_cols_;
  switch (flavor_) {
    case I2sFlavor::kMicrosoft128: unpack_groups(rows.at(first / 4), 128, codes); break;
    case I2sFlavor::kMicrosoft64: unpack_groups(rows.at(first / 4), 64, codes); break;
    case I2sFlavor::kMicrosoft4Row: {
      const std::byte* four = rows.at(row / 4 * n_cols_);
      const auto shift = static_cast<unsigned>(6 - 2 * (row % 4));
      for (std::size_t c = 0; c < codes.size(); ++c) codes[c] = code_at(four[c], shift);
      break;
    }
    case I2sFlavor::kBitNet32F16:
    case I2sFlavor::kSplit32WithSibling: {
      const std::uint64_t block_bytes = flavor_ == I2sFlavor::kBitNet32F16 ? 10 : 8;
      for (std::size_t c = 0; c < codes.size(); ++c) {
        const std::uint64_t e = first + c;
        codes[c] = code_at(*rows.at(e / kBlock32 * block_bytes + e % kBlock32 / 4),
                           static_cast<unsigned>(2 * (e % 4)));
      }
      return ok_status();
    }
    case I2sFlavor::kGgmlQk256NoScale: {
      const std::byte* packed = rows.at(row * row_major_bytes(kQk256Format, n_cols_));
      for (std::size_t c = 0; c < codes.size(); ++c) {
        codes[c] = code_at(packed[c / 4], static_cast<unsigned>(2 * (c % 4)));
      }
      return ok_status();
    }
  }
  const auto bad = std::find(codes.begin(), codes.end(), std::uint8_t{3});
  if (bad == codes.end()) return ok_status();
  return corrupt("%s: row %" PRIu64
                 ", column %td has code 3, which %s does not have; the file is damaged or has "
                 "another layout, see --i2s-layout",
                 name_.c_str(), row, bad - codes.begin(),
                 std::string(i2s_flavor_name(flavor_)).c_str());
}

Result<float> I2sDecoder::block_scale(const Rows& rows, std::uint64_t block,
                                      std::uint64_t row) const {
  if (flavor_ == I2sFlavor::kSplit32WithSibling) return sibling_scales_[block];
  const float scale = to_f32(load_le<F16>(ByteSpan(rows.at(block * 10 + 8), 2), 0));
  if (std::isfinite(scale)) return scale;
  return corrupt(
      "%s: row %" PRIu64
      " has the scale is not finite; the file is damaged or has another layout, see --i2s-layout",
      name_.c_str(), row);
}

Status I2sDecoder::decode_row_at(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes,
                                 std::span<float> out) const {
  if (is_microsoft(flavor_)) {
    decode_codes(QuantType::kTernaryRow, {scale_, 0.0F}, codes.data(), out);
    return ok_status();
  }
  if (flavor_ == I2sFlavor::kGgmlQk256NoScale) {
    decode_codes(QuantType::kQk256, {}, codes.data(), out);
    return ok_status();
  }
  const std::uint64_t first = row * n_cols_;
  for (std::uint64_t c = 0; c < n_cols_;) {  // block by block, the first and the last maybe in part
    const std::uint64_t block = (first + c) / kBlock32;
    const std::uint64_t n = std::min(n_cols_ - c, (block + 1) * kBlock32 - (first + c));
    QSF_ASSIGN_OR_RETURN(const float scale, block_scale(rows, block, row));
    for (const std::uint64_t end = c + n; c < end; ++c) {
      out[c] = scale * (static_cast<float>(codes[c]) - 2.0F);
      if (std::isfinite(out[c])) continue;
      return corrupt("%s: row %" PRIu64 ", column %" PRIu64 " is not finite", name_.c_str(), row,
                     c);
    }
  }
  return ok_status();
}

// scale * (code - 2) as scale * code + min; of a negative scale, with the codes turned around.
Status I2sDecoder::keep_blocks(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes,
                               MutableByteSpan out) const {
  for (std::uint64_t b = 0; b < n_cols_ / kBlock32; ++b) {
    QSF_ASSIGN_OR_RETURN(const float scale, block_scale(rows, row * n_cols_ / kBlock32 + b, row));
    std::uint8_t* block = codes.data() + b * kBlock32;
    const float min = scale < 0.0F ? scale : -2.0F * scale;
    if (std::fabs(min) > kF16Max) {
      return unsupported("%s: row %" PRIu64
                         " has a scale of %g, beyond what 2bit can hold; convert "
                         "to another type, such as --quant-type bf16",
                         name_.c_str(), row, static_cast<double>(scale));
    }
    if (scale < 0.0F) {
      for (std::uint32_t i = 0; i < kBlock32; ++i)
        block[i] = static_cast<std::uint8_t>(3 - block[i]);
    }
    const MutableByteSpan to = out.subspan(b * block_bytes(k2Bit32Format));
    store_le(to, 0, to_f16(std::fabs(scale)));
    store_le(to, 2, to_f16(min));
    pack_2bit(block, kBlock32, kBlock32, to.data() + 4);
  }
  return ok_status();
}

Status I2sDecoder::keep_row_at(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes,
                               MutableByteSpan out) const {
  if (!is_microsoft(flavor_) && flavor_ != I2sFlavor::kGgmlQk256NoScale) {
    return keep_blocks(rows, row, codes, out);
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  const BlockFormat format = is_microsoft(flavor_) ? kTernaryRowFormat : kQk256Format;
  if (is_microsoft(flavor_)) store_le(out, 0, scale_);
  for (std::uint64_t first = 0; first < n_cols_; first += format.block) {
    std::uint8_t chunk[64] = {};
    const std::uint64_t n = std::min<std::uint64_t>(format.block, n_cols_ - first);
    std::copy_n(codes.data() + first, n, chunk);
    std::byte* to = out.data() + locate_in_row(format, first / format.block).codes;
    if (is_microsoft(flavor_)) {
      pack_2bit(chunk, format.block, format.block, to);
    } else {
      pack_qk256(chunk, format.block, format.block, to);
    }
  }
  return ok_status();
}

template <typename Each>
Status I2sDecoder::for_each_row(std::uint64_t first_row, std::uint64_t n_rows,
                                const Each& each) const {
  const std::uint64_t chunk_rows =
      std::max<std::uint64_t>(4, kInt8BlockBytes / std::max<std::uint64_t>(1, n_cols_ / 4) / 4 * 4);
  std::vector<std::byte> bytes;
  std::vector<std::uint8_t> codes(n_cols_);
  for (std::uint64_t done = 0; done < n_rows;) {
    const std::uint64_t n = std::min(chunk_rows, n_rows - done);
    Rows rows;
    QSF_RETURN_IF_ERROR(read_chunk(first_row + done, n, bytes, rows));
    for (const std::uint64_t end = done + n; done < end; ++done) {
      QSF_RETURN_IF_ERROR(unpack_row(rows, first_row + done, codes));
      QSF_RETURN_IF_ERROR(each(rows, done, std::span(codes)));
    }
  }
  return ok_status();
}

Status I2sDecoder::read_rows(std::uint64_t first_row, std::span<float> out) const {
  const std::uint64_t n_rows = out.size() / n_cols_;
  QSF_CHECK(out.size() == n_rows * n_cols_ && first_row + n_rows <= n_rows_);
  return for_each_row(
      first_row, n_rows, [&](const Rows& rows, std::uint64_t i, std::span<std::uint8_t> codes) {
        return decode_row_at(rows, first_row + i, codes, out.subspan(i * n_cols_, n_cols_));
      });
}

Status I2sDecoder::read_kept_rows(std::uint64_t first_row, std::uint64_t n_rows,
                                  MutableByteSpan out) const {
  QSF_CHECK(kept_format() && first_row + n_rows <= n_rows_);
  const std::uint64_t row_bytes = row_major_bytes(*kept_format(), n_cols_);
  QSF_CHECK(out.size() == n_rows * row_bytes);
  return for_each_row(
      first_row, n_rows, [&](const Rows& rows, std::uint64_t i, std::span<std::uint8_t> codes) {
        return keep_row_at(rows, first_row + i, codes, out.subspan(i * row_bytes, row_bytes));
      });
}

namespace {

constexpr double kAllZeros = 0.999;
constexpr double kTooMany = 0.9;  // of zeros in an order that is not the right one

// Returns the share of zeros in some columns; 0 in an order that the tensor cannot have.
Result<double> share_of_zeros(I2sFlavor order, const I2sTensor& down,
                              std::span<const std::uint64_t> columns,
                              const I2sDecoder::ReadBytes& read) {
  constexpr std::uint64_t kRowsAtOnce = 64;
  if (order == I2sFlavor::kMicrosoft4Row && down.rows % 4 != 0) return 0.0;
  const auto decoder = I2sDecoder::open(order, down, read);
  if (!decoder && decoder.error().code() == StatusCode::kIo) return decoder.error();
  if (!decoder) return 0.0;
  std::uint64_t n_zeros = 0;
  std::vector<float> weights;
  for (std::uint64_t row = 0; row < down.rows; row += kRowsAtOnce) {
    weights.resize(std::min(kRowsAtOnce, down.rows - row) * down.cols);
    const Status status = decoder->read_rows(row, weights);
    if (status.code() == StatusCode::kIo) return status;
    if (!status.ok()) return 0.0;
    for (std::uint64_t at = 0; at < weights.size(); at += down.cols) {
      for (const std::uint64_t column : columns) n_zeros += weights[at + column] == 0.0F ? 1 : 0;
    }
  }
  return static_cast<double>(n_zeros) / static_cast<double>(down.rows * columns.size());
}

}  // namespace

Result<std::optional<I2sFlavor>> i2s_order_by_dead_channels(const I2sTensor& down,
                                                            std::span<const float> gains,
                                                            const I2sDecoder::ReadBytes& read) {
  QSF_CHECK(gains.size() == down.cols);
  std::vector<std::uint64_t> dead;
  for (std::uint64_t i = 0; i < gains.size(); ++i) {
    if (std::fabs(gains[i]) < kDeadGain) dead.push_back(i);
  }
  std::optional<I2sFlavor> right;
  if (dead.size() < kMinDeadChannels || 2 * dead.size() > gains.size()) return right;
  for (const I2sFlavor order :
       {I2sFlavor::kMicrosoft128, I2sFlavor::kMicrosoft64, I2sFlavor::kMicrosoft4Row}) {
    QSF_ASSIGN_OR_RETURN(const double share, share_of_zeros(order, down, dead, read));
    if (share >= kAllZeros && !right) {
      right = order;
    } else if (share >= kTooMany) {
      return std::optional<I2sFlavor>();
    }
  }
  return right;
}

}  // namespace qsf
