// SPDX-License-Identifier: MIT
//
// Compression of one tile.

#ifndef QSF_FORMAT_TILE_CODEC_H_
#define QSF_FORMAT_TILE_CODEC_H_

#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/qsf_layout.h"

namespace qsf {

// Compresses `raw` into `to`, or leaves `to` empty when that would not make it smaller.
// Requires  raw.size() <= kMaxTileBytes
// Fails     kInternal when the library fails
Status compress_tile(Compression compression, ByteSpan raw, std::vector<std::byte>& to);

// Fills `raw` from compressed bytes.
// Fails    kCorrupt when they are not a stream of that kind that holds exactly raw.size() bytes
// Threads  any
Status decompress_tile(Compression compression, ByteSpan stored, MutableByteSpan raw);

// decompress_tile for many tiles: what the libraries need is allocated once.
// Threads  one at a time
class TileDecompressor {
 public:
  // Fails  kOutOfBudget when there is no memory
  static Result<TileDecompressor> create();
  TileDecompressor(TileDecompressor&&) noexcept;
  TileDecompressor& operator=(TileDecompressor&&) noexcept;
  ~TileDecompressor();

  // As decompress_tile; allocates nothing.
  Status run(Compression compression, ByteSpan stored, MutableByteSpan raw);

  // Heap bytes of each.
  static std::size_t heap_bytes() noexcept;

 private:
  struct Context;
  explicit TileDecompressor(std::unique_ptr<Context> context) noexcept;
  std::unique_ptr<Context> context_;
};

}  // namespace qsf

#endif  // QSF_FORMAT_TILE_CODEC_H_
