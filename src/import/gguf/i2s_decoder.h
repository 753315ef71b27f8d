// SPDX-License-Identifier: MIT
//
// I2sDecoder: reads the weights of I2_S tensors in each layout of import/gguf/i2s_flavor.h.
//
//   ms128     groups of 128 weights in row-major order, 32 bytes each: weight 32g + p in bits
//             6-2g, 7-2g of byte p. ms64: groups of 64 in 16 bytes, weight 16g + p likewise
//   ms4row    byte q * cols + c: weights of column c of rows 4q .. 4q+3, the first in bits 6, 7
//             All three have one f32 scale for the tensor behind the codes, at byte n/4, and 28
//             unused bytes. Code 3 is invalid
//   inline32  blocks of 32 weights in row-major order, 10 bytes each: weight 4b + f in bits 2f,
//             2f+1 of byte b, b < 8, then an f16 scale
//   split32   the same without the scale: 8 bytes a block
//   qk256     rows of whole blocks of 256 weights, 64 bytes each, packed likewise
//
// Only the bytes of requested rows are read.
//
// i2s_order_by_dead_channels() tells Microsoft's three layouts, which have equal sizes, apart where
// a model has dead channels. A feed-forward channel whose norm gain has decayed to nothing is dead:
// it contributes nothing and gets no gradient, so its column of the down projection has decayed to
// zeros as well. In the right layout those columns are zeros throughout; in the two wrong ones most
// are mixtures of other columns. (Rows of gate and up are less telling: a row of zeros has the same
// bytes in two of the layouts.)
//
// Based on: the published sources of Microsoft's BitNet (ggml-bitnet-mad.cpp) and BitNet-rs.

#ifndef QSF_IMPORT_GGUF_I2S_DECODER_H_
#define QSF_IMPORT_GGUF_I2S_DECODER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "import/gguf/i2s_flavor.h"
#include "quant/block_format.h"

namespace qsf {

class I2sDecoder {
 public:
  // Reads bytes of the tensor, `offset` counted from its first; callable from any thread.
  using ReadBytes = std::function<Status(std::uint64_t offset, MutableByteSpan out)>;

  // Reads the scale of layouts with one scale a tensor.
  // Requires  `flavor` is what detect_i2s_flavors() returned for the tensor
  // Shapes    sibling_scales [ceil(rows * cols / 32)] for split32, else ignored
  // Fails     kCorrupt when the tensor has fewer bytes than the flavour needs, or a scale is not a
  //           finite number (Microsoft layouts: above zero); as `read`
  static Result<I2sDecoder> open(I2sFlavor flavor, const I2sTensor& tensor, ReadBytes read,
                                 std::vector<float> sibling_scales = {});

  I2sFlavor flavor() const noexcept { return flavor_; }

  // Returns the weight type that holds the tensor bit for bit: ternary-row for the Microsoft
  // layouts, 2bit with blocks of 32 for inline32 and split32 (nothing where blocks straddle rows or
  // a sibling scale does not fit f16), qk256 for itself.
  std::optional<BlockFormat> kept_format() const noexcept;

  // Reads whole rows as f32.
  // Shapes   out [n_rows, cols], rows from first_row on, all of which exist
  // Fails    kCorrupt, naming tensor, row and --i2s-layout, on an invalid code or scale; as `read`
  // Threads  any number at once
  Status read_rows(std::uint64_t first_row, std::span<float> out) const;

  // Reads whole rows as layout 0 of kept_format().
  // Shapes    out [n_rows * row_major_bytes(*kept_format(), cols)]
  // Requires  kept_format() has a value
  // Fails     as read_rows; kUnsupported when twice a scale exceeds f16
  Status read_kept_rows(std::uint64_t first_row, std::uint64_t n_rows, MutableByteSpan out) const;

 private:
  struct Rows;

  I2sDecoder(I2sFlavor flavor, const I2sTensor& tensor, ReadBytes read,
             std::vector<float> sibling_scales);

  Status read_microsoft_scale();
  Status check_sibling_scales();
  Status read_chunk(std::uint64_t first_row, std::uint64_t n_rows, std::vector<std::byte>& bytes,
                    Rows& rows) const;
  Status unpack_row(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes) const;
  Result<float> block_scale(const Rows& rows, std::uint64_t block, std::uint64_t row) const;
  Status decode_row_at(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes,
                       std::span<float> out) const;
  Status keep_row_at(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes,
                     MutableByteSpan out) const;
  Status keep_blocks(const Rows& rows, std::uint64_t row, std::span<std::uint8_t> codes,
                     MutableByteSpan out) const;
  // Reads rows chunk by chunk and calls `each(rows, row, codes)` for each, in order.
  template <typename Each>
  Status for_each_row(std::uint64_t first_row, std::uint64_t n_rows, const Each& each) const;

  I2sFlavor flavor_;
  std::string name_;
  std::uint64_t n_rows_;
  std::uint64_t n_cols_;
  ReadBytes read_;
  std::vector<float> sibling_scales_;
  bool scales_fit_f16_ = true;
  float scale_ = 1.0F;  // of the whole tensor
};

// Channels with a smaller gain are dead; the other gains of a norm are around one.
inline constexpr float kDeadGain = 1e-20F;
inline constexpr std::uint32_t kMinDeadChannels = 16;

// Returns the layout in which the columns of dead channels are zeros: at least 99.9 % of their
// codes, and less than 90 % in the other two layouts. Returns nothing when fewer than
// kMinDeadChannels or more than half of the channels are dead, or when no layout stands out.
// Shapes   gains [down.cols]
// Fails    as `read`; damaged codes are reported later, by I2sDecoder
// Threads  any
Result<std::optional<I2sFlavor>> i2s_order_by_dead_channels(const I2sTensor& down,
                                                            std::span<const float> gains,
                                                            const I2sDecoder::ReadBytes& read);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_I2S_DECODER_H_
