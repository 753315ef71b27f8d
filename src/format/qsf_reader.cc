// SPDX-License-Identifier: MIT
//
// Opening a file: header, metadata, layer index, then every directory.

#include "format/qsf_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"
#include "format/adapter_layout.h"
#include "format/directory_codec.h"
#include "format/kept_layers.h"
#include "format/spec_keys.h"
#include "format/tile_codec.h"

namespace qsf {
namespace {

// A file opened as far as the places of its sections.
struct OpenedFile {
  ModelSpec spec;
  Metadata metadata;
  std::vector<SectionInfo> sections;
  std::vector<SectionPlace> places;  // embedding, layers, final
};

using ull = unsigned long long;
using HeaderBytes = std::array<std::byte, kHeaderBytes>;

// A section directory entry with the fields that only tensor sections use.
struct SectionEntry {
  SectionInfo info;
  std::uint32_t n_tensors;
  std::uint8_t compression;
  std::uint8_t type;
};

struct MetadataSection {
  Metadata metadata;
  std::vector<SectionEntry> entries;
  std::uint64_t bytes = 0;  // of the section
};

Status check_crc(const char* what, std::uint32_t got, std::uint32_t expected, bool verify_crc) {
  if (!verify_crc || got == expected) return ok_status();
  return corrupt("%s: CRC 0x%08x, expected 0x%08x", what, got, expected);
}

Result<HeaderBytes> read_header(const File& file, bool verify_crc) {
  namespace at = header_at;
  HeaderBytes h;
  if (file.size_bytes() < kHeaderBytes) {
    return corrupt("%llu bytes are too few for a QSF file", ull{file.size_bytes()});
  }
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, h));
  const std::string_view magic = as_text(ByteSpan(h).first(kQsfMagic.size()));
  if (magic == "GGUF") {
    return corrupt(
        "is a GGUF file, not a QSF file: run it with 'qsf run', or convert it with 'qsf convert'");
  }
  if (magic == kAdapterMagic) {
    return corrupt("is an adapter file, not a model; expected the model that the adapter is for");
  }
  if (magic != kQsfMagic) {
    return corrupt("is not a QSF file: it starts with %02x %02x %02x %02x, expected \"QSF1\"",
                   load_le<std::uint8_t>(h, 0), load_le<std::uint8_t>(h, 1),
                   load_le<std::uint8_t>(h, 2), load_le<std::uint8_t>(h, 3));
  }
  const auto version = load_le<std::uint32_t>(h, at::kVersion);
  if (version != kQsfVersion) {
    return unsupported("format version %u; this program reads version %u", version, kQsfVersion);
  }
  const auto header_bytes = load_le<std::uint32_t>(h, at::kHeaderSize);
  if (header_bytes != kHeaderBytes) {
    return corrupt("header of %u bytes, expected %zu", header_bytes, kHeaderBytes);
  }
  QSF_RETURN_IF_ERROR(check_crc("header", crc32(ByteSpan(h).first(at::kCrc)),
                                load_le<std::uint32_t>(h, at::kCrc), verify_crc));
  QSF_RETURN_IF_ERROR(
      check_crc("header bytes 100 to 119",
                crc32(ByteSpan(h).subspan(at::kTokenizerOffset, at::kCrc2 - at::kTokenizerOffset)),
                load_le<std::uint32_t>(h, at::kCrc2), verify_crc));
  if (load_le<std::uint32_t>(h, at::kReserved) != 0) {
    return corrupt("header bytes 124 to 127 are not zero");
  }
  const auto low = load_le<std::uint32_t>(h, at::kFileSizeLow);
  if (low != static_cast<std::uint32_t>(file.size_bytes())) {
    return corrupt(
        "the file has %llu bytes, but the low 32 bits of its size in the header are %u; it is "
        "truncated or has bytes added",
        ull{file.size_bytes()}, low);
  }
  return h;
}

// Checks that a section of `bytes` at `offset` starts where one may and lies in the file.
Status check_extent(const File& file, const std::string& name, std::uint64_t offset,
                    std::uint64_t bytes) {
  if (offset % kSectionAlign != 0 || offset == 0) {
    return corrupt("section %s: offset %llu, expected a positive multiple of 4096", name.c_str(),
                   ull{offset});
  }
  if (bytes == 0 || offset > file.size_bytes() || bytes > file.size_bytes() - offset) {
    return corrupt("section %s: %llu bytes at offset %llu in a file of %llu", name.c_str(),
                   ull{bytes}, ull{offset}, ull{file.size_bytes()});
  }
  return ok_status();
}

