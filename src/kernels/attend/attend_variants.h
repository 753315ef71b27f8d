// SPDX-License-Identifier: MIT
//
// The functions behind the tables of attention kernels; for those tables and for tests that spoil
// them.

#ifndef QSF_KERNELS_ATTEND_ATTEND_VARIANTS_H_
#define QSF_KERNELS_ATTEND_ATTEND_VARIANTS_H_

#include "kernels/attend/attend.h"
#include "kernels/attend/attend_query_tile.h"

namespace qsf::kernels {

// Scales queries, rotates them for quantised keys and packs them as rows of kv_columns floats: what
// every f32 tier reads.
void attend_load_queries_f32(const AttendQueryArgs& args) noexcept;

// For keys that attend_words.h multiplies, the same as whole numbers and a scale each; for others
// as above.
void attend_load_queries_words_avx2(const AttendQueryArgs& args) noexcept;
void attend_load_queries_words_avx512(const AttendQueryArgs& args) noexcept;

// The same, rounded to bf16, in rows padded to whole tiles.
void attend_load_queries_amx(const AttendQueryArgs& args) noexcept;

void attend_page_scalar(const AttendPageArgs& args) noexcept;
void attend_page_avx2(const AttendPageArgs& args) noexcept;
void attend_page_avx512(const AttendPageArgs& args) noexcept;
void attend_page_amx(const AttendPageArgs& args) noexcept;
void attend_page_neon(const AttendPageArgs& args) noexcept;
void attend_page_words_avx2(const AttendPageArgs& args) noexcept;
void attend_page_words_avx512(const AttendPageArgs& args) noexcept;
void attend_page_words_avx512vnni(const AttendPageArgs& args) noexcept;

void attend_query_tile_scores_scalar(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_normalise_scalar(const AttendNormaliseArgs& args) noexcept;
void attend_query_tile_values_scalar(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_scores_avx2(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_normalise_avx2(const AttendNormaliseArgs& args) noexcept;
void attend_query_tile_values_avx2(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_scores_avx512(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_normalise_avx512(const AttendNormaliseArgs& args) noexcept;
void attend_query_tile_values_avx512(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_scores_amx(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_values_amx(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_scores_neon(const AttendQueryTileArgs& args) noexcept;
void attend_query_tile_normalise_neon(const AttendNormaliseArgs& args) noexcept;
void attend_query_tile_values_neon(const AttendQueryTileArgs& args) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_ATTEND_ATTEND_VARIANTS_H_
