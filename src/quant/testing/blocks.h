// SPDX-License-Identifier: MIT
//
// The formats of blocks, their names and their bytes, for tests of codecs.

#ifndef QSF_QUANT_TESTING_BLOCKS_H_
#define QSF_QUANT_TESTING_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quant/block_format.h"
#include "quant/codec.h"

namespace qsf::testing_support {

inline std::vector<BlockFormat> all_formats() {
  std::vector<BlockFormat> formats;
  for (const QuantType type : kAllQuantTypes) {
    if (fixed_block(type) != 0) {
      formats.push_back(block_format(type, 0));
      continue;
    }
    for (const std::uint32_t block : {32U, 64U, 128U, 256U}) {
      if (is_valid({type, block})) formats.push_back({type, block});
    }
  }
  return formats;
}

inline std::string name_of(BlockFormat format) {
  return std::string(quant_type_name(format.type)) + "/" + std::to_string(format.block);
}

// Decodes a row of layout 0.
inline std::vector<float> decode(BlockFormat format, const std::vector<std::byte>& bytes,
                                 std::size_t n_cols) {
  std::vector<float> row(n_cols);
  decode_row(format, bytes, row);
  return row;
}

inline unsigned at(const std::vector<std::byte>& bytes, std::size_t i) {
  return static_cast<unsigned>(bytes[i]);
}

}  // namespace qsf::testing_support

#endif  // QSF_QUANT_TESTING_BLOCKS_H_
