// SPDX-License-Identifier: MIT
//
// Dot products of AVX-VNNI, in 256 bits; internal linkage.
//
// The encoding is that of AVX-VNNI (VEX). CPUs with AVX-512 VNNI may lack it and have the same
// instructions with the prefix of AVX-512 (EVEX). Builds for tests define QSF_EVEX_VNNI where the
// machine that builds them is such a one: only the prefix differs then, so what they test and
// measure is the code that is shipped.

#ifndef QSF_KERNELS_DOT_BYTES_AVXVNNI_H_
#define QSF_KERNELS_DOT_BYTES_AVXVNNI_H_

#include <immintrin.h>

namespace qsf::kernels {

// Adds to every 32-bit lane the four products of its unsigned bytes of `a` and signed ones of `b`.
[[gnu::always_inline]] static inline __m256i dot_bytes(__m256i sums, __m256i a,
                                                       __m256i b) noexcept {
#if defined(QSF_EVEX_VNNI)
  asm("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(a), "x"(b));
  return sums;
#else
  return _mm256_dpbusd_avx_epi32(sums, a, b);
#endif
}

// Adds to every 32-bit lane the two products of its 16-bit halves.
[[gnu::always_inline]] static inline __m256i dot_words(__m256i sums, __m256i a,
                                                       __m256i b) noexcept {
#if defined(QSF_EVEX_VNNI)
  asm("%{evex%} vpdpwssd %2, %1, %0" : "+x"(sums) : "x"(a), "x"(b));
  return sums;
#else
  return _mm256_dpwssd_avx_epi32(sums, a, b);
#endif
}

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_DOT_BYTES_AVXVNNI_H_
