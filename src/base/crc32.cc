// SPDX-License-Identifier: MIT
//
// Chooses the CPU's best way, and the one that runs everywhere: eight tables, eight bytes a step
// ("slicing by 8").
//
// Based on: Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC
// generation", 2008.

#include "base/crc32.h"

#include <array>

#include "base/crc32_methods.h"

namespace qsf {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() noexcept {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][i] = crc;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    for (std::size_t t = 1; t < 8; ++t) {
      const std::uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

bool always() noexcept {
  return true;
}

constexpr Crc32Method kMethods[] = {
    {.name = "clmul", .is_available = has_crc32_clmul, .run = crc32_clmul},
    {.name = "instruction", .is_available = has_crc32_instruction, .run = crc32_instruction},
    {.name = "tables", .is_available = always, .run = crc32_tables},
};

Crc32Fn choose_method() noexcept {
  const Crc32Method* method = kMethods;
  while (!method->is_available()) ++method;
  return method->run;
}

}  // namespace

std::span<const Crc32Method> crc32_methods() noexcept {
  return kMethods;
}

std::uint32_t crc32_tables(ByteSpan bytes, std::uint32_t crc) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(bytes, i) ^ crc;
    crc = kTables[7][word & 0xFFU] ^ kTables[6][(word >> 8) & 0xFFU] ^
          kTables[5][(word >> 16) & 0xFFU] ^ kTables[4][(word >> 24) & 0xFFU] ^
          kTables[3][(word >> 32) & 0xFFU] ^ kTables[2][(word >> 40) & 0xFFU] ^
          kTables[1][(word >> 48) & 0xFFU] ^ kTables[0][word >> 56];
  }
  for (; i < bytes.size(); ++i) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 0xFFU];
  }
  return crc;
}

std::uint32_t crc32(ByteSpan bytes, std::uint32_t crc) noexcept {
  static const Crc32Fn run = choose_method();
  return ~run(bytes, ~crc);
}

}  // namespace qsf
