// SPDX-License-Identifier: MIT
//
// Recomputes the checksums of a damaged file, so that tests reach the checks after the checksums.

#ifndef QSF_FORMAT_TESTING_CHECKSUM_REPAIR_H_
#define QSF_FORMAT_TESTING_CHECKSUM_REPAIR_H_

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "format/qsf_reader.h"

namespace qsf::testing_support {

// The places of all checksums of one intact file.
class ChecksumRepair {
 public:
  // Requires  `bytes` are the file that `reader` opened
  ChecksumRepair(const QsfReader& reader, ByteSpan bytes);

  // Stores the checksums of the current `bytes`: directories, sections, layer index, metadata,
  // header, in this order, because each may lie inside the next. Tile checksums stay: the weights
  // are intact. Requires  a file of the same size as the intact one
  void repair(MutableByteSpan bytes) const;

  // True for bytes that a reader reads when it opens the file.
  bool is_structure(std::size_t offset) const;
  // The ranges of such bytes.
  struct Range {
    std::size_t offset;
    std::size_t bytes;
  };
  const std::vector<Range>& structure() const noexcept { return structure_; }

 private:
  struct Checksum {
    Range covered;
    std::size_t stored_at;
  };
  std::vector<Checksum> checksums_;
  std::vector<Range> structure_;
};

}  // namespace qsf::testing_support

#endif  // QSF_FORMAT_TESTING_CHECKSUM_REPAIR_H_
