// SPDX-License-Identifier: MIT
//
// The read speed of the disk of a file, and the number and size of reads in flight that reach it.
// Some disks are fastest with one or two large reads, others with sixteen; the system does not
// report it, so it is measured.

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

// One measured combination of depth and block size.
struct ProbeCell {
  unsigned depth = 0;
  std::uint32_t block_bytes = 0;
  double bytes_per_second = 0;
};

struct DiskProbe {
  // Of the cells within a tenth of the fastest, the one with the fewest bytes in flight.
  ProbeCell best;
  std::vector<ProbeCell> matrix;  // in the order of measuring
  ReadPath path = ReadPath::kPread;
  bool is_direct = false;
};

struct DiskProbeOptions {
  ReadDeviceOptions device;  // its depth is not used
  // false: depths at blocks of 1 MiB and of 256 KiB, the best of three times each: about half a
  // second. true: every combination for half a second, about 10 seconds.
  bool thorough = false;
  std::uint64_t cell_ns = 0;  // of one combination; 0: 25 ms a round, or 500 ms when thorough
};

// Enough for every combination that is measured.
inline constexpr std::uint64_t kProbeMemoryBytes = std::uint64_t{64} << 20;

// Measures by reading the file itself, from a different place each time, into all of the memory in
// turn, as a ring is written. Leaves out combinations for which the memory or the file is too small
// or the disk too slow.
// Requires  `memory` begins at a multiple of kDirectAlign
// Fails     kInvalidArgument when the file or the memory is below 64 KiB; as reading does
Result<DiskProbe> probe_disk(const File& file, const DiskProbeOptions& options,
                             MutableByteSpan memory);

// Measures the one combination `wished` for `options.cell_ns` and returns its bytes per second, for
// comparison with the rate of a program.
// Requires  `memory` begins at a multiple of kDirectAlign and holds depth * block_bytes of `wished`
// Fails     kInvalidArgument when the memory or the file is too small; as reading does
Result<double> measure_disk(const File& file, const DiskProbeOptions& options,
                            const ProbeCell& wished, MutableByteSpan memory);

// Returns the folder for saved measurements, $XDG_CACHE_HOME/qsf or ~/.cache/qsf; empty when
// neither variable is set.
std::string default_probe_folder();

// Measurements with smaller files are not saved: they say too little about the disk.
inline constexpr std::uint64_t kLeastRememberedBytes = std::uint64_t{64} << 20;

// Returns the measurement of the file's disk and read path that is saved in `folder`; measures and
// saves it when there is none. Failures to read or write the folder are ignored. With an empty
// folder nothing is saved. Requires, Fails  as probe_disk
Result<DiskProbe> remembered_disk_probe(const File& file, const DiskProbeOptions& options,
                                        MutableByteSpan memory, const std::string& folder);

// The text of a saved measurement, and back. Fails  kCorrupt when the text is not one
std::string disk_probe_text(const DiskProbe& probe);
Result<DiskProbe> parse_disk_probe(const std::string& text);

}  // namespace qsf

#endif  // QSF_IO_DISK_PROBE_H_
