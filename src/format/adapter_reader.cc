// SPDX-License-Identifier: MIT

#include "format/adapter_reader.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/crc32.h"
#include "base/fnv1a.h"
#include "format/adapter_layout.h"

namespace qsf {
namespace {

// The fields in front of the names.
struct Head {
  std::uint32_t crc = 0;
  std::uint32_t n_pairs = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t fingerprint = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t architecture_bytes = 0;

  std::uint64_t names_bytes() const noexcept {
    return std::uint64_t{name_bytes} + architecture_bytes;
  }
};

Status check_count(const char* field, std::uint32_t value, std::uint64_t most) {
  if (value >= 1 && value <= most) return ok_status();
  return corrupt("%s: %u, expected 1 to %" PRIu64, field, value, most);
}

// Reads the head and checks its counts, on which the size of the rest depends.
Result<Head> parse_head(ByteSpan bytes) {
  if (as_text(bytes.first(kAdapterMagic.size())) != kAdapterMagic) {
    return corrupt("not an adapter file: expected it to begin with \"QSFA\"");
  }
  const auto version = load_le<std::uint32_t>(bytes, adapter_at::kVersion);
  if (version != kAdapterVersion) {
    return unsupported("adapter file of version %u; this program reads version %u", version,
                       kAdapterVersion);
  }
  const Head head = {
      .crc = load_le<std::uint32_t>(bytes, adapter_at::kCrc),
      .n_pairs = load_le<std::uint32_t>(bytes, adapter_at::kPairs),
      .file_bytes = load_le<std::uint64_t>(bytes, adapter_at::kFileBytes),
      .fingerprint = load_le<std::uint64_t>(bytes, adapter_at::kFingerprint),
      .name_bytes = load_le<std::uint32_t>(bytes, adapter_at::kNameBytes),
      .architecture_bytes = load_le<std::uint32_t>(bytes, adapter_at::kArchitectureBytes)};
  QSF_RETURN_IF_ERROR(check_count("matrices", head.n_pairs, kMaxAdapterPairs));
  QSF_RETURN_IF_ERROR(check_count("bytes of the name", head.name_bytes, kMaxAdapterNameBytes));
  QSF_RETURN_IF_ERROR(check_count("bytes of the architecture", head.architecture_bytes, 64));
  return head;
}

bool is_zero(ByteSpan bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

AdapterPair decode_entry(ByteSpan entry) {
  return {.kind = static_cast<TensorKind>(load_le<std::uint32_t>(entry, adapter_pair_at::kKind)),
          .layer = load_le<std::uint32_t>(entry, adapter_pair_at::kLayer),
          .expert = load_le<std::uint32_t>(entry, adapter_pair_at::kExpert),
          .rank = load_le<std::uint32_t>(entry, adapter_pair_at::kRank),
          .in = load_le<std::uint32_t>(entry, adapter_pair_at::kIn),
          .out = load_le<std::uint32_t>(entry, adapter_pair_at::kOut),
          .scale = load_le<float>(entry, adapter_pair_at::kScale),
          .type = static_cast<AdapterType>(load_le<std::uint32_t>(entry, adapter_pair_at::kType))};
}

// Returns the index of the first value that is infinite or NaN; n where none is.
std::uint64_t find_infinite(ByteSpan values, AdapterType type) noexcept {
  const std::uint64_t n = values.size() / adapter_value_bytes(type);
  for (std::uint64_t i = 0; i < n; ++i) {
    const bool infinite =
        type == AdapterType::kF16
            ? (load_le<std::uint16_t>(values, 2 * i) & 0x7C00U) == 0x7C00U
            : (load_le<std::uint32_t>(values, 4 * i) & 0x7F800000U) == 0x7F800000U;
    if (infinite) return i;
  }
  return n;
}

// Checks one of both matrices, without its padding and with it.
Status check_matrix(ByteSpan padded, std::uint64_t n_values, AdapterType type, const char* name) {
  const std::uint64_t n_bytes = n_values * adapter_value_bytes(type);
  const std::uint64_t bad = find_infinite(padded.first(n_bytes), type);
  if (bad != n_values) {
    return corrupt("element %" PRIu64 " of %s is not a finite number", bad, name);
  }
  if (is_zero(padded.subspan(n_bytes))) return ok_status();
  return corrupt("the padding of %s is not zero", name);
}

}  // namespace

Status AdapterReader::load() {
  std::array<std::byte, kAdapterHeadBytes> start{};
  if (file_.size_bytes() < start.size()) {
    return corrupt("%" PRIu64 " bytes, too short for an adapter file", file_.size_bytes());
  }
  QSF_RETURN_IF_ERROR(file_.read_exact_at(0, start));
  QSF_ASSIGN_OR_RETURN(const Head head, parse_head(start));
  const std::uint64_t data = adapter_data_offset(head.names_bytes(), head.n_pairs);
  if (head.file_bytes != file_.size_bytes() || data > head.file_bytes) {
    return corrupt("%" PRIu64 " bytes with a stated size of %" PRIu64
                   ", and %u matrices; the file is truncated or damaged",
                   file_.size_bytes(), head.file_bytes, head.n_pairs);
  }
  std::vector<std::byte> bytes(data);
  QSF_RETURN_IF_ERROR(file_.read_exact_at(0, bytes));
  const ByteSpan front = bytes;
  const std::uint32_t crc = crc32(front.subspan(adapter_at::kPairs));
  if (options_.verify_crc && crc != head.crc) {
    return corrupt("header: checksum %08x, expected %08x; the file is damaged", crc, head.crc);
  }
  fingerprint_ = fnv1a(front.subspan(adapter_at::kPairs));
  spec_.base_fingerprint = head.fingerprint;
  spec_.name = as_text(front.subspan(kAdapterHeadBytes, head.name_bytes));
  spec_.architecture =
      as_text(front.subspan(kAdapterHeadBytes + head.name_bytes, head.architecture_bytes));
  const std::uint64_t entries = adapter_entries_offset(head.names_bytes());
  const std::uint64_t names_end = kAdapterHeadBytes + head.names_bytes();
  const std::uint64_t entries_end = entries + std::uint64_t{head.n_pairs} * kAdapterEntryBytes;
  if (!is_zero(front.subspan(names_end, entries - names_end)) ||
      !is_zero(front.subspan(entries_end))) {
    return corrupt("header: the padding is not zero");
  }
  spec_.pairs.reserve(head.n_pairs);
  return parse_entries(front.first(entries_end), entries);
}

// Reads the directory and finds the place of every pair.
Status AdapterReader::parse_entries(ByteSpan front, std::uint64_t entries) {
  for (std::uint64_t at = entries; at < front.size(); at += kAdapterEntryBytes) {
    const ByteSpan entry = front.subspan(at, kAdapterEntryBytes);
    spec_.pairs.push_back(decode_entry(entry));
    crcs_.push_back(load_le<std::uint32_t>(entry, adapter_pair_at::kCrc));
    if (load_le<std::uint32_t>(entry, adapter_pair_at::kReserved) == 0) continue;
    return corrupt("%s: bytes 36 to 39 of its entry are not zero",
                   adapter_pair_label(spec_.pairs.back()).c_str());
  }
  if (const Status valid = validate(spec_); !valid.ok()) {
    return {StatusCode::kCorrupt, valid.message()};
  }
  const std::uint64_t data = align_up(front.size(), kAdapterAlign);
  for (const AdapterPair& pair : spec_.pairs) {
    offsets_.push_back(data + values_bytes_);
    values_bytes_ += adapter_pair_bytes(pair);
  }
  if (data + values_bytes_ == file_.size_bytes()) return ok_status();
  return corrupt("%" PRIu64 " bytes, expected %" PRIu64 " for its matrices", file_.size_bytes(),
                 data + values_bytes_);
}

Result<AdapterReader> AdapterReader::open(File file, AdapterReadOptions options) {
  AdapterReader reader(std::move(file), options);
  Status status = reader.load();
  if (!status.ok()) {
    if (status.message().starts_with(reader.file_.path())) return status;
    return std::move(status).with_context(reader.file_.path());
  }
  return reader;
}

Result<AdapterReader> AdapterReader::open(const std::string& path, AdapterReadOptions options,
                                          FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(File file, File::open(path, ops));
  return open(std::move(file), options);
}

Status AdapterReader::read_pair(std::size_t index, MutableByteSpan stored) const {
  QSF_CHECK(index < spec_.pairs.size());
  const AdapterPair& pair = spec_.pairs[index];
  QSF_CHECK(stored.size() == adapter_pair_bytes(pair));
  QSF_RETURN_IF_ERROR(file_.read_exact_at(offsets_[index], stored));
  const std::string where = file_.path() + ": " + adapter_pair_label(pair);
  const std::uint32_t crc = crc32(stored);
  if (options_.verify_crc && crc != crcs_[index]) {
    return corrupt("%s: checksum %08x, expected %08x; the file is damaged", where.c_str(), crc,
                   crcs_[index]);
  }
  const std::uint64_t a_bytes = adapter_a_bytes(pair);
  QSF_RETURN_IF_ERROR(
      check_matrix(stored.first(a_bytes), pair.a_values(), pair.type, "A").with_context(where));
  return check_matrix(stored.subspan(a_bytes), pair.b_values(), pair.type, "B").with_context(where);
}

Result<bool> is_adapter_file(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, ops));
  std::array<std::byte, kAdapterMagic.size()> start{};
  if (file.size_bytes() < start.size()) return false;
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, start));
  return as_text(start) == kAdapterMagic;
}

}  // namespace qsf
