// SPDX-License-Identifier: MIT
//
// Attention over one page, AVX-512: blocks of 6 queries by 64 columns fill 24 of 32 registers.

#include "kernels/attend/attend_lanes_avx512.h"
#include "kernels/attend/attend_page.h"
#include "kernels/attend/attend_query_tile_page.h"
#include "kernels/attend/attend_variants.h"
#include "kernels/attend/attend_words.h"

namespace qsf::kernels {

void attend_page_avx512(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page<attend_page_internal::Avx512Lanes>(args);
}
void attend_load_queries_words_avx512(const AttendQueryArgs& args) noexcept {
  attend_page_internal::load_query_words<attend_page_internal::Avx512Lanes>(args);
}
void attend_page_words_avx512(const AttendPageArgs& args) noexcept {
  attend_page_internal::attend_page_words<attend_page_internal::Avx512Lanes>(args);
}
void attend_query_tile_scores_avx512(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_scores<attend_page_internal::Avx512Lanes>(args);
}
void attend_query_tile_normalise_avx512(const AttendNormaliseArgs& args) noexcept {
  attend_page_internal::query_tile_normalise<attend_page_internal::Avx512Lanes>(args);
}
void attend_query_tile_values_avx512(const AttendQueryTileArgs& args) noexcept {
  attend_page_internal::query_tile_values<attend_page_internal::Avx512Lanes>(args);
}

}  // namespace qsf::kernels
