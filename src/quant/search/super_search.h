// SPDX-License-Identifier: MIT
//
// The scale search for super-blocks: first scale and min of every sub-block by itself, then integer
// fields and the two f16 above them for all sub-blocks together, then both in turn.

#ifndef QSF_QUANT_SEARCH_SUPER_SEARCH_H_
#define QSF_QUANT_SEARCH_SUPER_SEARCH_H_

#include <array>
#include <span>

#include "base/bytes.h"
#include "base/f16.h"
#include "quant/search/block_search.h"
#include "quant/super_block.h"

namespace qsf {

// Ranges of the fields of a sub-block: scale in [lowest_scale, highest_scale], min in [0,
// highest_min].
struct SuperGrid {
  CodeGrid codes;
  int lowest_scale;
  int highest_scale;
  int highest_min;  // 0 without mins
};

struct SubFields {
  int scale = 0;
  int min = 0;
};

struct SuperFields {
  F16 d{0};     // >= 0
  F16 dmin{0};  // <= 0
  std::array<SubFields, kMaxSubBlocks> subs{};

  // The fields that sub-block `k` is decoded with.
  Fields fields_of(const CodeGrid& codes, std::size_t k) const noexcept;
};

// Chooses the nearest codes of all weights and packs them into a super-block.
// Shapes  weights [1 .. 256]; out: the super-block in layout 0
void pack_sub_blocks(BlockFormat format, const CodeGrid& grid, const SuperFields& fields,
                     std::span<const float> weights, MutableByteSpan out);

// Searches the fields of a super-block, starting from `start`, which stays where nothing is better.
// Shapes      weights [1 .. 256], block 16, 32 or 64
// Guarantees  as search_block()
SuperFields search_super_block(const SuperGrid& grid, std::span<const float> weights,
                               std::uint32_t block, const QuantOptions& options,
                               const SuperFields& start) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_SUPER_SEARCH_H_