Result<SectionEntry> decode_section_entry(ByteSpan e, std::uint32_t index) {
  namespace at = section_at;
  std::string_view name = as_text(e.first(kSectionNameBytes));
  const std::size_t length = std::min(name.find('\0'), name.size());
  const bool padded = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(length), name.end(),
                                  [](char c) { return c == '\0'; });
  name = name.substr(0, length);
  const bool legible = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
  if (name.empty() || !padded || !legible) {
    return corrupt("section directory entry %u: its name is not 1 to 32 of a-z 0-9 _ . -", index);
  }
  const auto flags = load_le<std::uint32_t>(e, at::kFlags);
  if ((flags & ~kSectionRequired) != 0 || load_le<std::uint16_t>(e, at::kReserved) != 0) {
    return corrupt("section directory entry %u: flags 0x%08x, expected 0 or 1 and zeros at its end",
                   index, flags);
  }
  return SectionEntry{.info = {.name = std::string(name),
                               .file_offset = load_le<std::uint64_t>(e, at::kOffset),
                               .bytes = load_le<std::uint64_t>(e, at::kBytes),
                               .crc = load_le<std::uint32_t>(e, at::kCrc),
                               .required = flags != 0},
                      .n_tensors = load_le<std::uint32_t>(e, at::kTensors),
                      .compression = load_le<std::uint8_t>(e, at::kCompression),
                      .type = load_le<std::uint8_t>(e, at::kType)};
}

Result<MetadataSection> parse_metadata(const File& file, ByteSpan payload, std::uint32_t n_keys,
                                       std::uint32_t n_sections) {
  MetadataSection section;
  ByteReader reader(payload);
  QSF_ASSIGN_OR_RETURN(section.metadata, Metadata::decode(reader, n_keys));
  for (std::uint32_t i = 0; i < n_sections; ++i) {
    const ByteSpan bytes = reader.read_bytes(kSectionEntryBytes);
    if (!reader.ok()) return corrupt("section directory: passes the end of the metadata section");
    QSF_ASSIGN_OR_RETURN(SectionEntry entry, decode_section_entry(bytes, i));
    if (!section.entries.empty() && !(section.entries.back().info.name < entry.info.name)) {
      return corrupt("section directory: \"%s\" follows \"%s\"; names must be sorted and unique",
                     entry.info.name.c_str(), section.entries.back().info.name.c_str());
    }
    QSF_RETURN_IF_ERROR(
        check_extent(file, entry.info.name, entry.info.file_offset, entry.info.bytes));
    section.entries.push_back(std::move(entry));
  }
  if (reader.remaining() != 0) {
    return corrupt("metadata: %zu bytes follow its last entry", reader.remaining());
  }
  return section;
}

Result<MetadataSection> read_metadata(const File& file, std::uint64_t offset, bool verify_crc) {
  namespace at = metadata_at;
  QSF_RETURN_IF_ERROR(check_extent(file, "metadata", offset, kMetadataHeaderBytes));
  std::vector<std::byte> bytes(kMetadataHeaderBytes);
  QSF_RETURN_IF_ERROR(file.read_exact_at(offset, bytes));
  const auto payload_bytes = load_le<std::uint32_t>(bytes, at::kPayload);
  const auto n_keys = load_le<std::uint32_t>(bytes, at::kKeys);
  const auto n_sections = load_le<std::uint32_t>(bytes, at::kSections);
  if (payload_bytes > kMaxMetadataBytes || n_keys > kMaxMetadataKeys || n_sections > kMaxSections) {
    return corrupt("metadata: %u bytes, %u keys, %u sections; at most %llu, %u and %u are allowed",
                   payload_bytes, n_keys, n_sections, ull{kMaxMetadataBytes}, kMaxMetadataKeys,
                   kMaxSections);
  }
  QSF_RETURN_IF_ERROR(check_extent(file, "metadata", offset, kMetadataHeaderBytes + payload_bytes));
  bytes.resize(kMetadataHeaderBytes + payload_bytes);
  QSF_RETURN_IF_ERROR(file.read_exact_at(offset + kMetadataHeaderBytes,
                                         MutableByteSpan(bytes).subspan(kMetadataHeaderBytes)));
  QSF_RETURN_IF_ERROR(check_crc("metadata", crc32(ByteSpan(bytes).subspan(at::kPayload)),
                                load_le<std::uint32_t>(bytes, at::kCrc), verify_crc));
  QSF_ASSIGN_OR_RETURN(
      MetadataSection section,
      parse_metadata(file, ByteSpan(bytes).subspan(kMetadataHeaderBytes), n_keys, n_sections));
  section.bytes = bytes.size();
  QSF_ASSIGN_OR_RETURN(const std::uint64_t file_bytes,
                       section.metadata.get_u64(keys::kFileBytes, 0));
  if (file_bytes != file.size_bytes()) {
    return corrupt("the file has %llu bytes, expected %llu; it is truncated or has bytes added",
                   ull{file.size_bytes()}, ull{file_bytes});
  }
  return section;
}

