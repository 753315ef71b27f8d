// SPDX-License-Identifier: MIT

#include "format/qsf_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "format/directory_codec.h"
#include "format/spec_keys.h"
#include "format/tensor_rules.h"
#include "format/tile_codec.h"

namespace qsf {
namespace {

bool is_section_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kSectionNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
                  c == '-';
         });
}

// Continues a CRC over `n` zero bytes.
std::uint32_t crc32_zeros(std::uint32_t crc, std::uint64_t n) noexcept {
  static constexpr std::array<std::byte, kSectionAlign> kZeros{};
  for (; n > 0; n -= std::min<std::uint64_t>(n, kZeros.size())) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(n, kZeros.size()));
    crc = crc32(ByteSpan(kZeros).first(part), crc);
  }
  return crc;
}

}  // namespace

QsfWriter::QsfWriter(AtomicFile file, ModelSpec spec, WriterOptions options) noexcept
    : file_(std::move(file)), spec_(std::move(spec)), options_(options), end_(kSectionAlign) {}

Result<QsfWriter> QsfWriter::create(const std::string& path, ModelSpec spec, WriterOptions options,
                                    FileOps& ops) {
  Status valid = validate(spec);
  if (!valid.ok()) return std::move(valid).with_context(path);
  if (options.tile_bytes == 0 || options.tile_bytes > kMaxTileBytes) {
    return invalid_argument("%s: tiles of %llu bytes, expected 1 to %llu", path.c_str(),
                            static_cast<unsigned long long>(options.tile_bytes),
                            static_cast<unsigned long long>(kMaxTileBytes));
  }
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  return QsfWriter(std::move(file), std::move(spec), options);
}

Status QsfWriter::write_plain_section(std::string_view name, ByteSpan bytes, bool required) {
  if (in_section_ || finished_ || bytes.empty() || !is_section_name(name)) {
    return invalid_argument(
        "%s: section \"%.*s\" of %zu bytes: sections have a name, at least one "
        "byte and no place inside another section or after finish",
        file_.path().c_str(), static_cast<int>(name.size()), name.data(), bytes.size());
  }
  for (const WrittenSection& section : sections_) {
    if (section.name == name) {
      return invalid_argument("%s: section %s was written before", file_.path().c_str(),
                              section.name.c_str());
    }
  }
  QSF_RETURN_IF_ERROR(file_.write_at(end_, bytes));
  sections_.push_back({.name = std::string(name),
                       .offset = end_,
                       .bytes = bytes.size(),
                       .crc = crc32(bytes),
                       .required = required,
                       .n_tensors = 0,
                       .compression = Compression::kNone,
                       .type = 0});
  end_ = align_up(end_ + bytes.size(), kSectionAlign);
  stored_bytes_ += bytes.size();
  return ok_status();
}

Status QsfWriter::set_tokenizer(ByteSpan bytes) {
  return write_plain_section("tokenizer", bytes, false);
}

Status QsfWriter::add_section(std::string_view name, ByteSpan bytes, bool required) {
  for (const std::string_view taken : {"embedding", "final", "layer_index", "tokenizer"}) {
    if (name == taken) {
      return invalid_argument("%s: the name of section %s is reserved", file_.path().c_str(),
                              std::string(name).c_str());
    }
  }
  return write_plain_section(name, bytes, required);
}

Status QsfWriter::check_turn(SectionKind kind, std::uint32_t layer) const {
  SectionKind expected = SectionKind::kLayer;
  std::uint32_t expected_layer = n_begun_ - 1;
  if (n_begun_ == 0 || n_begun_ > spec_.n_layers) {
    expected = n_begun_ == 0 ? SectionKind::kEmbedding : SectionKind::kFinal;
    expected_layer = 0;
  }
  const bool all_begun = n_begun_ == spec_.n_layers + 2;
  if (!in_section_ && !finished_ && !all_begun && kind == expected && layer == expected_layer) {
    return ok_status();
  }
  return invalid_argument(
      "%s: got section %s, expected %s", file_.path().c_str(), section_label(kind, layer).c_str(),
      in_section_              ? "the end of the one before"
      : finished_ || all_begun ? "no more sections"
                               : section_label(expected, expected_layer).c_str());
}

