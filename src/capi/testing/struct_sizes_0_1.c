/* SPDX-License-Identifier: MIT
 *
 * Compiled against the header of 0.1: the sizes of its structs.
 */
#include <qsf/qsf.h>

#include "capi/testing/struct_sizes_0_1.h"

const StructSizes0_1 kStructSizes0_1 = {
    .h2o_options = sizeof(qsf_h2o_options),
    .sampling = sizeof(qsf_sampling),
    .generate_options = sizeof(qsf_generate_options),
    .chat_options = sizeof(qsf_chat_options),
    .chat_send_options = sizeof(qsf_chat_send_options),
    .model_info = sizeof(qsf_model_info),
    .engine_stats = sizeof(qsf_engine_stats),
    .generate_result = sizeof(qsf_generate_result),
    .chat_result = sizeof(qsf_chat_result),
    .chat_info = sizeof(qsf_chat_info),
    .plan_info = sizeof(qsf_plan_info),
    .memory_region = sizeof(qsf_memory_region),
};
