// SPDX-License-Identifier: MIT
//
// AdapterReader: opens an adapter file (docs/format-adapter.md), checks everything but the values,
// and reads these pair by pair.
//
// Opening reads names and directory, at most 2.6 MB, and allocates nothing that a count in the file
// asks for before the file is known to hold it. Afterwards the sizes of all pairs are valid, so
// that memory can be planned before a value is read. Values are checked when they are read. Whether
// an adapter belongs to a model is asked of check_adapter_fits().

#ifndef QSF_FORMAT_ADAPTER_READER_H_
#define QSF_FORMAT_ADAPTER_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/adapter_spec.h"
#include "io/file.h"

namespace qsf {

struct AdapterReadOptions {
  bool verify_crc = true;  // false only in fuzzers, whose inputs would fail every checksum
};

class AdapterReader {
 public:
  // Opens and checks a file.
  // Fails  kCorrupt on a damaged file, kUnsupported on another version, kIo, and kNotFound from the
  //        path's form; the message begins with the path and names the part that is wrong
  static Result<AdapterReader> open(File file, AdapterReadOptions options = {});
  static Result<AdapterReader> open(const std::string& path, AdapterReadOptions options = {},
                                    FileOps& ops = system_file_ops());

  const File& file() const noexcept { return file_; }
  // validate(spec()) is OK.
  const AdapterSpec& spec() const noexcept { return spec_; }
  // Tells the adapters of one user apart: names, directory and the CRC of every pair.
  std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  // Bytes of the values of all pairs as they are loaded, padding included.
  std::uint64_t values_bytes() const noexcept { return values_bytes_; }

  // Reads a pair as it is stored (adapter_pair_bytes) and checks its CRC, that every value is
  // finite and that the padding is zero.
  // Shapes    A [rank, in] at byte 0, B [out, rank] at byte adapter_a_bytes, both of pair.type
  // Requires  index < spec().pairs.size(); stored.size() == adapter_pair_bytes of the pair
  // Fails     kCorrupt or kIo, naming file and pair; `stored` is undefined then
  // Threads   any number at once, with spans of their own
  Status read_pair(std::size_t index, MutableByteSpan stored) const;

 private:
  AdapterReader(File file, AdapterReadOptions options) noexcept
      : file_(std::move(file)), options_(options) {}
  Status load();
  Status parse_entries(ByteSpan front, std::uint64_t entries);

  File file_;
  AdapterReadOptions options_;
  AdapterSpec spec_;
  std::vector<std::uint64_t> offsets_;  // of the pairs
  std::vector<std::uint32_t> crcs_;
  std::uint64_t values_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// Returns whether a file begins as an adapter file does. Fails  as File::open
Result<bool> is_adapter_file(const std::string& path, FileOps& ops = system_file_ops());

}  // namespace qsf

#endif  // QSF_FORMAT_ADAPTER_READER_H_
