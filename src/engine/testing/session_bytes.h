// SPDX-License-Identifier: MIT
//
// For tests that damage session files: their bytes, where sections are, and checksums made right
// again.

#ifndef QSF_ENGINE_TESTING_SESSION_BYTES_H_
#define QSF_ENGINE_TESTING_SESSION_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32.h"
#include "engine/session_layout.h"

namespace qsf::testing_support {

// Requires  the file is there
inline std::vector<std::byte> bytes_of_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  QSF_CHECK(file.is_open());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const ByteSpan bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

inline std::uint32_t n_sections_of(ByteSpan bytes) {
  return load_le<std::uint32_t>(bytes, session_layout::header_at::kSections);
}
// Where the entry of the table for section number `index` begins, and where that section does.
inline std::size_t entry_at(std::size_t index) {
  return session_layout::kHeaderBytes + index * session_layout::kEntryBytes;
}
inline std::size_t section_at(ByteSpan bytes, std::size_t index) {
  std::size_t at = entry_at(n_sections_of(bytes));
  for (std::size_t i = 0; i < index; ++i) {
    at += load_le<std::uint64_t>(bytes, entry_at(i) + session_layout::entry_at::kBytes);
  }
  return at;
}
// The number of a section. Requires  it is there
inline std::size_t index_of(ByteSpan bytes, std::string_view name) {
  for (std::size_t i = 0; i < n_sections_of(bytes); ++i) {
    const ByteSpan field = bytes.subspan(entry_at(i), session_layout::kNameBytes);
    if (as_text(field).substr(0, as_text(field).find('\0')) == name) return i;
  }
  QSF_CHECK(false);
}

// Makes every checksum right again, where sections are in place.
inline void repair(std::vector<std::byte>& bytes) {
  namespace layout = session_layout;
  const std::size_t n_sections = n_sections_of(bytes);
  for (std::size_t i = 0; i < n_sections; ++i) {
    const std::size_t begin = section_at(bytes, i);
    const auto n_bytes = load_le<std::uint64_t>(bytes, entry_at(i) + layout::entry_at::kBytes);
    if (begin > bytes.size() || n_bytes > bytes.size() - begin) break;
    store_le(MutableByteSpan(bytes), entry_at(i) + layout::entry_at::kCrc,
             crc32(ByteSpan(bytes).subspan(begin, n_bytes)));
  }
  store_le(MutableByteSpan(bytes), layout::header_at::kTableCrc,
           crc32(ByteSpan(bytes).subspan(layout::kHeaderBytes, n_sections * layout::kEntryBytes)));
  store_le(MutableByteSpan(bytes), layout::header_at::kCrc,
           crc32(ByteSpan(bytes).first(layout::header_at::kCrc)));
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_SESSION_BYTES_H_
