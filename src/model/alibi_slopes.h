// SPDX-License-Identifier: MIT
//
// The slopes of ALiBi, attention with linear biases: how fast each head forgets.

#ifndef QSF_MODEL_ALIBI_SLOPES_H_
#define QSF_MODEL_ALIBI_SLOPES_H_

#include <vector>

#include "format/model_spec.h"

namespace qsf {

// Returns a slope for each query head; to a score is added slope * (key's position - query's
// position). With n the largest power of two not above the heads, head i < n has
// 2^(-8 (i + 1) / n); the heads after them take every other slope of twice as many heads, head
// n + j has 2^(-4 (2 j + 1) / n). Empty unless positions are ALiBi's.
// Based on: Press, Smith and Lewis, "Train short, test long", 2022, and its published code.
std::vector<float> alibi_slopes(const ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_MODEL_ALIBI_SLOPES_H_
