// SPDX-License-Identifier: MIT

#include "format/tile_codec.h"

#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>

#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

// Levels beyond these gain under one percent on quantised weights and take several times as long.
constexpr int kLz4HcLevel = 9;
constexpr int kZstdLevel = 9;

const char* lz4_chars(ByteSpan bytes) {
  return reinterpret_cast<const char*>(bytes.data());
}
char* lz4_chars(MutableByteSpan bytes) {
  return reinterpret_cast<char*>(bytes.data());
}

}  // namespace

Status compress_tile(Compression compression, ByteSpan raw, std::vector<std::byte>& to) {
  QSF_CHECK(raw.size() <= kMaxTileBytes);
  to.clear();
  if (compression == Compression::kNone) return ok_status();
  const int raw_bytes = static_cast<int>(raw.size());
  const bool zstd = compression == Compression::kZstd;
  to.resize(zstd ? ZSTD_compressBound(raw.size())
                 : static_cast<std::size_t>(LZ4_compressBound(raw_bytes)));
  std::size_t stored_bytes = 0;
  if (zstd) {
    stored_bytes = ZSTD_compress(to.data(), to.size(), raw.data(), raw.size(), kZstdLevel);
    if (ZSTD_isError(stored_bytes) != 0) {
      return internal_error("zstd: %s", ZSTD_getErrorName(stored_bytes));
    }
  } else {
    const int capacity = static_cast<int>(to.size());
    const int n = compression == Compression::kLz4
                      ? LZ4_compress_default(lz4_chars(raw), lz4_chars(MutableByteSpan(to)),
                                             raw_bytes, capacity)
                      : LZ4_compress_HC(lz4_chars(raw), lz4_chars(MutableByteSpan(to)), raw_bytes,
                                        capacity, kLz4HcLevel);
    if (n <= 0) return internal_error("lz4: compressing %d bytes failed", raw_bytes);
    stored_bytes = static_cast<std::size_t>(n);
  }
  to.resize(stored_bytes < raw.size() ? stored_bytes : 0);
  return ok_status();
}

namespace {

Status decompress_with(ZSTD_DCtx* zstd, Compression compression, ByteSpan stored,
                       MutableByteSpan raw) {
  switch (compression) {
    case Compression::kNone: break;
    case Compression::kLz4:
    case Compression::kLz4Hc: {
      const int n =
          LZ4_decompress_safe(lz4_chars(stored), lz4_chars(raw), static_cast<int>(stored.size()),
                              static_cast<int>(raw.size()));
      if (n >= 0 && static_cast<std::size_t>(n) == raw.size()) return ok_status();
      return corrupt("LZ4 data do not decompress to the %zu bytes expected", raw.size());
    }
    case Compression::kZstd: {
      const std::size_t n =
          zstd != nullptr
              ? ZSTD_decompressDCtx(zstd, raw.data(), raw.size(), stored.data(), stored.size())
              : ZSTD_decompress(raw.data(), raw.size(), stored.data(), stored.size());
      if (n == raw.size()) return ok_status();
      return corrupt("ZSTD data do not decompress to the %zu bytes expected: %s", raw.size(),
                     ZSTD_isError(n) != 0 ? ZSTD_getErrorName(n) : "fewer bytes");
    }
  }
  return internal_error("decompression of a tile that is not compressed");
}

}  // namespace

Status decompress_tile(Compression compression, ByteSpan stored, MutableByteSpan raw) {
  return decompress_with(nullptr, compression, stored, raw);
}

struct TileDecompressor::Context {
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { ZSTD_freeDCtx(zstd); }

  ZSTD_DCtx* zstd = ZSTD_createDCtx();
};

TileDecompressor::TileDecompressor(std::unique_ptr<Context> context) noexcept
    : context_(std::move(context)) {}
TileDecompressor::TileDecompressor(TileDecompressor&&) noexcept = default;
TileDecompressor& TileDecompressor::operator=(TileDecompressor&&) noexcept = default;
TileDecompressor::~TileDecompressor() = default;

Result<TileDecompressor> TileDecompressor::create() {
  auto context = std::make_unique<Context>();
  if (context->zstd == nullptr) return out_of_budget("zstd: no memory to decompress with");
  return TileDecompressor(std::move(context));
}

Status TileDecompressor::run(Compression compression, ByteSpan stored, MutableByteSpan raw) {
  return decompress_with(context_->zstd, compression, stored, raw);
}

std::size_t TileDecompressor::heap_bytes() noexcept {
  // ZSTD_sizeof_DCtx of a new context; the library has no constant for it.
  static const std::size_t bytes = [] {
    const Context context;
    return sizeof(Context) + ZSTD_sizeof_DCtx(context.zstd);
  }();
  return bytes;
}

}  // namespace qsf
