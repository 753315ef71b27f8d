// SPDX-License-Identifier: MIT

#include "quant/search/search_loops.h"

#include <cmath>
#include <cstring>
#include <iterator>

#include "base/ranges.h"
#include "quant/search/field_trials.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace qsf {
namespace {

// Which registers this CPU has.
bool has_any() noexcept {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() noexcept {
  return __builtin_cpu_supports("avx2") != 0;
}
bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0;
}
#endif

#if defined(__SSE2__)

typedef __m128i Line;  // 8 numbers of 16 bits
typedef __m128i Sums;  // a number of 32 bits for each block

Line load(const void* from) noexcept {
  return _mm_load_si128(static_cast<const __m128i*>(from));
}
void store(Line sum, std::int32_t* to) noexcept {
  _mm_store_si128(reinterpret_cast<__m128i*>(to), sum);
}
Line all(int value) noexcept {
  return _mm_set1_epi16(static_cast<short>(value));
}
// A number of each block, once for every column of a line.
Line twice(const std::int32_t* values) noexcept {
  const Line v = load(values);
  return _mm_or_si128(_mm_and_si128(v, _mm_set1_epi32(0xFFFF)), _mm_slli_epi32(v, 16));
}
Line codes_of(Line weights, Line inverse, Line offset, int shift, Line top) noexcept {
  const Line steps = _mm_add_epi16(_mm_mulhi_epi16(weights, inverse), offset);
  const Line code = _mm_sra_epi16(steps, _mm_cvtsi32_si128(shift));
  return _mm_max_epi16(_mm_min_epi16(code, top), _mm_setzero_si128());
}
Line square(Line codes) noexcept {
  return _mm_mullo_epi16(codes, codes);
}
// Adds the products of both columns.
Line add_products(Line sum, Line a, Line b) noexcept {
  return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}

#else

typedef std::int16_t Line __attribute__((vector_size(16)));
typedef std::int32_t Sums __attribute__((vector_size(16)));
typedef std::int32_t Wide __attribute__((vector_size(32)));

Line load(const std::int16_t* from) noexcept {
  Line line;
  std::memcpy(&line, from, sizeof(line));
  return line;
}
void store(Sums sum, std::int32_t* to) noexcept {
  std::memcpy(to, &sum, sizeof(sum));
}
Line all(int value) noexcept {
  return Line{} + static_cast<std::int16_t>(value);
}
Line twice(const std::int32_t* values) noexcept {
  Sums v;
  std::memcpy(&v, values, sizeof(v));
  return reinterpret_cast<Line>((v & 0xFFFF) | v << 16);
}
Line codes_of(Line weights, Line inverse, Line offset, int shift, Line top) noexcept {
  const Wide product =
      __builtin_convertvector(weights, Wide) * __builtin_convertvector(inverse, Wide);
  Line code = (__builtin_convertvector(product >> 16, Line) + offset) >> shift;
  code = code < top ? code : top;
  return code > Line{} ? code : Line{};
}
Line square(Line codes) noexcept {
  return codes * codes;
}
Sums add_products(Sums sum, Line a, Line b) noexcept {
  const Sums both_a = reinterpret_cast<Sums>(a);
  const Sums both_b = reinterpret_cast<Sums>(b);
  return sum + (both_a << 16 >> 16) * (both_b << 16 >> 16) + (both_a >> 16) * (both_b >> 16);
}

#endif

constexpr CodeSumsMethod kCodeSumsMethods[] = {
#if defined(__x86_64__)
    {.name = "avx512", .is_available = has_avx512, .run = sum_codes_avx512},
    {.name = "avx2", .is_available = has_avx2, .run = sum_codes_avx2},
#endif
    {.name = "baseline", .is_available = has_any, .run = sum_codes_baseline},
};

typedef float Quad __attribute__((vector_size(16)));
typedef std::int32_t IntQuad __attribute__((vector_size(16)));

constexpr CodebookTrialsMethod kCodebookMethods[] = {
#if defined(__x86_64__)
    {.name = "avx512", .is_available = has_avx512, .run = run_codebook_trials_avx512},
    {.name = "avx2", .is_available = has_avx2, .run = run_codebook_trials_avx2},
#endif
    {.name = "baseline", .is_available = has_any, .run = run_codebook_trials_baseline},
};

constexpr FieldTrialsMethod kFieldMethods[] = {
#if defined(__x86_64__)
    {.name = "avx512", .is_available = has_avx512, .run = run_field_trials_avx512},
    {.name = "avx2", .is_available = has_avx2, .run = run_field_trials_avx2},
#endif
    {.name = "baseline", .is_available = has_any, .run = run_field_trials_baseline},
};

// The number of levels is a template parameter: a loop over n levels takes 1.5 times as long.
template <std::size_t kLevels>
void run_trials_of(const CodebookSubBlock& block, const TrialLevels& levels,
                   CodebookTrials& trials) noexcept {
  for (std::size_t first = 0; first < kCodebookTrials; first += 4) {
    Quad scale, inverse;
    for (std::size_t lane = 0; lane < 4; ++lane) {
      scale[lane] = trials.scale[first + lane];
      inverse[lane] = scale[lane] != 0.0F ? 1.0F / scale[lane] : 0.0F;
    }
    Quad error = {}, w_level = {}, level_level = {};
    for (std::size_t i = 0; i < block.n; ++i) {
      const Quad weight = Quad{} + block.weights[i];
      const Quad cost = Quad{} + block.costs[i];
      const Quad at = weight * inverse;
      Quad level = Quad{} + levels.level[0];
      for (std::size_t j = 1; j < kLevels; ++j) {
        const IntQuad above = at > Quad{} + levels.middle[j];
        const Quad step = Quad{} + levels.step[j];
        level += reinterpret_cast<Quad>(above & reinterpret_cast<IntQuad>(step));
      }
      const Quad r = weight - scale * level;
      const Quad costed_level = cost * level;
      error += cost * r * r;
      w_level += costed_level * weight;
      level_level += costed_level * level;
    }
    for (std::size_t lane = 0; lane < 4; ++lane) {
      trials.error[first + lane] = error[lane];
      trials.w_level[first + lane] = w_level[lane];
      trials.level_level[first + lane] = level_level[lane];
    }
  }
}

}  // namespace

