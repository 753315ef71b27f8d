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

// Returns the highest tier that the CPU has, with all that it builds on.
Isa best_isa(const CpuFeatures& cpu) noexcept;

// Returns whether this build can run code of tier `isa` there: the CPU has it and all that it
// builds on, or tests emulate its tiles (amx_tiles.h).
bool can_run_isa(const CpuFeatures& cpu, Isa isa) noexcept;

// Returns best_isa(cpu), capped by `cap`, the value of QSF_ISA: null or empty means no cap. With a
// cap it is the highest tier up to that one that the CPU has, so one above the best changes
// nothing, except that "amx" chooses emulated tiles where there are any.
// Fails  kInvalidArgument on an unknown name or a tier of another architecture
Result<Isa> choose_isa(const CpuFeatures& cpu, const char* cap);

// Returns choose_isa for this CPU and the QSF_ISA of this process's environment.
Result<Isa> choose_host_isa();

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ISA_H_
