// SPDX-License-Identifier: MIT

#include "format/testing/checksum_repair.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/crc32.h"
#include "format/directory_codec.h"
#include "format/qsf_layout.h"

namespace qsf::testing_support {
namespace {

// Returns where the entry of a section stands; its name is found as text.
std::size_t find_entry(ByteSpan metadata, std::string_view name) {
  std::string padded(name);
  padded.resize(kSectionNameBytes);
  const std::size_t at = as_text(metadata).find(padded);
  QSF_CHECK(at != std::string_view::npos);
  return at;
}

}  // namespace

ChecksumRepair::ChecksumRepair(const QsfReader& reader, ByteSpan bytes) {
  const auto metadata_at =
      static_cast<std::size_t>(load_le<std::uint64_t>(bytes, header_at::kMetadataOffset));
  const std::size_t metadata_bytes =
      kMetadataHeaderBytes +
      load_le<std::uint32_t>(bytes, metadata_at + qsf::metadata_at::kPayload);
  const ByteSpan metadata = bytes.subspan(metadata_at, metadata_bytes);
  const auto index_offset =
      static_cast<std::size_t>(load_le<std::uint64_t>(bytes, header_at::kIndexOffset));
  for (const SectionDirectory& d : reader.directories()) {
    const auto offset = static_cast<std::size_t>(d.file_offset);
    const auto n = static_cast<std::size_t>(directory_bytes(d.tensors.size(), d.tiles.size()));
    checksums_.push_back({{offset, n - 4}, offset + n - 4});
    const std::size_t section_crc =
        d.kind == SectionKind::kLayer
            ? index_offset + d.layer * kIndexEntryBytes + index_at::kCrc
            : metadata_at + find_entry(metadata, section_label(d.kind, d.layer)) + section_at::kCrc;
    checksums_.push_back({{offset, static_cast<std::size_t>(d.stored_bytes)}, section_crc});
    structure_.push_back({offset, n});
  }
  const std::size_t index_bytes = std::size_t{reader.n_layers()} * kIndexEntryBytes;
  checksums_.push_back({{index_offset, index_bytes},
                        metadata_at + find_entry(metadata, "layer_index") + section_at::kCrc});
  structure_.push_back({index_offset, index_bytes});
  checksums_.push_back({{metadata_at + 4, metadata_bytes - 4}, metadata_at});
  structure_.push_back({metadata_at, metadata_bytes});
  checksums_.push_back({{0, header_at::kCrc}, header_at::kCrc});
  checksums_.push_back(
      {{header_at::kTokenizerOffset, header_at::kCrc2 - header_at::kTokenizerOffset},
       header_at::kCrc2});
  structure_.push_back({0, kHeaderBytes});
}

void ChecksumRepair::repair(MutableByteSpan bytes) const {
  for (const Checksum& c : checksums_) {
    store_le(bytes, c.stored_at, crc32(ByteSpan(bytes).subspan(c.covered.offset, c.covered.bytes)));
  }
}

bool ChecksumRepair::is_structure(std::size_t offset) const {
  return std::any_of(structure_.begin(), structure_.end(), [offset](const Range& r) {
    return offset >= r.offset && offset - r.offset < r.bytes;
  });
}

}  // namespace qsf::testing_support
