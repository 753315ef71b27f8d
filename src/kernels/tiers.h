// SPDX-License-Identifier: MIT
//
// The tiers that the smaller kernels come in on this architecture, best first; for their tables.
//
// There is none for SSE4.2. The scalar sources compiled with -msse4.2 ran, on a Zen 4, as fast as
// with SSE2 but for the narrowing to f16 and bf16 (1.8 and 2.8 times) and the quantisation of
// rows (1.3 times), which is little of a token's time.

#ifndef QSF_KERNELS_TIERS_H_
#define QSF_KERNELS_TIERS_H_

// kNorm becomes kNormAvx512, kNormAvx2, kNormScalar: constants that the tiers' files define.
#if defined(__x86_64__)
#define QSF_TIERS_OF(family) family##Avx512, family##Avx2, family##Scalar
#elif defined(__aarch64__)
#define QSF_TIERS_OF(family) family##Neon, family##Scalar
#else
#define QSF_TIERS_OF(family) family##Scalar
#endif

#endif  // QSF_KERNELS_TIERS_H_
