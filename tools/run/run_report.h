// SPDX-License-Identifier: MIT
//
// What qsf-run tells about a run, on standard error.

#ifndef QSF_TOOLS_RUN_RUN_REPORT_H_
#define QSF_TOOLS_RUN_RUN_REPORT_H_

#include <cstdint>
#include <string>

#include "qsf/qsf.h"

namespace qsf_tools {

// Prints the model, every region of the memory plan, kernels and threads.
void print_plan(QSFEngine* engine);

// Prints the short summary: tokens and speed, memory and loading.
void print_summary(QSFEngine* engine, const qsf_generate_result& result, std::uint64_t seed);

// Prints memory, reading and where the weights are, the end of the summary.
void print_memory(QSFEngine* engine);

// Returns what a line of progress says of the process's memory: ", 198.2 MB in memory".
std::string memory_now(QSFEngine* engine);

// Prints what one answer of a chat took.
void print_answer(const qsf_chat_result& result);

// Prints where the time went.
void print_times(QSFEngine* engine, const qsf_generate_result& result);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_REPORT_H_
