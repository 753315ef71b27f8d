// SPDX-License-Identifier: MIT
//
// How fast the disk of a file reads, and how it wants to be asked: how many reads at once, of what
// size. Some disks are fastest with one or two large reads, others with sixteen, and no property
// that the system reports tells which.

#ifndef QSF_IO_DISK_PROBE_H_
#define QSF_IO_DISK_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "io/file.h"
#include "io/read_device.h"

namespace qsf {

// One way of asking, measured.
struct ProbeCell {
  unsigned depth = 0;
  std::uint32_t block_bytes = 0;
  double bytes_per_second = 0;
};

struct DiskProbe {
  // The cell that needs least memory in flight among those within a tenth of the fastest.
  ProbeCell best;
  std::vector<ProbeCell> matrix;  // in the order of measuring
  ReadPath path = ReadPath::kPread;
  bool is_direct = false;
};

struct DiskProbeOptions {
  ReadDeviceOptions device;  // its depth is not used
  // false: depths at blocks of 1 MiB and of 256 KiB, three times each, the best counting: about
  // half a second. true: every combination for half a second, about 10 seconds.
  bool thorough = false;
  std::uint64_t cell_ns = 0;  // of one combination; 0: 25 ms a round, or 500 ms when thorough
};

// Enough for every combination that is measured.
inline constexpr std::uint64_t kProbeMemoryBytes = std::uint64_t{64} << 20;

// Measures by reading the file itself, from some place on, another each time, and around.
// Combinations that the memory or the file is too small for, or the disk too slow, are left out.
// Requires  `memory` begins at a multiple of kDirectAlign
// Fails     kInvalidArgument when the file or the memory is below 64 KiB; as reading does
Result<DiskProbe> probe_disk(const File& file, const DiskProbeOptions& options,
                             MutableByteSpan memory);

// Measures one way of asking alone, as `wished` has it, for `options.cell_ns`, and returns the
// bytes a second: what a program reaches can be set against it again and again. Requires  `memory`
// begins at a multiple of kDirectAlign and holds depth * block_bytes of `wished` Fails
// kInvalidArgument when it or the file is too small for that; as reading does
Result<double> measure_disk(const File& file, const DiskProbeOptions& options,
                            const ProbeCell& wished, MutableByteSpan memory);

// Returns the folder where measurements are remembered, $XDG_CACHE_HOME/qsf or ~/.cache/qsf; empty
// when neither variable is set.
std::string default_probe_folder();

// A smaller file says too little of its disk to be remembered.
inline constexpr std::uint64_t kLeastRememberedBytes = std::uint64_t{64} << 20;

// Returns what is remembered in `folder` of the file's disk and path, or else measures and
// remembers that. What cannot be read there is measured again, and what cannot be written is
// forgotten. An empty folder remembers nothing. Requires, Fails  as probe_disk
Result<DiskProbe> remembered_disk_probe(const File& file, const DiskProbeOptions& options,
                                        MutableByteSpan memory, const std::string& folder);

// The text of the file that remembers a measurement, and back; kCorrupt when it is not one.
std::string disk_probe_text(const DiskProbe& probe);
Result<DiskProbe> parse_disk_probe(const std::string& text);

}  // namespace qsf

#endif  // QSF_IO_DISK_PROBE_H_
