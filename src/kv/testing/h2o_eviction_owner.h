// SPDX-License-Identifier: MIT
//
// H2oEviction with the memory they lie in, and a sequence whose keys and values tell their
// positions.

#ifndef QSF_KV_TESTING_H2O_EVICTION_OWNER_H_
#define QSF_KV_TESTING_H2O_EVICTION_OWNER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "kv/h2o_eviction.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"

namespace qsf::testing_support {

class H2oEvictionOwner {
 public:
  // What rows of a block pay to a position they see, together.
  using Paid =
      std::function<float(std::uint32_t layer, std::uint32_t kv_head, std::uint32_t position)>;

  explicit H2oEvictionOwner(const H2oEvictionShape& shape)
      : limits_(limits_of(shape)),
        region_(H2oEviction::region_bytes(shape) / sizeof(Line), Line{{std::byte{0xA5}}}),
        tables_(KvCache::region_bytes(limits_) / sizeof(Line) + 1),
        pages_(ResidentKvStore::region_bytes(shape.kv, limits_.n_pages) / sizeof(Line)),
        heavy_(H2oEviction::create(shape, bytes_of(region_)).value()),
        kv_(KvCache::create(shape.kv, limits_, bytes_of(tables_)).value()),
        store_(shape.kv, bytes_of(pages_)),
        sequence_(kv_.create_sequence().value()) {}

  H2oEviction* operator->() { return &heavy_; }
  H2oEviction& operator*() { return heavy_; }

  // Appends rows up to `end` and lets them through a layer, closing blocks as they fill.
  void advance(std::uint32_t layer, std::uint32_t end, const Paid& paid) {
    for (std::uint32_t at = heavy_.scored_end(layer); at < end;) {
      const std::uint32_t block_end = heavy_.block_start(layer) + kEvictionBlock;
      const std::uint32_t stop = std::min(end, block_end);
      append_to(stop);
      for (std::uint32_t head = 0; head < heavy_.shape().kv.n_kv_heads; ++head) {
        if (stop < block_end) continue;
        pay(layer, head, stop, paid);
        heavy_.close_head(layer, head, kv_, sequence_, store_.acquire_layer(layer));
      }
      heavy_.mark_scored(layer, stop);
      at = stop;
    }
  }
  // The number that value and key of a slot are made of.
  float stored(std::uint32_t layer, std::uint32_t kv_head, KvPart part, std::uint32_t slot) const {
    const auto* block =
        reinterpret_cast<const float*>(heavy_.kv_block(layer, kv_head, part, slot / kKvPageSlots));
    const std::uint32_t in_block = slot % kKvPageSlots;
    return part == KvPart::kKeys ? block[kKvPageSlots + in_block]
                                 : block[in_block * heavy_.shape().kv.head_dim + 1];
  }
  static float number_of(std::uint32_t layer, std::uint32_t kv_head, KvPart part,
                         std::uint32_t position) {
    const std::uint32_t kind = layer * 8 + kv_head * 2 + (part == KvPart::kKeys ? 1 : 0);
    return static_cast<float>(position * 64 + kind + 1);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static MutableByteSpan bytes_of(std::vector<Line>& lines) {
    return std::as_writable_bytes(std::span(lines));
  }
  static KvLimits limits_of(const H2oEvictionShape& shape) {
    KvLimits limits = {.n_pages = 1, .max_sequences = 1, .max_slots = shape.kv_size};
    limits.n_pages = kv_pages_per_sequence(limits);
    return limits;
  }
  // All rows of a block at once.
  void pay(std::uint32_t layer, std::uint32_t head, std::uint32_t end, const Paid& paid) {
    const auto sums = heavy_.block_sums(layer, head);
    const auto members = heavy_.members(layer, head);
    for (std::uint32_t m = 0; m < heavy_.n_members(layer); ++m) {
      sums.heavy[m] += paid(layer, head, static_cast<std::uint32_t>(members[m]));
    }
    const std::uint32_t first = heavy_.first_recent(layer);
    for (std::uint32_t p = first; p < end; ++p) sums.recent[p - first] += paid(layer, head, p);
  }
  void append_to(std::uint32_t end) {
    const std::uint32_t first = kv_.n_slots(sequence_);
    if (end <= first) return;
    QSF_CHECK(kv_.append(sequence_, end - first).has_value());
    const KvShape& shape = kv_.shape();
    for (std::uint32_t p = first; p < end; ++p) {
      for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
        std::byte* page = store_.acquire_layer(layer).page(kv_.page_of(sequence_, p));
        for (std::uint32_t head = 0; head < shape.n_kv_heads; ++head) {
          auto* k = reinterpret_cast<float*>(page + shape.block_offset(head, KvPart::kKeys));
          auto* v = reinterpret_cast<float*>(page + shape.block_offset(head, KvPart::kValues));
          for (std::uint32_t d = 0; d < shape.head_dim; ++d) {
            k[d * kKvPageSlots + p % kKvPageSlots] = number_of(layer, head, KvPart::kKeys, p);
            v[p % kKvPageSlots * shape.head_dim + d] = number_of(layer, head, KvPart::kValues, p);
          }
        }
      }
    }
  }

  KvLimits limits_;
  std::vector<Line> region_, tables_, pages_;
  H2oEviction heavy_;
  KvCache kv_;
  ResidentKvStore store_;
  SequenceId sequence_;
};

}  // namespace qsf::testing_support

#endif  // QSF_KV_TESTING_H2O_EVICTION_OWNER_H_
