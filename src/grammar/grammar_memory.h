// SPDX-License-Identifier: MIT
//
// How much memory the grammars of an engine have.

#ifndef QSF_GRAMMAR_GRAMMAR_MEMORY_H_
#define QSF_GRAMMAR_GRAMMAR_MEMORY_H_

#include <cstdint>

namespace qsf {

struct GrammarMemory {
  std::uint32_t max_grammars = 0;  // that exist at once; 0: no grammar may be made
  std::uint64_t mask_bytes = 0;    // for cached masks; at least kMinMasks of them are kept
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_GRAMMAR_MEMORY_H_