Status QsfWriter::begin_section(SectionKind kind, std::uint32_t layer,
                                std::vector<TensorInfo> tensors) {
  QSF_RETURN_IF_ERROR(check_turn(kind, layer));
  const auto with_place = [&](Status status) {
    return std::move(status).with_context(file_.path() + ": " + section_label(kind, layer));
  };
  Status valid = check_tensors(spec_, kind, layer, tensors);
  if (!valid.ok()) return with_place(std::move(valid));
  Result<std::vector<TilePlan>> plan = plan_tiles(tensors, options_.tile_bytes);
  if (!plan) return with_place(std::move(plan).error());
  section_ = {};
  section_.kind = kind;
  section_.layer = layer;
  section_.compression =
      kind == SectionKind::kEmbedding ? Compression::kNone : options_.compression;
  section_.file_offset = end_;
  section_.tensors = std::move(tensors);
  plan_ = std::move(plan).value();
  directory_bytes_ =
      align_up(directory_bytes(section_.tensors.size(), plan_.size()), kSectionAlign);
  section_end_ = end_ + directory_bytes_;
  data_crc_ = 0;
  in_section_ = true;
  ++n_begun_;
  return ok_status();
}

Status QsfWriter::write_tile(ByteSpan raw) {
  if (!in_section_ || section_.tiles.size() == plan_.size()) {
    return invalid_argument("%s: one tile too many for %s", file_.path().c_str(),
                            section_label(section_.kind, section_.layer).c_str());
  }
  const TilePlan& plan = plan_[section_.tiles.size()];
  if (raw.size() != plan.raw_bytes) {
    return invalid_argument("%s: %s: tile %zu has %zu bytes, expected %u", file_.path().c_str(),
                            section_label(section_.kind, section_.layer).c_str(),
                            section_.tiles.size(), raw.size(), plan.raw_bytes);
  }
  QSF_RETURN_IF_ERROR(compress_tile(section_.compression, raw, compressed_));
  const ByteSpan stored = compressed_.empty() ? raw : ByteSpan(compressed_);
  const std::uint64_t offset = align_up(section_end_, kSectionAlign);
  QSF_RETURN_IF_ERROR(file_.write_at(offset, stored));
  data_crc_ = crc32(stored, crc32_zeros(data_crc_, offset - section_end_));
  section_end_ = offset + stored.size();
  section_.tiles.push_back({.file_offset = offset,
                            .stored_bytes = static_cast<std::uint32_t>(stored.size()),
                            .raw_bytes = plan.raw_bytes,
                            .crc = crc32(stored),
                            .tensor = plan.tensor,
                            .first_row = plan.first_row,
                            .n_rows = plan.n_rows});
  section_.raw_bytes += raw.size();
  return ok_status();
}

Status QsfWriter::end_section(float importance) {
  const std::string label = section_label(section_.kind, section_.layer);
  if (!in_section_ || section_.tiles.size() != plan_.size()) {
    return invalid_argument("%s: %s ends with %zu of %zu tiles", file_.path().c_str(),
                            label.c_str(), section_.tiles.size(), plan_.size());
  }
  if (!std::isfinite(importance) || importance < 0.0F ||
      (importance != 0.0F && section_.kind != SectionKind::kLayer)) {
    return invalid_argument(
        "%s: %s: importance %g, expected a finite number >= 0 and 0 outside "
        "layers",
        file_.path().c_str(), label.c_str(), static_cast<double>(importance));
  }
  std::vector<std::byte> directory = encode_directory(section_, spec_.block);
  directory.resize(static_cast<std::size_t>(directory_bytes_));
  QSF_RETURN_IF_ERROR(file_.write_at(section_.file_offset, directory));
  section_.stored_bytes = section_end_ - section_.file_offset;
  const std::uint32_t crc =
      crc32_combine(crc32(directory), data_crc_, section_.stored_bytes - directory_bytes_);
  if (section_.stored_bytes > kMaxSectionBytes) {
    return unsupported("%s: %s has %llu bytes, a section holds less than 2^48",
                       file_.path().c_str(), label.c_str(),
                       static_cast<unsigned long long>(section_.stored_bytes));
  }
  if (section_.kind == SectionKind::kLayer) {
    ByteWriter entry;
    entry.write(section_.file_offset);
    entry.write(static_cast<std::uint32_t>(section_.stored_bytes));
    entry.write(static_cast<std::uint32_t>(section_.raw_bytes));
    entry.write(common_type(section_.tensors));
    entry.write(static_cast<std::uint8_t>(section_.compression));
    entry.write(static_cast<std::uint16_t>(section_.tensors.size()));
    entry.write(crc);
    entry.write(importance);
    entry.write(static_cast<std::uint16_t>(section_.stored_bytes >> 32));
    entry.write(static_cast<std::uint16_t>(section_.raw_bytes >> 32));
    QSF_CHECK(entry.size() == kIndexEntryBytes);
    index_.insert(index_.end(), entry.bytes().begin(), entry.bytes().end());
  } else {
    sections_.push_back({.name = label,
                         .offset = section_.file_offset,
                         .bytes = section_.stored_bytes,
                         .crc = crc,
                         .required = true,
                         .n_tensors = static_cast<std::uint32_t>(section_.tensors.size()),
                         .compression = section_.compression,
                         .type = common_type(section_.tensors)});
  }
  raw_bytes_ += section_.raw_bytes;
  stored_bytes_ += section_.stored_bytes;
  end_ = align_up(section_end_, kSectionAlign);
  in_section_ = false;
  return ok_status();
}

