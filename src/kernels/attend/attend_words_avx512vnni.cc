// SPDX-License-Identifier: MIT
//
// Attention of prompts with products of 16-bit integers, AVX-512 VNNI.

#include "kernels/attend/attend_lanes_avx512.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/attend/attend_words.h"

namespace qsf::kernels {
namespace {

struct VnniLanes : attend_page_internal::Avx512Lanes {
  [[gnu::always_inline]] static Ints dot_words(Ints sum, Ints a, Ints b) noexcept {
    return _mm512_dpwssd_epi32(sum, a, b);
  }
};

}  // namespace

void attend_page_words_avx512vnni(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page_words<VnniLanes>(args);
}

}  // namespace qsf::kernels
