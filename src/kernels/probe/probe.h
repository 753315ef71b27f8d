// SPDX-License-Identifier: MIT
//
// Loops that do nothing but keep one resource of the machine busy: the limits that measurements of
// other kernels are set against.
//
//   arithmetic  one kind of instruction on registers alone, in as many independent chains as hide
//               its latency
//   read        a sweep over memory that adds up its 64-bit words, in one or several streams
//
// Results are defined, so that tests can tell a loop that does its work from one that a compiler
// has optimised away. Implementations stand beside this header, one file an instruction set; the
// tables in probe.cc are the only list of them.

#ifndef QSF_KERNELS_PROBE_PROBE_H_
#define QSF_KERNELS_PROBE_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/tier.h"

namespace qsf::kernels {

// What an arithmetic loop does: products of int8 added up as integers, of f32 and of bf16 added up
// as f32.
enum class ProbeKind : std::uint8_t { kInt8, kF32, kBf16 };

// Returns "int8", "f32" or "bf16".
std::string_view probe_kind_name(ProbeKind kind) noexcept;

struct ArithmeticProbe {
  const char* name;  // "probe_i8_avx512vnni"
  Isa isa;
  ProbeKind kind;
  // Products and sums of one round, each counted as one operation.
  std::uint32_t operations;
  // Runs n_rounds and returns the sum of all products modulo 2^16 (int8) or exactly (floats): each
  // product is one. Requires  n_rounds <= 2^24 / 64, so that every sum of f32 is exact
  // Threads  any
  std::uint64_t (*run)(std::uint32_t n_rounds) noexcept;
};

inline constexpr std::uint32_t kMaxProbeRounds = (1U << 24) / 64;

struct ReadProbeArgs {
  const std::byte* memory;       // 64-byte aligned
  std::size_t n_bytes;           // a multiple of 64 * n_streams
  std::uint32_t n_streams;       // 1, 4 or 8: neighbouring parts that are walked side by side
  std::uint32_t prefetch_bytes;  // how far ahead of each stream; 0: not at all
};

struct ReadProbe {
  const char* name;  // "probe_read_avx512"
  Isa isa;
  // Returns the sum of all 64-bit words modulo 2^64.
  std::uint64_t (*run)(const ReadProbeArgs& args) noexcept;
};

// Every loop in this binary, best instruction set first, scalar last. Threads  any
std::span<const ArithmeticProbe> arithmetic_probes() noexcept;
std::span<const ReadProbe> read_probes() noexcept;

// Returns the first loop of that kind that `best` covers, null for kBf16 without matrix units.
const ArithmeticProbe* find_arithmetic_probe(ProbeKind kind, Isa best) noexcept;
const ReadProbe& select_read_probe(Isa best) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_PROBE_PROBE_H_