std::vector<std::byte> QsfWriter::encode_metadata(std::uint64_t file_bytes) const {
  Metadata metadata = encode_spec_metadata(spec_);
  metadata.set_u64(keys::kFileBytes, file_bytes, true);
  std::vector<WrittenSection> sorted = sections_;
  std::sort(sorted.begin(), sorted.end(),
            [](const WrittenSection& a, const WrittenSection& b) { return a.name < b.name; });
  ByteWriter to;
  to.write(std::uint32_t{0});
  to.write(std::uint32_t{0});
  to.write(static_cast<std::uint32_t>(metadata.entries().size()));
  to.write(static_cast<std::uint32_t>(sorted.size()));
  metadata.encode(to);
  for (const WrittenSection& section : sorted) {
    std::string name = section.name;
    name.resize(kSectionNameBytes);
    to.write_text(name);
    to.write(section.offset);
    to.write(section.bytes);
    to.write(section.crc);
    to.write(section.required ? kSectionRequired : 0U);
    to.write(section.n_tensors);
    to.write(static_cast<std::uint8_t>(section.compression));
    to.write(section.type);
    to.write(std::uint16_t{0});
  }
  store_le(to.bytes(), metadata_at::kPayload,
           static_cast<std::uint32_t>(to.size() - kMetadataHeaderBytes));
  store_le(to.bytes(), metadata_at::kCrc, crc32(to.view().subspan(metadata_at::kPayload)));
  return std::move(to.bytes());
}

Status QsfWriter::write_header(std::uint64_t metadata_offset, std::uint64_t file_bytes) {
  namespace at = header_at;
  std::array<std::byte, kHeaderBytes> h{};
  const auto offset_of = [this](std::string_view name) -> std::uint64_t {
    for (const WrittenSection& section : sections_) {
      if (section.name == name) return section.offset;
    }
    return 0;
  };
  std::copy_n(as_bytes(kQsfMagic).begin(), kQsfMagic.size(), h.begin());
  store_le(h, at::kVersion, kQsfVersion);
  store_le(h, at::kHeaderSize, static_cast<std::uint32_t>(kHeaderBytes));
  encode_spec_header(spec_, h);
  store_le(h, at::kIndexOffset, offset_of("layer_index"));
  store_le(h, at::kEmbeddingOffset, offset_of("embedding"));
  store_le(h, at::kFinalOffset, offset_of("final"));
  store_le(h, at::kTokenizerOffset, offset_of("tokenizer"));
  store_le(h, at::kMetadataOffset, metadata_offset);
  store_le(h, at::kFileSizeLow, static_cast<std::uint32_t>(file_bytes));
  store_le(h, at::kCrc, crc32(ByteSpan(h).first(at::kCrc)));
  store_le(h, at::kCrc2,
           crc32(ByteSpan(h).subspan(at::kTokenizerOffset, at::kCrc2 - at::kTokenizerOffset)));
  return file_.write_at(0, h);
}

Status QsfWriter::finish() {
  if (in_section_ || finished_ || n_begun_ != spec_.n_layers + 2) {
    return invalid_argument("%s: finished with %u of %u tensor sections", file_.path().c_str(),
                            n_begun_ - (in_section_ ? 1 : 0), spec_.n_layers + 2);
  }
  QSF_RETURN_IF_ERROR(write_plain_section("layer_index", index_, true));
  const std::uint64_t metadata_offset = end_;
  // The size of the file is a number of fixed width inside the metadata, so it changes no length.
  const std::uint64_t file_bytes =
      align_up(metadata_offset + encode_metadata(0).size(), kSectionAlign);
  const std::vector<std::byte> metadata = encode_metadata(file_bytes);
  if (metadata.size() - kMetadataHeaderBytes > kMaxMetadataBytes ||
      sections_.size() > kMaxSections || spec_.extra.entries().size() > kMaxMetadataKeys / 2) {
    return unsupported(
        "%s: %zu bytes of metadata in %zu extra keys and %zu sections are more than "
        "the format allows",
        file_.path().c_str(), metadata.size(), spec_.extra.entries().size(), sections_.size());
  }
  QSF_RETURN_IF_ERROR(file_.write_at(metadata_offset, metadata));
  QSF_RETURN_IF_ERROR(write_header(metadata_offset, file_bytes));
  QSF_RETURN_IF_ERROR(file_.resize(file_bytes));
  finished_ = true;
  return file_.commit();
}

}  // namespace qsf
