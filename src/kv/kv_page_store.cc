// SPDX-License-Identifier: MIT

#include "kv/kv_page_store.h"

#include "kv/kv_block.h"

namespace qsf {

void ResidentKvStore::move_rows(std::span<const RowMove> moves) {
  QSF_CHECK(moves.size() <= kMaxDrafts);
  for (std::uint32_t layer = 0; layer < shape_.n_layers; ++layer) {
    qsf::move_rows(shape_.of_layer(layer), acquire_layer(layer), moves);
  }
}

}  // namespace qsf
