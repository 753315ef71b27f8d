// SPDX-License-Identifier: MIT
//
// Probes for AMX: products of tiles of 16 rows of 64 bytes, four sums at a time.

#include <immintrin.h>

#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

// Eight tiles of 16 rows of 64 bytes: four of sums, two of each factor.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

struct alignas(64) Tile {
  std::uint32_t words[256];
};

// `pattern` is 1 in every element of the factors: four bytes, or two bf16. The clobbers keep what
// is stored in memory before the tiles that are loaded from it.
void begin(const TileConfig& config, Tile& factor, std::uint32_t pattern) noexcept {
  for (std::uint32_t& word : factor.words) word = pattern;
  asm volatile("" : : "r"(&config), "r"(&factor) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, factor.words, 64);
  _tile_loadd(5, factor.words, 64);
  _tile_loadd(6, factor.words, 64);
  _tile_loadd(7, factor.words, 64);
}

void end(Tile (&sums)[4]) noexcept {
  _tile_stored(0, sums[0].words, 64);
  _tile_stored(1, sums[1].words, 64);
  _tile_stored(2, sums[2].words, 64);
  _tile_stored(3, sums[3].words, 64);
  _tile_release();
  asm volatile("" : : "r"(sums) : "memory");
}

}  // namespace

std::uint64_t probe_i8_amx(std::uint32_t n_rounds) noexcept {
  const TileConfig config;
  Tile factor;
  Tile sums[4];
  begin(config, factor, 0x01010101U);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  end(sums);
  std::uint64_t total = 0;
  for (const Tile& tile : sums) {
    for (const std::uint32_t word : tile.words) total += word;
  }
  return total & 0xFFFFU;
}

std::uint64_t probe_bf16_amx(std::uint32_t n_rounds) noexcept {
  const TileConfig config;
  Tile factor;
  Tile sums[4];
  begin(config, factor, 0x3F803F80U);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  end(sums);
  std::uint64_t total = 0;
  for (const Tile& tile : sums) {
    for (const std::uint32_t word : tile.words) {
      float sum;
      __builtin_memcpy(&sum, &word, sizeof(sum));
      total += static_cast<std::uint64_t>(sum);
    }
  }
  return total;
}

}  // namespace qsf::kernels
