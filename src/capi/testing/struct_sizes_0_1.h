/* SPDX-License-Identifier: MIT
 *
 * The sizes of 0.1's structs, for tests that see another header themselves.
 */
#ifndef QSF_CAPI_TESTING_STRUCT_SIZES_0_1_H_
#define QSF_CAPI_TESTING_STRUCT_SIZES_0_1_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StructSizes0_1 {
  size_t h2o_options, sampling, generate_options, chat_options, chat_send_options, model_info,
      engine_stats, generate_result, chat_result, chat_info, plan_info, memory_region;
} StructSizes0_1;
extern const StructSizes0_1 kStructSizes0_1;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_CAPI_TESTING_STRUCT_SIZES_0_1_H_ */
