// SPDX-License-Identifier: MIT
//
// RowCache: the most recently used rows of embeddings that are not resident, decoded.
//
// A row is read alone or with its group of 16 neighbours, depending on the layout: some kilobytes.
// The first row of a tile costs a read of the whole tile, to check its checksum; rows of compressed
// tiles always do.

#ifndef QSF_STREAM_ROW_CACHE_H_
#define QSF_STREAM_ROW_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/tile_codec.h"
#include "io/async_reader.h"
#include "io/read_device.h"
#include "stream/tile_schedule.h"
#include "stream/tile_table.h"

namespace qsf {

// Threads  one at a time
class RowCache {
 public:
  // Shapes    memory [table.residency().row_cache_bytes], not 0
  // Requires  all of them outlive the cache
  // Fails     kOutOfBudget without memory
  static Result<std::unique_ptr<RowCache>> create(const TileTable& table, const ReadDevice& device,
                                                  TileSchedule& schedule, MutableByteSpan memory);

  // Decodes row `row` of the matrix that tensor `tensor` of all is, which lies in tile `id`.
  // Shapes  out [n_cols]
  // Fails   kCorrupt or kIo, naming the section, the tile and its file offset
  Status decode(std::uint32_t tensor, TileId id, std::uint32_t row, std::span<float> out);

  static std::uint64_t heap_bytes(const TileTable& table) noexcept;

 private:
  struct Entry {
    std::uint32_t tensor = 0xFFFFFFFFU;
    std::uint32_t row = 0;
    std::uint64_t last_use = 0;
  };

  RowCache(const TileTable& table, TileSchedule& schedule, MutableByteSpan memory,
           TileDecompressor decompressor, std::unique_ptr<AsyncReader> queue);
  std::span<float> values(std::size_t entry, std::size_t n_cols) const noexcept;
  Status read_row(TileId id, std::uint32_t row_in_tile, std::span<float> out);
  Result<ByteSpan> read_whole(TileId id);
  Result<ByteSpan> read_range(TileId id, std::uint64_t offset, std::uint64_t bytes);

  const TileTable& table_;
  TileSchedule& schedule_;
  MutableByteSpan rows_;
  MutableByteSpan read_;  // what a read brings
  MutableByteSpan raw_;   // what is decompressed
  TileDecompressor decompressor_;
  std::unique_ptr<AsyncReader> queue_;
  std::vector<Entry> entries_;
  std::uint64_t n_uses_ = 0;
};

}  // namespace qsf

#endif  // QSF_STREAM_ROW_CACHE_H_
