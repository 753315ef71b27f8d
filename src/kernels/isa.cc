// SPDX-License-Identifier: MIT
//
// Names, order and choice of the instruction-set tiers.

#include "kernels/isa.h"

#include <cstdlib>
#include <string>

namespace qsf::kernels {
namespace {

// An architecture by its first tier.
Isa family_of(Isa isa) noexcept {
  if (isa == Isa::kWasm) return Isa::kWasm;
  return isa >= Isa::kNeon && isa <= Isa::kNeonI8mm ? Isa::kNeon : Isa::kSse42;
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

// Whether the CPU has what `isa` adds to the tier below it.
bool has_tier(const CpuFeatures& cpu, Isa isa) noexcept {
  using enum CpuFeature;
  switch (isa) {
    case Isa::kScalar: return true;
    case Isa::kSse42: return has_all(cpu, {kSse42});
    case Isa::kAvx2: return has_all(cpu, {kAvx2, kFma, kF16c});
    case Isa::kAvx512: return has_all(cpu, {kAvx512F, kAvx512Bw, kAvx512Dq, kAvx512Vl});
    case Isa::kAvx512Vnni: return has_all(cpu, {kAvx512Vnni});
    case Isa::kAmx: return has_all(cpu, {kAvx512Bf16, kAmxTile, kAmxInt8, kAmxBf16});
    case Isa::kNeon: return has_all(cpu, {kNeon});
    case Isa::kNeonDot: return has_all(cpu, {kNeonDot});
    case Isa::kNeonI8mm: return has_all(cpu, {kNeonI8mm});
    case Isa::kWasm: return has_all(cpu, {kWasmSimd});
  }
  return false;
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kSse42: return "sse42";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512vnni";
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
  if (isa == Isa::kScalar) return true;
  return family_of(best) == family_of(isa) && isa <= best;
}

Isa best_isa(const CpuFeatures& cpu) noexcept {
  Isa best = Isa::kScalar;
  const Isa family = cpu.has(CpuFeature::kNeon)       ? Isa::kNeon
                     : cpu.has(CpuFeature::kWasmSimd) ? Isa::kWasm
                                                      : Isa::kSse42;
  for (const Isa isa : kAllIsas) {
    if (isa == Isa::kScalar || family_of(isa) != family) continue;
    if (!has_tier(cpu, isa)) break;
    best = isa;
  }
  return best;
}

Isa runnable_isa(const CpuFeatures& cpu) noexcept {
  const Isa best = best_isa(cpu);
#if defined(QSF_EMULATE_AMX)
  if (best == Isa::kAvx512Vnni && cpu.has(CpuFeature::kAvx512Bf16)) return Isa::kAmx;
#endif
  return best;
}

bool amx_is_native() noexcept {
  static const bool native = best_isa(host_cpu()) == Isa::kAmx;
  return native;
}

Result<Isa> choose_isa(const CpuFeatures& cpu, const char* cap) {
  const Isa best = best_isa(cpu);
  if (cap == nullptr || *cap == '\0') return best;
  auto parsed = parse_isa(cap);
  if (!parsed.has_value()) return std::move(parsed).error().with_context("QSF_ISA");
  const Isa limit = *parsed;
  if (limit != Isa::kScalar && family_of(limit) != kHostFamily) {
    return invalid_argument(
        "QSF_ISA: instruction set \"%s\" is not of this architecture, which is %s", cap, kHostName);
  }
  const Isa runnable = runnable_isa(cpu);
  return limit < runnable ? limit : limit == Isa::kAmx ? runnable : best;
}

Result<Isa> choose_host_isa() {
  return choose_isa(host_cpu(), std::getenv("QSF_ISA"));
}

}  // namespace qsf::kernels
