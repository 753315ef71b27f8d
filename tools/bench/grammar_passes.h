// SPDX-License-Identifier: MIT

#ifndef QSF_TOOLS_BENCH_GRAMMAR_PASSES_H_
#define QSF_TOOLS_BENCH_GRAMMAR_PASSES_H_

namespace qsf_tools {

// Prints the times of passes of 16 sequences with grammars and without, in turns.
// Returns  an exit status
int time_passes(const char* model);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_GRAMMAR_PASSES_H_
