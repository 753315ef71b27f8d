// SPDX-License-Identifier: MIT
//
// The tables of probes and the choice from them.

#include "kernels/probe/probe.h"

#include "base/check.h"
#include "kernels/probe/probe_variants.h"

namespace qsf::kernels {
namespace {

// Operations of a round: chains x lanes x products that a lane adds up x 2.
constexpr ArithmeticProbe kArithmetic[] = {
#if defined(__x86_64__)
    {"probe_i8_amx", Isa::kAmx, ProbeKind::kInt8, 4 * 256 * 64 * 2, probe_i8_amx},
    {"probe_bf16_amx", Isa::kAmx, ProbeKind::kBf16, 4 * 256 * 32 * 2, probe_bf16_amx},
    {"probe_i8_avx512vnni", Isa::kAvx512Vnni, ProbeKind::kInt8, 12 * 16 * 4 * 2,
     probe_i8_avx512vnni},
    {"probe_i8_avx512", Isa::kAvx512, ProbeKind::kInt8, 12 * 32 * 2 * 2, probe_i8_avx512},
    {"probe_f32_avx512", Isa::kAvx512, ProbeKind::kF32, 12 * 16 * 2, probe_f32_avx512},
    {"probe_i8_avxvnni", Isa::kAvxVnni, ProbeKind::kInt8, 12 * 8 * 4 * 2, probe_i8_avxvnni},
    {"probe_i8_avx2", Isa::kAvx2, ProbeKind::kInt8, 12 * 16 * 2 * 2, probe_i8_avx2},
    {"probe_f32_avx2", Isa::kAvx2, ProbeKind::kF32, 12 * 8 * 2, probe_f32_avx2},
    {"probe_i8_sse42", Isa::kSse42, ProbeKind::kInt8, 12 * 8 * 2 * 2, probe_i8_sse42},
#elif defined(__aarch64__)
    {"probe_i8_neoni8mm", Isa::kNeonI8mm, ProbeKind::kInt8, 12 * 4 * 8 * 2, probe_i8_neoni8mm},
    {"probe_i8_neondot", Isa::kNeonDot, ProbeKind::kInt8, 12 * 4 * 4 * 2, probe_i8_neondot},
    {"probe_i8_neon", Isa::kNeon, ProbeKind::kInt8, 12 * 8 * 2, probe_i8_neon},
    {"probe_f32_neon", Isa::kNeon, ProbeKind::kF32, 12 * 4 * 2, probe_f32_neon},
#elif defined(__wasm_simd128__)
    {"probe_i8_wasm", Isa::kWasm, ProbeKind::kInt8, 12 * 8 * 2, probe_i8_wasm},
#endif
    {"probe_i8_scalar", Isa::kScalar, ProbeKind::kInt8, 8 * 2, probe_i8_scalar},
    {"probe_f32_scalar", Isa::kScalar, ProbeKind::kF32, 8 * 2, probe_f32_scalar},
};

constexpr ReadProbe kRead[] = {
#if defined(__x86_64__)
    {"probe_read_avx512", Isa::kAvx512, probe_read_avx512},
    {"probe_read_avx2", Isa::kAvx2, probe_read_avx2},
#elif defined(__aarch64__)
    {"probe_read_neon", Isa::kNeon, probe_read_neon},
#endif
    {"probe_read_scalar", Isa::kScalar, probe_read_scalar},
};

}  // namespace

std::string_view probe_kind_name(ProbeKind kind) noexcept {
  switch (kind) {
    case ProbeKind::kInt8: return "int8";
    case ProbeKind::kF32: return "f32";
    case ProbeKind::kBf16: return "bf16";
  }
  return "unknown";
}

std::span<const ArithmeticProbe> arithmetic_probes() noexcept {
  return kArithmetic;
}

std::span<const ReadProbe> read_probes() noexcept {
  return kRead;
}

const ArithmeticProbe* find_arithmetic_probe(ProbeKind kind, Isa best) noexcept {
  for (const ArithmeticProbe& probe : kArithmetic) {
    if (probe.kind == kind && isa_covers(best, probe.isa)) return &probe;
  }
  return nullptr;
}

const ReadProbe& select_read_probe(Isa best) noexcept {
  for (const ReadProbe& probe : kRead) {
    if (isa_covers(best, probe.isa)) return probe;
  }
  QSF_CHECK(!"a table of probes without a scalar entry");
  return kRead[0];
}

}  // namespace qsf::kernels
