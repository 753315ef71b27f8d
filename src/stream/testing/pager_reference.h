// SPDX-License-Identifier: MIT
//
// For tests of the pager: the bytes that every tile should have, made without it, and a clock that
// ends a test which hangs.

#ifndef QSF_STREAM_TESTING_PAGER_REFERENCE_H_
#define QSF_STREAM_TESTING_PAGER_REFERENCE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "format/qsf_reader.h"
#include "quant/interleave.h"
#include "stream/weight_pager.h"

namespace qsf::testing_support {

// Kills the process when a test takes longer than it should.
class Watchdog {
 public:
  explicit Watchdog(unsigned seconds) { ::alarm(seconds); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { ::alarm(0); }
};

class TileReference {
 public:
  explicit TileReference(const QsfReader& reader) : reader_(reader) {
    const auto n_sections = static_cast<std::uint32_t>(reader.directories().size());
    for (std::uint32_t section = 0; section < n_sections; ++section) {
      const SectionDirectory& directory = reader.directories()[section];
      for (std::uint32_t index = 0; index < directory.tiles.size(); ++index) {
        const TileInfo& info = directory.tiles[index];
        if (info.tensor == kOneRowTensors) continue;
        const auto id = static_cast<TileId>(tiles_.size());
        const bool is_tied_head =
            reader.spec().tied_head && section == 0 &&
            directory.tensors[info.tensor].kind == TensorKind::kTokenEmbedding;
        if (section > 0 && section + 1 < n_sections) layers_.push_back(id);
        if (section + 1 == n_sections || is_tied_head) head_.push_back(id);
        if (section > 0 || is_tied_head) pass_bytes_ += info.stored_bytes;
        tiles_.push_back(kernel_form(directory, index));
      }
    }
  }

  std::uint32_t n_layers() const { return reader_.spec().n_layers; }
  std::size_t n_layer_tiles() const { return layers_.size(); }
  // Stored bytes of the tiles that a pass with logits uses.
  std::uint64_t pass_bytes() const { return pass_bytes_; }

  void expect_tile(TileId id, const WeightTile& tile) const {
    const std::vector<std::byte>& expected = tiles_[id];
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(tile.bytes) % 64, 0U);
    ASSERT_EQ((tile.n_rows + 15) / 16 * tile.group_bytes, expected.size());
    ASSERT_EQ(std::memcmp(tile.bytes, expected.data(), expected.size()), 0) << "tile " << id;
  }

  // A pass as a decoder makes it: all tiles in order, as many at once as are ready.
  void expect_pass(WeightPager& pager, bool with_head) const {
    pager.start_pass(pager.plan_of(0, n_layers(), with_head));
    expect_run(pager, layers_);
    if (with_head) expect_run(pager, head_);
  }

 private:
  void expect_run(WeightPager& pager, const std::vector<TileId>& ids) const {
    std::vector<WeightTile> tiles(16);
    for (TileId next = ids.front(); next <= ids.back();) {
      std::uint32_t n = pager.acquire_ready(next, ids.back() + 1 - next, tiles);
      if (n == 0) {
        const auto tile = pager.acquire(next);
        ASSERT_TRUE(tile.has_value()) << tile.error().message();
        tiles[0] = *tile;
        n = 1;
      }
      for (std::uint32_t i = 0; i < n; ++i) expect_tile(next + i, tiles[i]);
      pager.release(next, n);
      next += n;
    }
  }

  std::vector<std::byte> kernel_form(const SectionDirectory& directory, std::uint32_t index) const {
    const TileInfo& info = directory.tiles[index];
    const TensorInfo& tensor = directory.tensors[info.tensor];
    std::vector<std::byte> stored(info.stored_bytes);
    std::vector<std::byte> raw(info.raw_bytes);
    EXPECT_TRUE(reader_.read_tile(directory, index, stored, raw).ok());
    std::vector<std::byte> form(static_cast<std::size_t>(
        rows_bytes(kernel_format(tensor.format), Layout::kInterleaved, info.n_rows, tensor.cols)));
    to_kernel_form(tensor.format, tensor.layout, info.n_rows, tensor.cols, raw, form);
    return form;
  }

  const QsfReader& reader_;
  std::vector<std::vector<std::byte>> tiles_;  // by TileId
  std::vector<TileId> layers_;
  std::vector<TileId> head_;
  std::uint64_t pass_bytes_ = 0;
};

}  // namespace qsf::testing_support

#endif  // QSF_STREAM_TESTING_PAGER_REFERENCE_H_
