// SPDX-License-Identifier: MIT
//
// The choice of an instruction-set tier.

#ifndef QSF_KERNELS_ISA_H_
#define QSF_KERNELS_ISA_H_

#include <string_view>

#include "base/result.h"
#include "kernels/tier.h"
#include "platform/cpu.h"

namespace qsf::kernels {

// Returns the tier of that name. Fails  kInvalidArgument, naming the tiers there are.
Result<Isa> parse_isa(std::string_view name);

// Returns the highest tier all of whose features, and those of every lower tier, are there.
Isa best_isa(const CpuFeatures& cpu) noexcept;

// Returns the highest tier whose code this build can run there: best_isa(cpu), or kAmx where tests
// emulate its tiles (amx_tiles.h).
Isa runnable_isa(const CpuFeatures& cpu) noexcept;

// Returns best_isa(cpu), capped by `cap`, the value of QSF_ISA: null or empty means no cap.
// Fails  kInvalidArgument on an unknown name or a tier of another architecture. A cap above what
//        the CPU has changes nothing, except that "amx" chooses emulated tiles where there are any.
Result<Isa> choose_isa(const CpuFeatures& cpu, const char* cap);

// Returns choose_isa for this CPU and the QSF_ISA of this process's environment.
Result<Isa> choose_host_isa();

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ISA_H_
