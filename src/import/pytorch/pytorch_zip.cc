// SPDX-License-Identifier: MIT

#include "import/pytorch/pytorch_zip.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <utility>

#include "base/bytes.h"

namespace qsf {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50;
constexpr std::uint32_t kEntryMagic = 0x02014b50;
constexpr std::uint32_t kEndMagic = 0x06054b50;
constexpr std::uint32_t kEnd64Magic = 0x06064b50;
constexpr std::uint32_t kLocator64Magic = 0x07064b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocator64Bytes = 20;
constexpr std::uint16_t kZip64Field = 1;
constexpr std::size_t kMaxNameBytes = 1024;

// The place of the directory, from the end record or the ZIP64 end record.
struct Directory {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t n_entries = 0;
};

// An entry as the directory has it.
struct DirectoryEntry {
  std::string name;
  std::uint64_t header = 0;  // offset of its local header
  std::uint64_t bytes = 0;
  std::uint64_t data = 0;  // offset of its bytes, found in the local header
};

Status check_entry_name(std::string_view name) {
  const auto is_bad = [](char c) { return c < 0x20 || c > 0x7e || c == '\\'; };
  if (name.empty() || name.size() > kMaxNameBytes ||
      std::any_of(name.begin(), name.end(), is_bad)) {
    return corrupt("the name of an entry has %zu bytes, or characters outside printable ASCII",
                   name.size());
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return corrupt("entry \"%s\" is not a plain relative path", std::string(name).c_str());
    }
    begin = end + 1;
  }
  return ok_status();
}

Result<Directory> find_directory64(const File& file, std::uint64_t locator_offset,
                                   ByteSpan locator) {
  const auto offset = load_le<std::uint64_t>(locator, 8);
  if (load_le<std::uint32_t>(locator, 4) != 0 || load_le<std::uint32_t>(locator, 16) > 1) {
    return unsupported("an archive in several parts");
  }
  if (offset > locator_offset || locator_offset - offset != kEnd64Bytes) {
    return corrupt("the ZIP64 end record is stated at byte %" PRIu64 ", expected %" PRIu64
                   " of the file",
                   offset, locator_offset - std::min<std::uint64_t>(locator_offset, kEnd64Bytes));
  }
  std::array<std::byte, kEnd64Bytes> end{};
  QSF_RETURN_IF_ERROR(file.read_exact_at(offset, end));
  if (load_le<std::uint32_t>(end, 0) != kEnd64Magic ||
      load_le<std::uint64_t>(end, 4) != kEnd64Bytes - 12) {
    return corrupt("no ZIP64 end record at byte %" PRIu64, offset);
  }
  if (load_le<std::uint32_t>(end, 16) != 0 || load_le<std::uint32_t>(end, 20) != 0 ||
      load_le<std::uint64_t>(end, 24) != load_le<std::uint64_t>(end, 32)) {
    return unsupported("an archive in several parts");
  }
  Directory directory;
  directory.n_entries = load_le<std::uint64_t>(end, 32);
  directory.bytes = load_le<std::uint64_t>(end, 40);
  directory.offset = load_le<std::uint64_t>(end, 48);
  if (directory.offset > offset || offset - directory.offset != directory.bytes) {
    return corrupt("the directory does not end where the ZIP64 end record begins");
  }
  return directory;
}

