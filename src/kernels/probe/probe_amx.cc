// SPDX-License-Identifier: MIT
//
// Probes for AMX: products of tiles of 16 rows of 64 bytes, four sums at a time.

#include "kernels/amx_tiles.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

struct alignas(64) Tile {
  std::uint32_t words[amx::kTileRows * amx::kTileRowBytes / 4];
};

// Sums are tiles 0 to 3, factors 4 to 7, all full. `ones` is 1 in every element of the factors:
// four bytes, or two bf16.
void begin(std::uint32_t ones) noexcept {
  amx::TileShapes shapes;
  for (unsigned tile = 0; tile < amx::kTileCount; ++tile) {
    amx::set_shape(&shapes, tile, amx::kTileRows, amx::kTileRowBytes);
  }
  amx::configure(shapes);
  Tile factor;
  for (std::uint32_t& word : factor.words) word = ones;
  amx::load<4>(factor.words, amx::kTileRowBytes);
  amx::load<5>(factor.words, amx::kTileRowBytes);
  amx::load<6>(factor.words, amx::kTileRowBytes);
  amx::load<7>(factor.words, amx::kTileRowBytes);
}

void end(Tile (&sums)[4]) noexcept {
  amx::store<0>(sums[0].words, amx::kTileRowBytes);
  amx::store<1>(sums[1].words, amx::kTileRowBytes);
  amx::store<2>(sums[2].words, amx::kTileRowBytes);
  amx::store<3>(sums[3].words, amx::kTileRowBytes);
  amx::release();
}

}  // namespace

std::uint64_t probe_i8_amx(std::uint32_t n_rounds) noexcept {
  begin(0x01010101U);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    amx::dot_signed_signed<0, 4, 6>();
    amx::dot_signed_signed<1, 4, 7>();
    amx::dot_signed_signed<2, 5, 6>();
    amx::dot_signed_signed<3, 5, 7>();
  }
  Tile sums[4];
  end(sums);
  std::uint64_t total = 0;
  for (const Tile& tile : sums) {
    for (const std::uint32_t word : tile.words) total += word;
  }
  return total & 0xFFFFU;
}

std::uint64_t probe_bf16_amx(std::uint32_t n_rounds) noexcept {
  begin(0x3F803F80U);
  for (std::uint32_t round = 0; round < n_rounds; ++round) {
    amx::dot_bf16<0, 4, 6>();
    amx::dot_bf16<1, 4, 7>();
    amx::dot_bf16<2, 5, 6>();
    amx::dot_bf16<3, 5, 7>();
  }
  Tile sums[4];
  end(sums);
  std::uint64_t total = 0;
  for (const Tile& tile : sums) {
    for (const std::uint32_t word : tile.words) {
      float sum;
      std::memcpy(&sum, &word, sizeof(sum));
      total += static_cast<std::uint64_t>(sum);
    }
  }
  return total;
}

}  // namespace qsf::kernels
