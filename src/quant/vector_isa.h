// SPDX-License-Identifier: MIT
//
// Which registers this CPU has, for loops of the converter that are compiled for several. Included
// by what every x86-64 runs, never by what is compiled for more.

#ifndef QSF_QUANT_VECTOR_ISA_H_
#define QSF_QUANT_VECTOR_ISA_H_

namespace qsf {

inline bool has_any() noexcept {
  return true;
}

#if defined(__x86_64__)
inline bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") != 0;
}
inline bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
}
#endif

}  // namespace qsf

#endif  // QSF_QUANT_VECTOR_ISA_H_
