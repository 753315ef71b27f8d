// SPDX-License-Identifier: MIT
//
// How the output head is read where a file has a sketch of it, and what that saved.

#ifndef QSF_MODEL_HEAD_MODE_H_
#define QSF_MODEL_HEAD_MODE_H_

#include <cstdint>

namespace qsf {

enum class HeadMode : std::uint8_t {
  kFull,
  kCertified,   // what a draw may take is found with certainty: its bits are those of kFull
  kApproximate  // draws take the probable tokens alone
};

// Sums since the start, of rows that generated.
struct HeadCounts {
  std::uint64_t n_searched = 0;      // rows
  std::uint64_t n_full = 0;          // rows whose head was read in full
  std::uint64_t bytes_read = 0;      // for searched rows, of sketch and head
  std::uint64_t bytes_replaced = 0;  // of the full head, for the same rows
};

}  // namespace qsf

#endif  // QSF_MODEL_HEAD_MODE_H_
