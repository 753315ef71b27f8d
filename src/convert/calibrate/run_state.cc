// SPDX-License-Identifier: MIT
//
// The file: magic and version, the numbers of all parts, their CRC. What writes it reads it, with
// the same model and text, so it has nothing that says how long it is.

#include "convert/calibrate/run_state.h"

#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/crc32.h"
#include "io/atomic_file.h"
#include "io/file.h"

namespace qsf {
namespace {

constexpr std::string_view kMagicAndVersion = "QSFG\1";

template <typename T>
MutableByteSpan bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Status damaged(const std::string& path) {
  return corrupt("%s: of another run, or damaged; remove this file and run again", path.c_str());
}

}  // namespace

std::vector<MutableByteSpan> RunState::parts() {
  std::vector<MutableByteSpan> parts = {bytes_of(n_summed), bytes_of(n_skipped),
                                        std::as_writable_bytes(std::span(losses)),
                                        std::as_writable_bytes(std::span(skip_losses))};
  for (const MutableByteSpan part : sums.parts()) parts.push_back(part);
  return parts;
}

Status RunState::read(const std::string& path, FileOps& ops) {
  const auto file = File::open(path, ops);
  if (!file && file.error().code() == StatusCode::kNotFound) return ok_status();
  if (!file) return Status(file.error());
  std::uint32_t crc = 0;
  std::uint32_t stored = 0;
  std::uint64_t n_bytes = kMagicAndVersion.size() + sizeof crc;
  for (const MutableByteSpan part : parts()) n_bytes += part.size();
  if (file->size_bytes() != n_bytes) return damaged(path);
  std::array<std::byte, kMagicAndVersion.size()> start;
  QSF_RETURN_IF_ERROR(file->read_exact_at(0, start));
  std::uint64_t at = start.size();
  for (const MutableByteSpan part : parts()) {
    QSF_RETURN_IF_ERROR(file->read_exact_at(at, part));
    crc = crc32(part, crc);
    at += part.size();
  }
  QSF_RETURN_IF_ERROR(file->read_exact_at(at, bytes_of(stored)));
  if (as_text(start) == kMagicAndVersion && crc == stored && n_summed <= losses.size() &&
      n_skipped <= skip_losses.size()) {
    return ok_status();
  }
  return damaged(path);
}

Status RunState::write(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, ops));
  QSF_RETURN_IF_ERROR(file.write_at(0, as_bytes(kMagicAndVersion)));
  std::uint64_t at = kMagicAndVersion.size();
  std::uint32_t crc = 0;
  for (const MutableByteSpan part : parts()) {
    QSF_RETURN_IF_ERROR(file.write_at(at, part));
    crc = crc32(part, crc);
    at += part.size();
  }
  QSF_RETURN_IF_ERROR(file.write_at(at, bytes_of(crc)));
  return file.commit();
}

}  // namespace qsf