// Checks the fields that tensor sections have and others have not.
Result<SectionPlace> tensor_place(const SectionEntry& entry, SectionKind kind) {
  if (entry.compression > 3 || (kind == SectionKind::kEmbedding && entry.compression != 0)) {
    return unsupported("section %s: compression %u is unknown for this section",
                       entry.info.name.c_str(), entry.compression);
  }
  if (entry.n_tensors > UINT16_MAX) {
    return corrupt("section %s: %u tensors, expected at most 65535", entry.info.name.c_str(),
                   entry.n_tensors);
  }
  SectionPlace place;
  place.head.kind = kind;
  place.head.compression = static_cast<Compression>(entry.compression);
  place.head.file_offset = entry.info.file_offset;
  place.head.stored_bytes = entry.info.bytes;
  place.head.crc = entry.info.crc;
  place.n_tensors = entry.n_tensors;
  place.default_type = entry.type;
  return place;
}

const SectionEntry* find_entry(const std::vector<SectionEntry>& entries, std::string_view name) {
  for (const SectionEntry& entry : entries) {
    if (entry.info.name == name) return &entry;
  }
  return nullptr;
}

// Holds the header's offset of a section to the directory's. Returns the entry, null when absent.
Result<const SectionEntry*> named_section(const MetadataSection& metadata, const char* name,
                                          std::uint64_t header_offset, bool optional) {
  const SectionEntry* entry = find_entry(metadata.entries, name);
  if (entry == nullptr && optional && header_offset == 0) return entry;
  if (entry == nullptr) return corrupt("section %s is missing from the section directory", name);
  if (entry->info.file_offset != header_offset) {
    return corrupt("section %s: at offset %llu, but the header says %llu", name,
                   ull{entry->info.file_offset}, ull{header_offset});
  }
  return entry;
}

Result<SectionPlace> decode_index_entry(const File& file, ByteSpan e, std::uint32_t layer) {
  namespace at = index_at;
  const auto wide = [e](std::size_t low, std::size_t high) {
    return std::uint64_t{load_le<std::uint32_t>(e, low)} |
           std::uint64_t{load_le<std::uint16_t>(e, high)} << 32;
  };
  SectionPlace place;
  place.head.kind = SectionKind::kLayer;
  place.head.layer = layer;
  place.head.file_offset = load_le<std::uint64_t>(e, at::kOffset);
  place.head.stored_bytes = wide(at::kStoredLow, at::kStoredHigh);
  place.head.raw_bytes = wide(at::kRawLow, at::kRawHigh);
  place.head.crc = load_le<std::uint32_t>(e, at::kCrc);
  place.head.importance = load_le<float>(e, at::kImportance);
  place.n_tensors = load_le<std::uint16_t>(e, at::kTensors);
  place.default_type = load_le<std::uint8_t>(e, at::kType);
  const auto compression = load_le<std::uint8_t>(e, at::kCompression);
  const std::string label = section_label(SectionKind::kLayer, layer);
  if (compression > 3) {
    return unsupported("%s: compression %u is not known to this version", label.c_str(),
                       compression);
  }
  place.head.compression = static_cast<Compression>(compression);
  if (place.default_type != kMixedType && !is_quant_type(place.default_type)) {
    return unsupported("%s: weight type %u is not known to this version", label.c_str(),
                       place.default_type);
  }
  if (!std::isfinite(place.head.importance) || std::signbit(place.head.importance)) {
    return corrupt("%s: importance %g, expected a finite number >= 0", label.c_str(),
                   static_cast<double>(place.head.importance));
  }
  QSF_RETURN_IF_ERROR(check_extent(file, label, place.head.file_offset, place.head.stored_bytes));
  return place;
}

