// SPDX-License-Identifier: MIT
//
// Names, order and choice of the instruction-set tiers.

#include "kernels/isa.h"

#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <string>

namespace qsf::kernels {
namespace {

// The tier that `isa` builds on; kScalar of the first of an architecture, and of itself.
Isa tier_below(Isa isa) noexcept {
  switch (isa) {
    case Isa::kAvx2: return Isa::kSse42;
    case Isa::kAvxVnni: return Isa::kAvx2;
    case Isa::kAvx512: return Isa::kAvx2;
    case Isa::kAvx512Vnni: return Isa::kAvx512;
    case Isa::kAvx512Vbmi: return Isa::kAvx512Vnni;
    case Isa::kAmx: return Isa::kAvx512Vbmi;
    case Isa::kNeonDot: return Isa::kNeon;
    case Isa::kNeonI8mm: return Isa::kNeonDot;
    case Isa::kScalar:
    case Isa::kSse42:
    case Isa::kNeon:
    case Isa::kWasm: break;
  }
  return Isa::kScalar;
}

// An architecture by its first tier.
Isa family_of(Isa isa) noexcept {
  while (tier_below(isa) != Isa::kScalar) isa = tier_below(isa);
  return isa;
}

#if defined(__aarch64__)
constexpr Isa kHostFamily = Isa::kNeon;
constexpr const char* kHostName = "AArch64";
#elif defined(__wasm__)
constexpr Isa kHostFamily = Isa::kWasm;
constexpr const char* kHostName = "WebAssembly";
#else
constexpr Isa kHostFamily = Isa::kSse42;
constexpr const char* kHostName = "x86-64";
#endif

bool has_all(const CpuFeatures& cpu, std::initializer_list<CpuFeature> features) noexcept {
  for (const CpuFeature feature : features) {
    if (!cpu.has(feature)) return false;
  }
  return true;
}

// What kAvxVnni adds in this build (kernels/dot_bytes_avxvnni.h).
#if defined(QSF_EVEX_VNNI)
constexpr std::initializer_list<CpuFeature> kVnniFeatures = {CpuFeature::kAvx512Vl,
                                                             CpuFeature::kAvx512Vnni};
#else
constexpr std::initializer_list<CpuFeature> kVnniFeatures = {CpuFeature::kAvxVnni};
#endif

// Whether the CPU has what `isa` adds to the tier below it.
bool has_tier(const CpuFeatures& cpu, Isa isa) noexcept {
  using enum CpuFeature;
  switch (isa) {
    case Isa::kScalar: return true;
    case Isa::kSse42: return has_all(cpu, {kSse42});
    case Isa::kAvx2: return has_all(cpu, {kAvx2, kFma, kF16c});
    case Isa::kAvxVnni: return has_all(cpu, kVnniFeatures);
    case Isa::kAvx512: return has_all(cpu, {kAvx512F, kAvx512Bw, kAvx512Dq, kAvx512Vl});
    case Isa::kAvx512Vnni: return has_all(cpu, {kAvx512Vnni});
    case Isa::kAvx512Vbmi: return has_all(cpu, {kAvx512Vbmi});
    case Isa::kAmx: return has_all(cpu, {kAvx512Bf16, kAmxTile, kAmxInt8, kAmxBf16});
    case Isa::kNeon: return has_all(cpu, {kNeon});
    case Isa::kNeonDot: return has_all(cpu, {kNeonDot});
    case Isa::kNeonI8mm: return has_all(cpu, {kNeonI8mm});
    case Isa::kWasm: return has_all(cpu, {kWasmSimd});
  }
  return false;
}

// Whether the CPU has `isa` and all that it builds on.
bool has_tiers(const CpuFeatures& cpu, Isa isa) noexcept {
  for (; isa != Isa::kScalar; isa = tier_below(isa)) {
    if (!has_tier(cpu, isa)) return false;
  }
  return true;
}

// The highest tier up to `limit` that the CPU has.
Isa best_isa_up_to(const CpuFeatures& cpu, Isa limit) noexcept {
  Isa best = Isa::kScalar;
  for (const Isa isa : kAllIsas) {
    if (isa <= limit && has_tiers(cpu, isa)) best = isa;
  }
  return best;
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kSse42: return "sse42";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvxVnni: return "avxvnni";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512vnni";
    case Isa::kAvx512Vbmi: return "avx512vbmi";
    case Isa::kAmx: return "amx";
    case Isa::kNeon: return "neon";
    case Isa::kNeonDot: return "neondot";
    case Isa::kNeonI8mm: return "neoni8mm";
    case Isa::kWasm: return "wasm";
  }
  return "unknown";
}

Result<Isa> parse_isa(std::string_view name) {
  std::string known;
  for (const Isa isa : kAllIsas) {
    if (isa_name(isa) == name) return isa;
    if (!known.empty()) known += ", ";
    known += isa_name(isa);
  }
  return invalid_argument("instruction set \"%.*s\": unknown, expected one of %s",
                          static_cast<int>(name.size() < 64 ? name.size() : 64), name.data(),
                          known.c_str());
}

bool isa_covers(Isa best, Isa isa) noexcept {
  while (best != isa && best != Isa::kScalar) best = tier_below(best);
  return best == isa;
}

Isa best_isa(const CpuFeatures& cpu) noexcept {
  return best_isa_up_to(cpu, kAllIsas[std::size(kAllIsas) - 1]);
}

bool can_run_isa(const CpuFeatures& cpu, Isa isa) noexcept {
#if defined(QSF_EMULATE_AMX)
  if (isa == Isa::kAmx && cpu.has(CpuFeature::kAvx512Bf16)) isa = Isa::kAvx512Vbmi;
#endif
  return has_tiers(cpu, isa);
}

bool amx_is_native() noexcept {
  static const bool native = best_isa(host_cpu()) == Isa::kAmx;
  return native;
}

Result<Isa> choose_isa(const CpuFeatures& cpu, const char* cap) {
  if (cap == nullptr || *cap == '\0') return best_isa(cpu);
  auto parsed = parse_isa(cap);
  if (!parsed.has_value()) return std::move(parsed).error().with_context("QSF_ISA");
  const Isa limit = *parsed;
  if (limit != Isa::kScalar && family_of(limit) != kHostFamily) {
    return invalid_argument(
        "QSF_ISA: instruction set \"%s\" is not of this architecture, which is %s", cap, kHostName);
  }
  return can_run_isa(cpu, limit) ? limit : best_isa_up_to(cpu, limit);
}

Result<Isa> choose_host_isa() {
  return choose_isa(host_cpu(), std::getenv("QSF_ISA"));
}

}  // namespace qsf::kernels
