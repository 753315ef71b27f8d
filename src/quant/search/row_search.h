// SPDX-License-Identifier: MIT
//
// The search for blocks with f16 fields of their own, a few of a row together.

#ifndef QSF_QUANT_SEARCH_ROW_SEARCH_H_
#define QSF_QUANT_SEARCH_ROW_SEARCH_H_

#include <cstdint>
#include <span>

#include "quant/quant_options.h"
#include "quant/search/block_search.h"
#include "quant/search/code_sums.h"

namespace qsf {

// Searches the fields of up to kBlocksPerBatch blocks of `block` columns, the last of which may be
// shorter, beginning with those in `fields`, which are kept where nothing is better.
// Shapes      fields [ceil(weights.size() / block)]: f16 numbers; options those of the weights
// Requires    as CostedWeights
// Guarantees  as search_block(); what is found in a block depends on no other
void search_blocks(std::span<const float> weights, std::uint32_t block, const QuantOptions& options,
                   const CodeGrid& grid, std::span<Fields> fields) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_ROW_SEARCH_H_