Status read_layer_index(const File& file, const SectionInfo& index, bool verify_crc,
                        OpenedFile& opened) {
  const std::uint64_t expected = std::uint64_t{opened.spec.n_layers} * kIndexEntryBytes;
  if (index.bytes != expected) {
    return corrupt("section layer_index: %llu bytes, expected %llu for %u layers", ull{index.bytes},
                   ull{expected}, opened.spec.n_layers);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(expected));
  QSF_RETURN_IF_ERROR(file.read_exact_at(index.file_offset, bytes));
  QSF_RETURN_IF_ERROR(check_crc("section layer_index", crc32(bytes), index.crc, verify_crc));
  for (std::uint32_t layer = 0; layer < opened.spec.n_layers; ++layer) {
    QSF_ASSIGN_OR_RETURN(
        SectionPlace place,
        decode_index_entry(
            file, ByteSpan(bytes).subspan(std::size_t{layer} * kIndexEntryBytes, kIndexEntryBytes),
            layer));
    opened.places.push_back(std::move(place));
  }
  return ok_status();
}

// The sections, sorted, must follow each other with nothing but padding between, to the file's end.
Status check_extents(const File& file, const OpenedFile& opened, std::uint64_t metadata_offset,
                     std::uint64_t metadata_bytes) {
  struct Extent {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::string name;
  };
  std::vector<Extent> extents;
  extents.push_back({metadata_offset, metadata_bytes, "metadata"});
  for (const SectionInfo& s : opened.sections) extents.push_back({s.file_offset, s.bytes, s.name});
  for (const SectionPlace& p : opened.places) {
    if (p.head.kind != SectionKind::kLayer) continue;
    extents.push_back(
        {p.head.file_offset, p.head.stored_bytes, section_label(p.head.kind, p.head.layer)});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::uint64_t end = kHeaderBytes;
  std::string previous = "header";
  for (const Extent& extent : extents) {
    const std::uint64_t expected = align_up(end, kSectionAlign);
    if (extent.offset != expected) {
      return corrupt("section %s: at offset %llu, %s; %s ends at %llu", extent.name.c_str(),
                     ull{extent.offset}, extent.offset < expected ? "overlaps" : "leaves a gap",
                     previous.c_str(), ull{end});
    }
    end = extent.offset + extent.bytes;
    previous = extent.name;
  }
  if (align_up(end, kSectionAlign) != file.size_bytes()) {
    return corrupt("the file has %llu bytes, but its last section, %s, ends at %llu",
                   ull{file.size_bytes()}, previous.c_str(), ull{end});
  }
  return ok_status();
}

bool is_known_section(std::string_view name) noexcept {
  return name == "embedding" || name == "final" || name == "layer_index" || name == "tokenizer";
}

// Refuses unknown sections that are required.
Status check_entries(const std::vector<SectionEntry>& entries) {
  for (const SectionEntry& entry : entries) {
    if (entry.info.required && !is_known_section(entry.info.name)) {
      return unsupported("section %s is required to run this model and not known to this version",
                         entry.info.name.c_str());
    }
    const bool has_tensors = entry.info.name == "embedding" || entry.info.name == "final";
    if (!has_tensors && (entry.n_tensors != 0 || entry.compression != 0 || entry.type != 0)) {
      return corrupt("section %s: bytes 56 to 61 of its entry are not zero",
                     entry.info.name.c_str());
    }
  }
  return ok_status();
}

// Reads header, metadata and layer index, and checks that the sections fill the file without gap or
// overlap.
Result<OpenedFile> read_places(const File& file, bool verify_crc) {
  namespace at = header_at;
  QSF_ASSIGN_OR_RETURN(const HeaderBytes header, read_header(file, verify_crc));
  const auto offset_at = [&header](std::size_t field) {
    return load_le<std::uint64_t>(header, field);
  };
  const std::uint64_t metadata_offset = offset_at(at::kMetadataOffset);
  QSF_ASSIGN_OR_RETURN(MetadataSection metadata, read_metadata(file, metadata_offset, verify_crc));
  OpenedFile opened;
  QSF_ASSIGN_OR_RETURN(opened.spec, decode_spec(header, metadata.metadata));
  QSF_RETURN_IF_ERROR(check_entries(metadata.entries));
  QSF_ASSIGN_OR_RETURN(
      const SectionEntry* embedding,
      named_section(metadata, "embedding", offset_at(at::kEmbeddingOffset), false));
  QSF_ASSIGN_OR_RETURN(const SectionEntry* final_section,
                       named_section(metadata, "final", offset_at(at::kFinalOffset), false));
  QSF_ASSIGN_OR_RETURN(const SectionEntry* index,
                       named_section(metadata, "layer_index", offset_at(at::kIndexOffset), false));
  const Result<const SectionEntry*> tokenizer =
      named_section(metadata, "tokenizer", offset_at(at::kTokenizerOffset), true);
  if (!tokenizer) return tokenizer.error();

  QSF_ASSIGN_OR_RETURN(SectionPlace first, tensor_place(*embedding, SectionKind::kEmbedding));
  opened.places.push_back(std::move(first));
  QSF_RETURN_IF_ERROR(read_layer_index(file, index->info, verify_crc, opened));
  QSF_ASSIGN_OR_RETURN(SectionPlace last, tensor_place(*final_section, SectionKind::kFinal));
  opened.places.push_back(std::move(last));
  for (const SectionEntry& entry : metadata.entries) opened.sections.push_back(entry.info);
  QSF_RETURN_IF_ERROR(check_extents(file, opened, metadata_offset, metadata.bytes));
  opened.metadata = std::move(metadata.metadata);
  return opened;
}

}  // namespace

