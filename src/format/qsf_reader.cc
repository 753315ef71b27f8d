// SPDX-License-Identifier: MIT

#include "format/qsf_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "format/directory_codec.h"
#include "format/qsf_open.h"
#include "format/tile_codec.h"

namespace qsf {

QsfReader::QsfReader(File file, ReaderOptions options) noexcept
    : file_(std::move(file)), options_(options) {}

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
  // Every value stands in metadata_ and may stand in spec_ once more.
  for (const MetadataEntry& entry : metadata_.entries()) {
    bytes += 2 * (sizeof(MetadataEntry) + entry.key.capacity() + entry.value.capacity());
  }
  return bytes;
}

}  // namespace qsf
