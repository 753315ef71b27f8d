// SPDX-License-Identifier: MIT
//
// KvHeads: the key and value heads of one layer, where the layers of a model differ in them.

#ifndef QSF_QUANT_KV_HEADS_H_
#define QSF_QUANT_KV_HEADS_H_

#include <cstdint>

namespace qsf {

struct KvHeads {
  std::uint32_t n_kv_heads = 1;
  std::uint32_t head_dim = 1;
  friend bool operator==(const KvHeads&, const KvHeads&) = default;
};

}  // namespace qsf

#endif  // QSF_QUANT_KV_HEADS_H_