QsfReader::QsfReader(File file, ReaderOptions options) noexcept
    : file_(std::move(file)), options_(options) {}

Status QsfReader::use_experts(std::uint32_t n_used) {
  if (spec_.n_experts == 0) {
    return invalid_argument("%s: %u experts a row: the model has none; leave the option out",
                            file_.path().c_str(), n_used);
  }
  if (n_used == 0 || n_used > spec_.n_experts_used) {
    return invalid_argument("%s: %u experts a row: expected 1 to %u, which the model takes",
                            file_.path().c_str(), n_used, spec_.n_experts_used);
  }
  if (spec_.expert_scoring == ExpertScoring::kSparsemixer && n_used != spec_.n_experts_used) {
    return unsupported("%s: %u experts a row: the router of this model chooses %u together",
                       file_.path().c_str(), n_used, spec_.n_experts_used);
  }
  // Those of the model's number.
  if (n_used != spec_.n_experts_used) spec_.expert_hits.clear();
  spec_.n_experts_used = n_used;
  return ok_status();
}

Result<std::vector<std::uint32_t>> QsfReader::use_quality(float quality) {
  std::vector<float> importance;
  for (std::uint32_t layer = 0; layer < n_layers(); ++layer) {
    importance.push_back(directories_[layer + std::size_t{1}].importance);
  }
  auto kept = choose_layers(importance, quality);
  if (!kept.has_value()) return std::move(kept).error().with_context(file_.path());
  return use_layers(*kept, KeptLayers::kModel);
}

Result<std::vector<std::uint32_t>> QsfReader::use_layers(std::span<const std::uint32_t> kept,
                                                         KeptLayers as) {
  QSF_RETURN_IF_ERROR(keep_layers(kept, spec_, as).with_context(file_.path()));
  std::vector<std::uint32_t> left_out;
  std::uint32_t place = 0;  // among the layers that there were
  const auto leave_out = [&](const SectionDirectory& directory) {
    if (directory.kind != SectionKind::kLayer) return false;
    if (ranges::binary_search(kept, place++)) return false;
    left_out.push_back(directory.layer);
    return true;
  };
  std::erase_if(directories_, leave_out);
  return left_out;
}

Result<QsfReader> QsfReader::open(const std::string& path, ReaderOptions options) {
  QSF_ASSIGN_OR_RETURN(File file, File::open(path));
  return open(std::move(file), options);
}

Result<QsfReader> QsfReader::open(File file, ReaderOptions options) {
  QsfReader reader(std::move(file), options);
  Status status = reader.load();
  if (!status.ok()) {
    // Messages of the file layer name it themselves.
    if (status.message().starts_with(reader.file_.path())) return status;
    return std::move(status).with_context(reader.file_.path());
  }
  return reader;
}

Status QsfReader::load() {
  QSF_ASSIGN_OR_RETURN(OpenedFile opened, read_places(file_, options_.verify_crc));
  spec_ = std::move(opened.spec);
  metadata_ = std::move(opened.metadata);
  sections_ = std::move(opened.sections);
  directories_.reserve(opened.places.size());
  for (const SectionPlace& place : opened.places) {
    QSF_ASSIGN_OR_RETURN(SectionDirectory directory,
                         read_directory(file_, spec_, place, options_.verify_crc));
    directories_.push_back(std::move(directory));
  }
  return ok_status();
}

const SectionDirectory& QsfReader::layer(std::uint32_t layer) const noexcept {
  QSF_CHECK(layer < n_layers());
  return directories_[layer + std::size_t{1}];
}