Result<Directory> find_directory(const File& file) {
  if (file.size_bytes() < kEndBytes) return corrupt("too short for a zip archive");
  std::array<std::byte, kEndBytes> end{};
  const std::uint64_t end_offset = file.size_bytes() - kEndBytes;
  QSF_RETURN_IF_ERROR(file.read_exact_at(end_offset, end));
  if (load_le<std::uint32_t>(end, 0) != kEndMagic || load_le<std::uint16_t>(end, 20) != 0) {
    return corrupt("it does not end with the directory of a zip archive; the file is truncated");
  }
  if (end_offset >= kLocator64Bytes) {
    std::array<std::byte, kLocator64Bytes> locator{};
    QSF_RETURN_IF_ERROR(file.read_exact_at(end_offset - kLocator64Bytes, locator));
    if (load_le<std::uint32_t>(locator, 0) == kLocator64Magic) {
      return find_directory64(file, end_offset - kLocator64Bytes, locator);
    }
  }
  if (load_le<std::uint16_t>(end, 4) != 0 || load_le<std::uint16_t>(end, 6) != 0 ||
      load_le<std::uint16_t>(end, 8) != load_le<std::uint16_t>(end, 10)) {
    return unsupported("an archive in several parts");
  }
  Directory directory;
  directory.n_entries = load_le<std::uint16_t>(end, 10);
  directory.bytes = load_le<std::uint32_t>(end, 12);
  directory.offset = load_le<std::uint32_t>(end, 16);
  if (directory.offset > end_offset || end_offset - directory.offset != directory.bytes) {
    return corrupt("the directory does not end where the end record begins");
  }
  return directory;
}

// Reads from the extra fields of an entry the values that did not fit 32 bits, in this order.
Status read_zip64(ByteSpan extra, const std::string& name, std::uint64_t* stored_bytes,
                  std::uint64_t* bytes, std::uint64_t* header) {
  constexpr std::uint32_t kElsewhere = 0xffffffff;
  if (*bytes != kElsewhere && *stored_bytes != kElsewhere && *header != kElsewhere) {
    return ok_status();
  }
  ByteReader in(extra);
  while (in.remaining() >= 4) {
    const auto id = in.read<std::uint16_t>();
    const auto n_bytes = in.read<std::uint16_t>();
    ByteReader field(in.read_bytes(n_bytes));
    if (id != kZip64Field) continue;
    for (std::uint64_t* value : {bytes, stored_bytes, header}) {
      if (*value == kElsewhere) *value = field.read<std::uint64_t>();
    }
    if (field.ok()) return ok_status();
  }
  return corrupt("entry \"%s\": a size or offset beyond 32 bits is missing", name.c_str());
}

Result<DirectoryEntry> read_entry(ByteReader& in) {
  if (in.read<std::uint32_t>() != kEntryMagic) return corrupt("the directory is damaged");
  in.skip(4);  // versions that made it and that it needs
  const auto flags = in.read<std::uint16_t>();
  const auto method = in.read<std::uint16_t>();
  in.skip(8);  // time, date, CRC-32
  std::uint64_t stored_bytes = in.read<std::uint32_t>();
  DirectoryEntry entry;
  entry.bytes = in.read<std::uint32_t>();
  const auto name_bytes = in.read<std::uint16_t>();
  const auto extra_bytes = in.read<std::uint16_t>();
  const auto comment_bytes = in.read<std::uint16_t>();
  in.skip(8);  // first disk, attributes
  entry.header = in.read<std::uint32_t>();
  entry.name = in.read_text(name_bytes);
  const ByteSpan extra = in.read_bytes(extra_bytes);
  in.skip(comment_bytes);
  if (!in.ok()) return corrupt("the directory ends inside an entry");
  QSF_RETURN_IF_ERROR(check_entry_name(entry.name));
  QSF_RETURN_IF_ERROR(read_zip64(extra, entry.name, &stored_bytes, &entry.bytes, &entry.header));
  if ((flags & 1U) != 0) return unsupported("entry \"%s\" is encrypted", entry.name.c_str());
  if (method != 0) {
    return unsupported("entry \"%s\" is compressed (method %u), which torch.save never writes",
                       entry.name.c_str(), static_cast<unsigned>(method));
  }
  if (stored_bytes != entry.bytes) {
    return corrupt("entry \"%s\": %" PRIu64 " bytes stored for %" PRIu64, entry.name.c_str(),
                   stored_bytes, entry.bytes);
  }
  return entry;
}

