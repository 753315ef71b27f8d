// SPDX-License-Identifier: MIT
//
// AdapterSet: the adapters of an engine in memory, and what each of them adds to which matrix.
//
// Values keep the type of the file (format/adapter_spec.h). B is laid out anew in groups of 16
// rows, as products compute their outputs.

#ifndef QSF_MODEL_ADAPTER_SET_H_
#define QSF_MODEL_ADAPTER_SET_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "format/adapter_reader.h"
#include "format/qsf_reader.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace qsf {

class AdapterSet {
 public:
  // Without adapters.
  AdapterSet() = default;

  // Bytes of the region that load() wants, those of its tables, and the largest rank of any pair.
  static std::uint64_t region_bytes(std::span<const AdapterReader> adapters) noexcept;
  static std::uint64_t heap_bytes(std::span<const AdapterReader> adapters) noexcept;
  static std::uint32_t max_rank(std::span<const AdapterReader> adapters) noexcept;

  // Reads all adapters into `region`, which outlives the set.
  // Requires  check_adapter_fits() of each is OK; region.size() >= region_bytes(), aligned to
  //           kAdapterAlign
  // Fails     as AdapterReader::read_pair
  static Result<AdapterSet> load(std::span<const AdapterReader> adapters, const QsfReader& base,
                                 MutableByteSpan region);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(adapters_.size()); }
  std::uint32_t max_rank() const noexcept { return max_rank_; }
  // Returns what an adapter adds to a matrix, perhaps nothing.
  // Requires  adapter < size()
  // Threads   any
  LowRankPair find(std::uint32_t adapter, const MatrixRef& matrix) const noexcept;

 private:
  struct Entry {
    MatrixRef matrix;
    LowRankPair pair;
  };

  std::vector<std::vector<Entry>> adapters_;  // in the order of section and tensor
  std::uint32_t max_rank_ = 0;
};

}  // namespace qsf

#endif  // QSF_MODEL_ADAPTER_SET_H_
