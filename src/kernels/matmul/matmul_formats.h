// SPDX-License-Identifier: MIT
//
// The weight formats that kernels multiply, as lists for the preprocessor: functions, tables and
// tests are made from them, so that a format is named in one place.
//
//   X(name, type, block, ...)   name as in "matmul_q4g64_i8_avx2", QuantType::type, columns of a
//                               block; then the arguments behind X, unchanged
//
// The lists differ in what precedes the code lines; a tier may leave one out.

#ifndef QSF_KERNELS_MATMUL_MATMUL_FORMATS_H_
#define QSF_KERNELS_MATMUL_MATMUL_FORMATS_H_

#define QSF_BLOCK_FORMATS(X, ...)                        \
  X(q2sg32, kQ2S, 32 __VA_OPT__(, ) __VA_ARGS__)         \
  X(q2sg64, kQ2S, 64 __VA_OPT__(, ) __VA_ARGS__)         \
  X(q2ag32, kQ2A, 32 __VA_OPT__(, ) __VA_ARGS__)         \
  X(q2ag64, kQ2A, 64 __VA_OPT__(, ) __VA_ARGS__)         \
  X(q3g32, kQ3, 32 __VA_OPT__(, ) __VA_ARGS__)           \
  X(q3g64, kQ3, 64 __VA_OPT__(, ) __VA_ARGS__)           \
  X(q4g32, kQ4, 32 __VA_OPT__(, ) __VA_ARGS__)           \
  X(q4g64, kQ4, 64 __VA_OPT__(, ) __VA_ARGS__)           \
  X(ternaryg32, kTernary, 32 __VA_OPT__(, ) __VA_ARGS__) \
  X(ternaryg64, kTernary, 64 __VA_OPT__(, ) __VA_ARGS__) \
  X(q8g32, kQ8, 32 __VA_OPT__(, ) __VA_ARGS__)           \
  X(q8g64, kQ8, 64 __VA_OPT__(, ) __VA_ARGS__)           \
  X(mxfp4, kMxfp4, 32 __VA_OPT__(, ) __VA_ARGS__)

#define QSF_TRELLIS_FORMATS(X, ...)                       \
  X(q2trellis, kQ2Trellis, 64 __VA_OPT__(, ) __VA_ARGS__) \
  X(q3trellis, kQ3Trellis, 64 __VA_OPT__(, ) __VA_ARGS__)

#define QSF_CODED_FORMATS(X, ...)                 \
  QSF_BLOCK_FORMATS(X __VA_OPT__(, ) __VA_ARGS__) \
  QSF_TRELLIS_FORMATS(X __VA_OPT__(, ) __VA_ARGS__)

// Super-blocks: scales and mins are made of two numbers each.
#define QSF_SUPER_FORMATS(X, ...)                        \
  X(q2superg32, kQ2Super, 32 __VA_OPT__(, ) __VA_ARGS__) \
  X(q2superg64, kQ2Super, 64 __VA_OPT__(, ) __VA_ARGS__) \
  X(q3superg32, kQ3Super, 32 __VA_OPT__(, ) __VA_ARGS__) \
  X(q3superg64, kQ3Super, 64 __VA_OPT__(, ) __VA_ARGS__) \
  X(q4superg32, kQ4Super, 32 __VA_OPT__(, ) __VA_ARGS__) \
  X(q4superg64, kQ4Super, 64 __VA_OPT__(, ) __VA_ARGS__) \
  X(q2k, kQ2K, 16 __VA_OPT__(, ) __VA_ARGS__)            \
  X(q3k, kQ3K, 16 __VA_OPT__(, ) __VA_ARGS__)            \
  X(q5k, kQ5K, 32 __VA_OPT__(, ) __VA_ARGS__)            \
  X(q6k, kQ6K, 16 __VA_OPT__(, ) __VA_ARGS__)            \
  X(q2table, kQ2Codebook, 16 __VA_OPT__(, ) __VA_ARGS__) \
  X(q3table, kQ3Codebook, 16 __VA_OPT__(, ) __VA_ARGS__) \
  X(q4table, kQ4Codebook, 32 __VA_OPT__(, ) __VA_ARGS__)

// Code lines alone, behind a line of row scales or nothing.
#define QSF_ROW_FORMATS(X, ...)                             \
  X(ternaryrow, kTernaryRow, 64 __VA_OPT__(, ) __VA_ARGS__) \
  X(qk256, kQk256, 64 __VA_OPT__(, ) __VA_ARGS__)

// Every format with codes, in the order of the tables.
#define QSF_QUANTISED_FORMATS(X, ...)             \
  QSF_CODED_FORMATS(X __VA_OPT__(, ) __VA_ARGS__) \
  QSF_SUPER_FORMATS(X __VA_OPT__(, ) __VA_ARGS__) \
  QSF_ROW_FORMATS(X __VA_OPT__(, ) __VA_ARGS__)

#define QSF_FLOAT_FORMATS(X, ...)            \
  X(f32, kF32, 4 __VA_OPT__(, ) __VA_ARGS__) \
  X(f16, kF16, 4 __VA_OPT__(, ) __VA_ARGS__) \
  X(bf16, kBF16, 4 __VA_OPT__(, ) __VA_ARGS__)

#endif  // QSF_KERNELS_MATMUL_MATMUL_FORMATS_H_
