// SPDX-License-Identifier: MIT
//
// KvPageStore: the bytes of keys and values, layer by layer.
//
// A pass visits the layers in order and needs the pages of one layer at a time. It acquires a layer
// from the store and releases it; in between the pages lie in memory, at an address that follows
// from the page id. The resident store holds every layer; spilled_kv_store.h keeps them in a file.

#ifndef QSF_KV_KV_PAGE_STORE_H_
#define QSF_KV_KV_PAGE_STORE_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"
#include "kv/kv_cache.h"
#include "kv/row.h"

namespace qsf {

// One layer's part of every page.
struct KvLayerPages {
  std::byte* base = nullptr;
  std::uint64_t page_stride = 0;
  std::byte* page(std::uint32_t page) const noexcept { return base + page * page_stride; }
};

// Threads  one at a time
class KvPageStore {
 public:
  virtual ~KvPageStore() = default;

  virtual const KvShape& shape() const noexcept = 0;

  // Starts a pass, whether or not the previous one was ended. `rows` and `kv` stay unchanged until
  // its end. When `cancel` (may be null) becomes true, every wait of the pass ends within 20 ms and
  // status() is kCancelled.
  virtual void begin_pass(std::span<const Row> rows, const KvCache& kv,
                          const std::atomic<bool>* cancel) = 0;
  // Returns the pages of a layer, valid until release_layer(); called again before that it returns
  // the same. After a failed read status() has the error, and the memory holds undefined bytes.
  // After a cancelled wait the base is null: the caller releases the layer and nothing else.
  // Requires  layers in ascending order from 0
  virtual KvLayerPages acquire_layer(std::uint32_t layer) = 0;
  // Takes the layer back, with the pass's rows stored in it.
  virtual void release_layer(std::uint32_t layer) = 0;
  // Copies a page, of every layer, between two passes.
  virtual void copy_page(std::uint32_t from_page, std::uint32_t to_page) = 0;
  // Moves rows of ended passes, of every layer, in this order and between two passes.
  // Requires  at most kMaxDrafts moves
  virtual void move_rows(std::span<const RowMove> moves) = 0;
  // Waits until the rows of the pass are stored.
  // Fails  as status()
  virtual Status end_pass() = 0;
  // Returns the first error of this pass. Its results are void then; rows of completed passes are
  // intact.
  virtual Status status() const = 0;
};

// Page p lies at p * page_bytes(), its layers one behind the other.
class ResidentKvStore final : public KvPageStore {
 public:
  static std::uint64_t region_bytes(const KvShape& shape, std::uint32_t n_pages) noexcept {
    return saturating_mul(shape.page_bytes(), n_pages);
  }
  // Shapes    memory [region_bytes()]
  // Requires  64-byte aligned, outliving the store
  ResidentKvStore(const KvShape& shape, MutableByteSpan memory) noexcept
      : shape_(shape), page_bytes_(shape.page_bytes()), memory_(memory.data()) {}

  const KvShape& shape() const noexcept override { return shape_; }
  void begin_pass(std::span<const Row>, const KvCache&, const std::atomic<bool>*) override {}
  KvLayerPages acquire_layer(std::uint32_t layer) override {
    QSF_DCHECK(layer < shape_.n_layers);
    return {memory_ + shape_.layer_offset(layer), page_bytes_};
  }
  void release_layer(std::uint32_t) override {}
  void copy_page(std::uint32_t from_page, std::uint32_t to_page) override {
    std::memcpy(memory_ + to_page * page_bytes_, memory_ + from_page * page_bytes_,
                static_cast<std::size_t>(page_bytes_));
  }
  void move_rows(std::span<const RowMove> moves) override;
  Status end_pass() override { return ok_status(); }
  Status status() const override { return ok_status(); }

 private:
  KvShape shape_;
  std::uint64_t page_bytes_;
  std::byte* memory_;
};

}  // namespace qsf

#endif  // QSF_KV_KV_PAGE_STORE_H_