const SectionInfo* QsfReader::find_section(std::string_view name) const noexcept {
  for (const SectionInfo& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

std::uint64_t QsfReader::tokenizer_bytes() const noexcept {
  const SectionInfo* section = find_section("tokenizer");
  return section == nullptr ? 0 : section->bytes;
}

Status QsfReader::read_section(const SectionInfo& section, MutableByteSpan to) const {
  QSF_CHECK(to.size() == section.bytes);
  QSF_RETURN_IF_ERROR(file_.read_exact_at(section.file_offset, to));
  if (options_.verify_crc && crc32(to) != section.crc) {
    return corrupt(
        "%s: section %s at offset %llu: CRC 0x%08x, expected 0x%08x; the file is damaged",
        file_.path().c_str(), section.name.c_str(),
        static_cast<unsigned long long>(section.file_offset), crc32(to), section.crc);
  }
  return ok_status();
}

Result<std::vector<std::byte>> QsfReader::read_section(const SectionInfo& section) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(section.bytes));
  QSF_RETURN_IF_ERROR(read_section(section, bytes));
  return bytes;
}

Result<std::vector<std::byte>> QsfReader::read_tokenizer() const {
  const SectionInfo* section = find_section("tokenizer");
  if (section == nullptr) return not_found("%s: has no tokenizer", file_.path().c_str());
  return read_section(*section);
}

Status QsfReader::read_tile(const SectionDirectory& directory, std::uint32_t tile,
                            MutableByteSpan stored_scratch, MutableByteSpan raw) const {
  QSF_CHECK(tile < directory.tiles.size());
  const TileInfo& info = directory.tiles[tile];
  const bool plain = info.stored_bytes == info.raw_bytes;
  QSF_CHECK(plain || stored_scratch.size() >= info.stored_bytes);
  const MutableByteSpan stored = plain ? raw : stored_scratch.first(info.stored_bytes);
  QSF_RETURN_IF_ERROR(file_.read_exact_at(info.file_offset, stored));
  return decode_tile(directory, tile, stored, raw);
}

Status QsfReader::decode_tile(const SectionDirectory& directory, std::uint32_t tile,
                              ByteSpan stored, MutableByteSpan raw) const {
  QSF_RETURN_IF_ERROR(check_tile(directory, tile, stored));
  const TileInfo& info = directory.tiles[tile];
  QSF_CHECK(raw.size() == info.raw_bytes);
  if (info.stored_bytes != info.raw_bytes) {
    Status status = decompress_tile(directory.compression, stored, raw);
    if (!status.ok()) {
      return std::move(status).with_context(tile_label(directory, tile) +
                                            ": the weights are damaged");
    }
  } else if (stored.data() != raw.data()) {
    std::memcpy(raw.data(), stored.data(), raw.size());
  }
  return ok_status();
}

Status QsfReader::check_tile(const SectionDirectory& directory, std::uint32_t tile,
                             ByteSpan stored) const {
  QSF_CHECK(tile < directory.tiles.size());
  const TileInfo& info = directory.tiles[tile];
  QSF_CHECK(stored.size() == info.stored_bytes);
  if (!options_.verify_crc) return ok_status();
  const std::uint32_t crc = crc32(stored);
  if (crc == info.crc) return ok_status();
  return corrupt("%s: the weights are damaged: CRC 0x%08x, expected 0x%08x",
                 tile_label(directory, tile).c_str(), crc, info.crc);
}

std::string QsfReader::tile_label(const SectionDirectory& directory, std::uint32_t tile) const {
  return file_.path() + ": " + section_label(directory.kind, directory.layer) + ": tile " +
         std::to_string(tile) + " at offset " + std::to_string(directory.tiles[tile].file_offset);
}

std::size_t QsfReader::heap_bytes() const noexcept {
  std::size_t bytes = sections_.capacity() * (sizeof(SectionInfo) + kSectionNameBytes) +
                      directories_.capacity() * sizeof(SectionDirectory);
  for (const SectionDirectory& directory : directories_) {
    bytes += directory.tensors.capacity() * sizeof(TensorInfo) +
             directory.tiles.capacity() * sizeof(TileInfo);
  }
  // Every value is in metadata_ and may be in spec_ again.
  for (const MetadataEntry& entry : metadata_.entries()) {
    bytes += 2 * (sizeof(MetadataEntry) + entry.key.capacity() + entry.value.capacity());
  }
  return bytes;
}

}  // namespace qsf
