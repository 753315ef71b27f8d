// SPDX-License-Identifier: MIT
//
// The calls of FileOps that the POSIX systems share, for the class of each system. What stays
// abstract has no portable call: files without a name, opening again, advice, space, rings.

#ifndef QSF_IO_POSIX_FILE_OPS_H_
#define QSF_IO_POSIX_FILE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/file_ops.h"

namespace qsf {

// Returns a negative errno if `result` is negative, else `result`.
int or_errno(int result) noexcept;

// Returns the directory that a file of that name lies in.
std::string directory_of(const std::string& path);

// Whether the system can count so far in a file.
bool is_file_offset(std::uint64_t offset) noexcept;

class PosixFileOps : public FileOps {
 public:
  int open_read(const std::string& path) override;
  int create_new(const std::string& path) override;
  int create_scratch(const std::string& path) override;
  PathKind path_kind(const std::string& path) override;
  int check_regular(int handle) override;
  std::int64_t file_bytes(int handle) override;
  int map(int handle, std::uint64_t bytes, ByteSpan& mapping) override;
  void unmap(ByteSpan mapping) override;
  int advise_mapping(ByteSpan part, FileAdvice advice) override;
  std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) override;
  std::int64_t write_at(int handle, ByteSpan from, std::uint64_t offset) override;
  int resize(int handle, std::uint64_t bytes) override;
  int sync(int handle) override;
  int close(int handle) override;
  int rename(const std::string& from, const std::string& to) override;
  int remove(const std::string& path) override;
  int sync_directory_of(const std::string& path) override;
};

}  // namespace qsf

#endif  // QSF_IO_POSIX_FILE_OPS_H_