// Finds where the bytes of an entry begin.
Status read_local_header(const File& file, DirectoryEntry& entry) {
  std::array<std::byte, kLocalBytes + kMaxNameBytes> bytes{};
  const MutableByteSpan header = std::span(bytes).first(kLocalBytes + entry.name.size());
  const std::uint64_t size = file.size_bytes();
  if (entry.header > size || size - entry.header < header.size()) {
    return corrupt("entry \"%s\" begins at byte %" PRIu64 " of a file of %" PRIu64,
                   entry.name.c_str(), entry.header, size);
  }
  QSF_RETURN_IF_ERROR(file.read_exact_at(entry.header, header));
  if (load_le<std::uint32_t>(header, 0) != kLocalMagic ||
      load_le<std::uint16_t>(header, 26) != entry.name.size() ||
      as_text(header.subspan(kLocalBytes)) != entry.name) {
    return corrupt("entry \"%s\": no header of that name at byte %" PRIu64, entry.name.c_str(),
                   entry.header);
  }
  if ((load_le<std::uint16_t>(header, 6) & 1U) != 0 || load_le<std::uint16_t>(header, 8) != 0) {
    return corrupt("entry \"%s\": its header disagrees with the directory", entry.name.c_str());
  }
  // Three terms of a file's size and less: no overflow.
  entry.data = entry.header + header.size() + load_le<std::uint16_t>(header, 28);
  return ok_status();
}

// Checks that the entries follow one another without overlap and end before the directory.
Status check_ranges(std::vector<DirectoryEntry>& entries, std::uint64_t directory_offset) {
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.header < b.header; });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const DirectoryEntry& entry = entries[i];
    const std::uint64_t limit = i + 1 < entries.size() ? entries[i + 1].header : directory_offset;
    if (entry.data > limit || entry.bytes > limit - entry.data) {
      return corrupt("entry \"%s\": %" PRIu64 " bytes at byte %" PRIu64
                     " overlap the entry at byte %" PRIu64,
                     entry.name.c_str(), entry.bytes, entry.data, limit);
    }
  }
  return ok_status();
}

}  // namespace

Result<bool> begins_as_zip(const File& file) {
  std::array<std::byte, 4> magic{};
  if (file.size_bytes() < magic.size()) return false;
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, magic));
  return load_le<std::uint32_t>(magic, 0) == kLocalMagic;
}

Result<std::vector<ZipEntry>> read_zip_directory(const File& file) {
  QSF_ASSIGN_OR_RETURN(const Directory directory, find_directory(file));
  if (directory.bytes > kMaxZipDirectoryBytes) {
    return unsupported("a directory of %" PRIu64 " bytes, expected at most %" PRIu64,
                       directory.bytes, kMaxZipDirectoryBytes);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(directory.bytes));
  QSF_RETURN_IF_ERROR(file.read_exact_at(directory.offset, bytes));
  std::vector<DirectoryEntry> found;
  for (ByteReader in(bytes); in.remaining() != 0;) {
    QSF_ASSIGN_OR_RETURN(DirectoryEntry entry, read_entry(in));
    QSF_RETURN_IF_ERROR(read_local_header(file, entry));
    found.push_back(std::move(entry));
  }
  if (found.size() != directory.n_entries) {
    return corrupt("%zu entries in the directory, expected %" PRIu64, found.size(),
                   directory.n_entries);
  }
  QSF_RETURN_IF_ERROR(check_ranges(found, directory.offset));
  std::vector<ZipEntry> entries;
  entries.reserve(found.size());
  for (DirectoryEntry& entry : found) {
    entries.push_back({std::move(entry.name), entry.data, entry.bytes});
  }
  std::sort(entries.begin(), entries.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const ZipEntry& a, const ZipEntry& b) { return a.name == b.name; });
  if (twice != entries.end()) {
    return corrupt("entry \"%s\" appears twice in the directory", twice->name.c_str());
  }
  return entries;
}

const ZipEntry* find_zip_entry(const std::vector<ZipEntry>& entries,
                               std::string_view name) noexcept {
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const ZipEntry& entry, std::string_view key) { return entry.name < key; });
  return found != entries.end() && found->name == name ? &*found : nullptr;
}

}  // namespace qsf
