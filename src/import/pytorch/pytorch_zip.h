// SPDX-License-Identifier: MIT
//
// The directory of the zip archives that torch.save writes.
//
// torch stores every entry uncompressed, so that an entry is a range of the file, and writes the
// directory at the very end. Only that is accepted: stored entries, no encryption, no comment, no
// second disk. ZIP64 fields are understood. Nothing is written to any path that an archive names.
//
// Based on: PKWARE, APPNOTE.TXT 6.3.10, 4.3 and 4.5.3.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_ZIP_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_ZIP_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file.h"

namespace qsf {

inline constexpr std::uint64_t kMaxZipDirectoryBytes = 64U << 20;

struct ZipEntry {
  std::string name;
  std::uint64_t offset = 0;  // of its bytes in the file
  std::uint64_t bytes = 0;
};

// Returns whether the file begins as a zip archive does. Fails: kIo.
Result<bool> begins_as_zip(const File& file);

// Reads the directory of an archive.
// Guarantees  entries are sorted by name, no two have the same name, none overlap, all lie in the
//             file before the directory; names are relative paths without "." and ".." components
// Fails       kCorrupt on a damaged or truncated archive; kUnsupported on compression, encryption
//             and archives in several parts; kIo. Messages do not name the file
Result<std::vector<ZipEntry>> read_zip_directory(const File& file);

// Returns null when there is none. Requires  `entries` as read_zip_directory returns them.
const ZipEntry* find_zip_entry(const std::vector<ZipEntry>& entries,
                               std::string_view name) noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_ZIP_H_