const CodeSumsMethod* code_sums_methods(std::size_t& n_methods) noexcept {
  n_methods = std::size(kCodeSumsMethods);
  return kCodeSumsMethods;
}

SumCodesFn best_code_sums() noexcept {
  static const SumCodesFn best = [] {
    const CodeSumsMethod* method = kCodeSumsMethods;
    while (!method->is_available()) ++method;
    return method->run;
  }();
  return best;
}

void sum_codes_baseline(const IntBlocks& blocks, IntGrid grid, const IntTrial* trials,
                        std::size_t n_trials, CodeSums* sums) noexcept {
  const Line top = all(grid.top);
  for (std::size_t i = 0; i < n_trials; ++i) {
    const Line inverse = twice(trials[i].inverse);
    const Line offset = twice(trials[i].offset);
    Sums code = {}, code_code = {}, weight_code = {};
    for (std::size_t at = 0; at < blocks.n_lines * kLineSize; at += kLineSize) {
      const Line codes = codes_of(load(blocks.weights + at), inverse, offset, grid.shift, top);
      const Line costs = load(blocks.costs + at);
      code = add_products(code, costs, codes);
      code_code = add_products(code_code, costs, square(codes));
      weight_code = add_products(weight_code, load(blocks.costed + at), codes);
    }
    store(code, sums[i].code);
    store(code_code, sums[i].code_code);
    store(weight_code, sums[i].weight_code);
  }
}

TrialLevels::TrialLevels(std::span<const std::int8_t> levels) noexcept : n(levels.size()) {
  for (std::size_t j = 0; j < n; ++j) level[j] = static_cast<float>(levels[j]);
  for (std::size_t j = 1; j < n; ++j) {
    middle[j] = 0.5F * static_cast<float>(levels[j - 1] + levels[j]);
    step[j] = static_cast<float>(levels[j] - levels[j - 1]);
  }
}

std::span<const FieldTrialsMethod> field_trials_methods() noexcept {
  return kFieldMethods;
}

RunFieldTrialsFn best_field_trials() noexcept {
  static const RunFieldTrialsFn best =
      ranges::find_if(kFieldMethods, [](const auto& method) { return method.is_available(); })->run;
  return best;
}

void run_field_trials_baseline(const CostedColumns& block, float top, std::size_t n_trials,
                               FieldTrials& trials) noexcept {
  try_fields<Quad, IntQuad>(block, top, n_trials, trials);
}

std::span<const CodebookTrialsMethod> codebook_trials_methods() noexcept {
  return kCodebookMethods;
}

RunCodebookTrialsFn best_codebook_trials() noexcept {
  static const RunCodebookTrialsFn best = ranges::find_if(kCodebookMethods, [](const auto& method) {
                                            return method.is_available();
                                          })->run;
  return best;
}

void run_codebook_trials_baseline(const CodebookSubBlock& block, const TrialLevels& levels,
                                  CodebookTrials& trials) noexcept {
  switch (levels.n) {
    case 4: return run_trials_of<4>(block, levels, trials);
    case 8: return run_trials_of<8>(block, levels, trials);
    default: return run_trials_of<16>(block, levels, trials);
  }
}

}  // namespace qsf
