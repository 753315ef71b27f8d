// SPDX-License-Identifier: MIT
//
// Writes adapter files (docs/format-adapter.md), one pair of matrices after the other: the largest
// pair of an adapter is in memory, never the whole.

#ifndef QSF_FORMAT_ADAPTER_WRITER_H_
#define QSF_FORMAT_ADAPTER_WRITER_H_

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"
#include "format/adapter_spec.h"
#include "io/file_ops.h"

namespace qsf {

// The values of an adapter, in the order of AdapterSpec::pairs. Readers of other formats implement
// it.
class AdapterValues {
 public:
  virtual ~AdapterValues() = default;

  // Reads both matrices of a pair.
  // Shapes    a [rank, in], b [out, rank]
  // Requires  index < number of pairs
  // Fails     kCorrupt on a value that is not finite, kUnsupported on a type that is not read, kIo
  // Threads   any number at once
  virtual Status read_pair(std::size_t index, std::span<float> a, std::span<float> b) const = 0;
};

// Writes an adapter. The types in `spec` are not looked at: a pair is stored as f16 where that is
// exact, as f32 otherwise. The same adapter gives the same bytes.
// Guarantees  on failure `path` is as it was
// Fails       kInvalidArgument as validate(spec), and on a value that is not finite; as
//             read_pair(); kIo
Status write_adapter_file(const std::string& path, AdapterSpec spec, const AdapterValues& values,
                          FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_FORMAT_ADAPTER_WRITER_H_
