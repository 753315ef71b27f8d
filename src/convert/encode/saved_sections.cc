// SPDX-License-Identifier: MIT
//
// A file: the shape of its section, error sums of every tensor, a CRC of every tile, the CRC of all
// of these; then the tiles. The reader has the shape, which gives the length of each part.

#include "convert/encode/saved_sections.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "base/ranges.h"

namespace qsf {
namespace {

constexpr std::string_view kMagic = "QSFS";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kSumsPerTensor = 6;
constexpr std::size_t kCrcBytes = sizeof(std::uint32_t);

std::vector<std::byte> shape_of(const SectionPlan& plan) {
  QSF_CHECK(plan.tensors.size() == plan.choices.size());
  ByteWriter to;
  to.write_text(kMagic);
  to.write(kVersion);
  to.write(static_cast<std::uint32_t>(plan.tensors.size()));
  to.write(static_cast<std::uint32_t>(plan.tiles.size()));
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorInfo& info = plan.tensors[i];
    for (const std::uint32_t value :
         {static_cast<std::uint32_t>(info.kind), info.rows, info.cols,
          static_cast<std::uint32_t>(info.format.type), std::uint32_t{info.format.block},
          static_cast<std::uint32_t>(info.layout), std::uint32_t{info.expert},
          std::uint32_t{plan.choices[i].kept ? 1U : 0U}}) {
      to.write(value);
    }
  }
  for (const TilePlan& tile : plan.tiles) {
    for (const std::uint32_t value : {tile.tensor, tile.first_row, tile.n_rows, tile.raw_bytes}) {
      to.write(value);
    }
  }
  return std::move(to.bytes());
}

std::uint64_t head_bytes(std::size_t shape_bytes, std::size_t n_tensors, std::size_t n_tiles) {
  return shape_bytes + n_tensors * kSumsPerTensor * sizeof(double) + n_tiles * kCrcBytes +
         kCrcBytes;
}

Status damaged(const File& file, std::uint64_t offset) {
  return corrupt("%s: checksum at offset %llu does not match; remove this file and run again",
                 file.path().c_str(), static_cast<unsigned long long>(offset));
}

}  // namespace

Status SavedSection::read_tile(MutableByteSpan to) {
  QSF_CHECK(n_read_ < crcs_.size());
  QSF_RETURN_IF_ERROR(file_.read_exact_at(offset_, to));
  if (crc32(to) != crcs_[n_read_]) return damaged(file_, offset_);
  offset_ += to.size();
  ++n_read_;
  return ok_status();
}

SectionSaver::SectionSaver(AtomicFile file, std::vector<std::byte> shape, const SectionPlan& plan)
    : file_(std::move(file)),
      shape_(std::move(shape)),
      n_tensors_(plan.tensors.size()),
      n_tiles_(plan.tiles.size()),
      offset_(head_bytes(shape_.size(), n_tensors_, n_tiles_)) {}

Status SectionSaver::add_tile(ByteSpan raw) {
  QSF_CHECK(crcs_.size() < n_tiles_);
  QSF_RETURN_IF_ERROR(file_.write_at(offset_, raw));
  crcs_.push_back(crc32(raw));
  offset_ += raw.size();
  return ok_status();
}

Status SectionSaver::finish(std::span<const ErrorSums> sums) {
  QSF_CHECK(crcs_.size() == n_tiles_ && sums.size() == n_tensors_);
  ByteWriter head;
  head.write_bytes(shape_);
  for (const ErrorSums& s : sums) {
    for (const double sum : {s.ww, s.qq, s.wq, s.dd, s.weighted_ww, s.weighted_dd}) head.write(sum);
  }
  for (const std::uint32_t crc : crcs_) head.write(crc);
  head.write(crc32(head.view()));
  QSF_RETURN_IF_ERROR(file_.write_at(0, head.view()));
  QSF_RETURN_IF_ERROR(file_.drop_cached());
  return file_.commit();
}

std::string SavedSections::path_of(const SectionId& id) const {
  std::string label = id.label();
  ranges::replace(label, ' ', '-');
  return folder_ + "/" + kPrefix + label;
}

Result<std::optional<SavedSection>> SavedSections::find(const SectionPlan& plan) const {
  auto file = File::open(path_of(plan.id), ops_);
  if (!file && file.error().code() == StatusCode::kNotFound) return std::optional<SavedSection>();
  if (!file) return std::move(file).error();
  const std::vector<std::byte> shape = shape_of(plan);
  const std::uint64_t n_bytes = head_bytes(shape.size(), plan.tensors.size(), plan.tiles.size());
  // A plan of another size has a head of another size, so the shape is compared first.
  std::vector<std::byte> head(n_bytes);
  if (file->size_bytes() < n_bytes) return std::optional<SavedSection>();
  QSF_RETURN_IF_ERROR(file->read_exact_at(0, head));
  if (!std::equal(shape.begin(), shape.end(), head.begin())) return std::optional<SavedSection>();
  std::uint64_t whole_bytes = n_bytes;
  for (const TilePlan& tile : plan.tiles) whole_bytes += tile.raw_bytes;
  if (file->size_bytes() != whole_bytes) {
    return corrupt("%s: %llu bytes, expected %llu; remove this file and run again",
                   file->path().c_str(), static_cast<unsigned long long>(file->size_bytes()),
                   static_cast<unsigned long long>(whole_bytes));
  }
  ByteReader from(head);
  from.skip(shape.size());
  SavedSection section(std::move(*file));
  section.sums_.resize(plan.tensors.size());
  for (ErrorSums& s : section.sums_) {
    for (double* sum : {&s.ww, &s.qq, &s.wq, &s.dd, &s.weighted_ww, &s.weighted_dd}) {
      *sum = from.read<double>();
    }
  }
  section.crcs_.resize(plan.tiles.size());
  for (std::uint32_t& crc : section.crcs_) crc = from.read<std::uint32_t>();
  const std::size_t at = from.position();
  if (from.read<std::uint32_t>() != crc32(ByteSpan(head).first(at))) {
    return damaged(section.file_, at);
  }
  section.offset_ = n_bytes;
  return std::optional<SavedSection>(std::move(section));
}

Result<SectionSaver> SavedSections::begin(const SectionPlan& plan) const {
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path_of(plan.id), ops_));
  return SectionSaver(std::move(file), shape_of(plan), plan);
}

}  // namespace qsf
