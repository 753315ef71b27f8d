// SPDX-License-Identifier: MIT
//
// AMX tiles by number, for kernels of the amx tier; internal linkage.
//
// A tile is up to 16 rows of up to 64 bytes. In C += A B, A holds rows of K values, B holds K / 4
// (int8) or K / 2 (bf16) rows of 16 columns with 4 or 2 neighbouring values of K each, and C 16
// columns of 32 bits. A line of layout 1 is such a row of B.
//
// Every access to memory clobbers memory: the intrinsics of gcc 12 do not, and stores that prepare
// a tile may sink below its load.
//
// Builds for tests define QSF_EMULATE_AMX: where the CPU has no tiles the same kernels then run on
// tiles of ordinary memory. Software tiles round bf16 products as separate operations in f32, which
// the hardware does in its own order, so results agree within the bound of a kernel alone.
//
// Based on: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.

#ifndef QSF_KERNELS_AMX_TILES_H_
#define QSF_KERNELS_AMX_TILES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tier.h"

namespace qsf::kernels::amx {

inline constexpr unsigned kTileRows = 16;
inline constexpr unsigned kTileRowBytes = 64;
inline constexpr unsigned kTileCount = 8;

// Rows and bytes of a row of every tile, in the form that the instruction loads.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

[[gnu::always_inline]] static inline void set_shape(TileShapes* shapes, unsigned tile,
                                                    unsigned rows, unsigned row_bytes) noexcept {
  shapes->rows[tile] = static_cast<std::uint8_t>(rows);
  shapes->row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
}

#if defined(QSF_EMULATE_AMX)

struct SoftwareTiles {
  TileShapes shapes;
  alignas(64) std::byte bytes[kTileCount][kTileRows][kTileRowBytes];
};
[[maybe_unused]] static thread_local SoftwareTiles software;

[[maybe_unused]] static void software_load(unsigned tile, const void* from,
                                           std::size_t stride) noexcept {
  std::memset(software.bytes[tile], 0, sizeof(software.bytes[tile]));
  for (unsigned row = 0; row < software.shapes.rows[tile]; ++row) {
    std::memcpy(software.bytes[tile][row], static_cast<const std::byte*>(from) + row * stride,
                software.shapes.row_bytes[tile]);
  }
}

[[maybe_unused]] static void software_store(unsigned tile, void* to, std::size_t stride) noexcept {
  for (unsigned row = 0; row < software.shapes.rows[tile]; ++row) {
    std::memcpy(static_cast<std::byte*>(to) + row * stride, software.bytes[tile][row],
                software.shapes.row_bytes[tile]);
  }
}

[[maybe_unused]] static void software_dot_i8(unsigned c, unsigned a, unsigned b, bool a_signed,
                                             bool b_signed) noexcept {
  const TileShapes& shapes = software.shapes;
  for (unsigned m = 0; m < shapes.rows[c]; ++m) {
    for (unsigned n = 0; n < shapes.row_bytes[c] / 4; ++n) {
      std::int32_t sum;
      std::memcpy(&sum, software.bytes[c][m] + 4 * n, 4);
      for (unsigned k = 0; k < shapes.row_bytes[a]; ++k) {
        const auto x = static_cast<std::uint8_t>(software.bytes[a][m][k]);
        const auto y = static_cast<std::uint8_t>(software.bytes[b][k / 4][4 * n + k % 4]);
        sum += (a_signed ? static_cast<std::int8_t>(x) : std::int32_t{x}) *
               (b_signed ? static_cast<std::int8_t>(y) : std::int32_t{y});
      }
      std::memcpy(software.bytes[c][m] + 4 * n, &sum, 4);
    }
  }
}

[[maybe_unused]] static float bf16_at(const std::byte* from) noexcept {
  std::uint16_t half;
  std::memcpy(&half, from, 2);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

[[maybe_unused]] static void software_dot_bf16(unsigned c, unsigned a, unsigned b) noexcept {
  const TileShapes& shapes = software.shapes;
  for (unsigned m = 0; m < shapes.rows[c]; ++m) {
    for (unsigned n = 0; n < shapes.row_bytes[c] / 4; ++n) {
      float sum;
      std::memcpy(&sum, software.bytes[c][m] + 4 * n, 4);
      for (unsigned k = 0; k < shapes.row_bytes[a] / 2; ++k) {
        sum += bf16_at(software.bytes[a][m] + 2 * k) *
               bf16_at(software.bytes[b][k / 2] + 4 * n + 2 * (k % 2));
      }
      std::memcpy(software.bytes[c][m] + 4 * n, &sum, 4);
    }
  }
}

// Set once, before the first kernel of the tier runs: host_cpu() knows.
#define QSF_AMX_SOFTWARE(statement) \
  if (!amx_is_native()) {           \
    statement;                      \
    return;                         \
  }
#else
#define QSF_AMX_SOFTWARE(statement)
#endif

// Gives the tiles their shapes; all become zero. Costs some twenty cycles.
[[gnu::always_inline]] static inline void configure(const TileShapes& shapes) noexcept {
  QSF_AMX_SOFTWARE(software.shapes = shapes; std::memset(software.bytes, 0, sizeof(software.bytes)))
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes) : "memory");
}

// Returns the tiles to their initial state, which lets a core save less on a switch.
[[gnu::always_inline]] static inline void release() noexcept {
  QSF_AMX_SOFTWARE(software.shapes = TileShapes{})
  __asm__ volatile("tilerelease" ::: "memory");
}

// Loads the rows of a tile, `stride` bytes apart.
template <unsigned kTile>
[[gnu::always_inline]] static inline void load(const void* from, std::size_t stride) noexcept {
  QSF_AMX_SOFTWARE(software_load(kTile, from, stride))
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}

template <unsigned kTile>
[[gnu::always_inline]] static inline void store(void* to, std::size_t stride) noexcept {
  QSF_AMX_SOFTWARE(software_store(kTile, to, stride))
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}

template <unsigned kTile>
[[gnu::always_inline]] static inline void zero() noexcept {
  QSF_AMX_SOFTWARE(std::memset(software.bytes[kTile], 0, sizeof(software.bytes[kTile])))
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

// C += A B with signed bytes in A and signed or unsigned ones in B; sums wrap at 32 bits.
template <unsigned kC, unsigned kA, unsigned kB>
[[gnu::always_inline]] static inline void dot_signed_signed() noexcept {
  QSF_AMX_SOFTWARE(software_dot_i8(kC, kA, kB, /*a_signed=*/true, /*b_signed=*/true))
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}
template <unsigned kC, unsigned kA, unsigned kB>
[[gnu::always_inline]] static inline void dot_signed_unsigned() noexcept {
  QSF_AMX_SOFTWARE(software_dot_i8(kC, kA, kB, /*a_signed=*/true, /*b_signed=*/false))
  __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

// C += A B in f32 with bf16 operands; subnormals count as zero in the hardware.
template <unsigned kC, unsigned kA, unsigned kB>
[[gnu::always_inline]] static inline void dot_bf16() noexcept {
  QSF_AMX_SOFTWARE(software_dot_bf16(kC, kA, kB))
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
}

#undef QSF_AMX_SOFTWARE

}  // namespace qsf::kernels::amx

#endif  // QSF_KERNELS_AMX_TILES_H_
