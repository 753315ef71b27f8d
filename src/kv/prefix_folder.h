// SPDX-License-Identifier: MIT
//
// PrefixFolder: pages that left the prefix tree, in files of a bounded folder.
//
// A page is found by its path: a hash, under a secret of this object, of the caller's key and of
// all tokens up to the page's last one. A file has a header with that path and a hash of the whole
// file under the same secret: a file that was cut, changed or exchanged is refused. Neither keys
// nor tokens are in it. Files outlive neither this object nor its secret.
//
// There are as many files as the folder has room for. The one that was used longest ago is removed
// before another is written. Between two calls of begin_pass() a bounded number of pages is
// written; pages beyond it are dropped, and computed again if they are wanted.
//
// After open() nothing is allocated but for errors.

#ifndef QSF_KV_PREFIX_FOLDER_H_
#define QSF_KV_PREFIX_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/log.h"
#include "base/result.h"
#include "base/siphash.h"
#include "base/status.h"
#include "io/file_ops.h"

namespace qsf {

// A key and a text from its start.
using PrefixPath = SipHash;

// Counts since open(), but for what is held now.
struct PrefixFolderStats {
  std::uint64_t n_files = 0;  // held now
  std::uint64_t n_bytes = 0;  // the same
  std::uint64_t n_written_bytes = 0;
  std::uint64_t n_read_bytes = 0;
  std::uint64_t n_removed = 0;       // files, for others
  std::uint64_t n_dropped = 0;       // pages that were too many for a pass
  std::uint64_t n_write_errors = 0;  // pages lost by them
  std::uint64_t n_read_errors = 0;   // the same, damaged files included
};

struct PrefixFolderOptions {
  std::string folder;  // exists, and is nobody else's: files of the same names are replaced
  std::uint64_t max_bytes = 0;
  bool drop_cached = false;  // leave no file in the page cache, which a budget counts
  LogSink log;
};

// Threads  one at a time
class PrefixFolder {
 public:
  static constexpr std::uint32_t kMaxFiles = 65'536;
  static constexpr std::size_t kHeaderBytes = 64;
  // Pages that are written, and pages that are read, in one pass: as many as its rows fill by
  // default.
  static constexpr std::uint32_t kPagesPerPass = 8;

  static std::uint32_t n_files(std::uint64_t max_bytes, std::uint64_t page_bytes) noexcept;
  static std::uint64_t region_bytes(std::uint64_t max_bytes, std::uint64_t page_bytes) noexcept;

  // Shapes    pages [n][page_bytes]: the pages of the KV cache; region [region_bytes()]
  // Requires  pages, region (64-byte aligned) and ops outlive the object; n_files() is not 0
  // Fails     kIo where the folder is none, or the system has no random bytes
  static Result<std::unique_ptr<PrefixFolder>> open(PrefixFolderOptions options,
                                                    MutableByteSpan pages, std::uint64_t page_bytes,
                                                    MutableByteSpan region, FileOps& ops);
  // Removes all files.
  ~PrefixFolder();
  PrefixFolder(const PrefixFolder&) = delete;
  PrefixFolder& operator=(const PrefixFolder&) = delete;

  // The path of a key without tokens, and with the tokens of one page more.
  PrefixPath path_of(std::string_view key) const noexcept;
  PrefixPath path_of(const PrefixPath& before,
                     std::span<const std::uint32_t> tokens) const noexcept;

  bool holds(const PrefixPath& path) const noexcept { return find(path) != kNone; }

  // Lets pages be written again.
  void begin_pass() noexcept { n_written_in_pass_ = 0; }
  // Keeps a page that leaves memory; one that is held already is noted as used. Errors are logged
  // and counted.
  void write(const PrefixPath& path, std::uint32_t page) noexcept;
  // Reads a page back. A file that cannot be used is removed, logged and counted.
  // Returns whether the page has its bytes; else it is as before, or zero.
  bool read(const PrefixPath& path, std::uint32_t page) noexcept;

  PrefixFolderStats stats() const noexcept;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // The file of a number.
  struct File {
    PrefixPath path;
    std::uint32_t newer;  // in the order of use; of unused ones: the next unused one
    std::uint32_t older;
    std::uint32_t next;  // in its bucket
  };

  PrefixFolder(PrefixFolderOptions options, MutableByteSpan pages, std::uint64_t page_bytes,
               MutableByteSpan region, const SipKey& secret, FileOps& ops);

  MutableByteSpan bytes_of(std::uint32_t page) const noexcept;
  std::uint32_t& bucket_of(const PrefixPath& path) const noexcept;
  std::uint32_t find(const PrefixPath& path) const noexcept;
  std::uint32_t take_number() noexcept;
  void link(std::uint32_t number) noexcept;
  void unlink(std::uint32_t number) noexcept;
  void touch(std::uint32_t number) noexcept;
  void forget(std::uint32_t number) noexcept;
  const std::string& name_of(std::uint32_t number) noexcept;
  void make_header(const PrefixPath& path, ByteSpan page, std::span<std::byte> header) const;
  int write_file(std::uint32_t number, ByteSpan header, ByteSpan page) noexcept;
  int read_file(std::uint32_t number, MutableByteSpan header, MutableByteSpan page) noexcept;
  void warn(std::uint32_t number, const char* what, int error) noexcept;

  const PrefixFolderOptions options_;
  const MutableByteSpan pages_;
  const std::uint64_t page_bytes_;
  const SipKey secret_;
  FileOps& ops_;
  std::span<File> files_;             // [n_files()]
  std::span<std::uint32_t> buckets_;  // [power of two]; first file of each
  std::uint32_t newest_ = kNone;
  std::uint32_t oldest_ = kNone;
  std::uint32_t first_unused_ = kNone;
  std::uint32_t n_written_in_pass_ = 0;
  std::uint64_t warned_ns_ = 0;
  std::string name_;  // of a file, without allocation
  PrefixFolderStats counts_;
};

}  // namespace qsf

#endif  // QSF_KV_PREFIX_FOLDER_H_
