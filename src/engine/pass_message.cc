// SPDX-License-Identifier: MIT
//
// The bytes of a pass message: a head, the changes, the rows, a CRC-32 of all before it.

#include "engine/pass_message.h"

#include "base/crc32.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMagic = 0x50465351;  // "QSFP"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeadBytes = 24;
constexpr std::size_t kChangeBytes = 12;
constexpr std::size_t kRowBytes = 44;
constexpr std::size_t kCrcBytes = 4;

void write_row(const Row& row, ByteWriter& to) {
  to.write(row.sequence);
  to.write(row.token);
  to.write(row.position);
  to.write(row.kv_slot);
  to.write(static_cast<std::uint8_t>(row.role));
  to.write(static_cast<std::uint8_t>(row.wants_output ? 1 : 0));
  to.write(row.adapter);
  to.write(row.visible.prefix);
  to.write(row.visible.sinks);
  to.write(row.visible.first);
  to.write(row.adapter_scale);
  to.write(row.visible.ancestors);
}

Row read_row(ByteReader& from) {
  Row row;
  row.sequence = from.read<std::uint32_t>();
  row.token = from.read<std::uint32_t>();
  row.position = from.read<std::int32_t>();
  row.kv_slot = from.read<std::uint32_t>();
  row.role = static_cast<RowRole>(from.read<std::uint8_t>());
  row.wants_output = from.read<std::uint8_t>() != 0;
  row.adapter = from.read<std::uint16_t>();
  row.visible.prefix = from.read<std::uint32_t>();
  row.visible.sinks = from.read<std::uint32_t>();
  row.visible.first = from.read<std::uint32_t>();
  row.adapter_scale = from.read<float>();
  row.visible.ancestors = from.read<std::uint64_t>();
  return row;
}

}  // namespace

void encode(const PassMessage& message, std::vector<std::byte>& bytes) {
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(kVersion);
  writer.write(message.pass);
  writer.write(static_cast<std::uint32_t>(message.changes.size()));
  writer.write(static_cast<std::uint32_t>(message.rows.size()));
  for (const SequenceChange& change : message.changes) {
    writer.write(static_cast<std::uint32_t>(change.kind));
    writer.write(change.sequence);
    writer.write(change.value);
  }
  for (const Row& row : message.rows) write_row(row, writer);
  writer.write(crc32(writer.view()));
  bytes.insert(bytes.end(), writer.view().begin(), writer.view().end());
}

Result<ReceivedPass> decode_pass(ByteSpan bytes) {
  if (bytes.size() < kHeadBytes + kCrcBytes) {
    return corrupt("pass message: %zu bytes, expected at least %zu", bytes.size(),
                   kHeadBytes + kCrcBytes);
  }
  ByteReader reader(bytes);
  const auto magic = reader.read<std::uint32_t>();
  const auto version = reader.read<std::uint32_t>();
  if (magic != kMagic || version != kVersion) {
    return corrupt("pass message: offset 0: magic %08x version %u, expected %08x and %u", magic,
                   version, kMagic, kVersion);
  }
  ReceivedPass pass;
  pass.pass = reader.read<std::uint64_t>();
  const std::uint64_t n_changes = reader.read<std::uint32_t>();
  const std::uint64_t n_rows = reader.read<std::uint32_t>();
  const std::uint64_t expected =
      kHeadBytes + n_changes * kChangeBytes + n_rows * kRowBytes + kCrcBytes;
  if (bytes.size() != expected) {
    return corrupt("pass message: %zu bytes, expected %llu for %llu changes and %llu rows",
                   bytes.size(), static_cast<unsigned long long>(expected),
                   static_cast<unsigned long long>(n_changes),
                   static_cast<unsigned long long>(n_rows));
  }
  const std::size_t end = bytes.size() - kCrcBytes;
  const auto stored = load_le<std::uint32_t>(bytes, end);
  const std::uint32_t computed = crc32(bytes.first(end));
  if (stored != computed) {
    return corrupt("pass message: offset %zu: checksum %08x, expected %08x", end, stored, computed);
  }
  for (std::uint64_t i = 0; i < n_changes; ++i) {
    const std::size_t at = reader.position();
    const auto kind = reader.read<std::uint32_t>();
    if (kind > static_cast<std::uint32_t>(SequenceChange::Kind::kFree)) {
      return corrupt("pass message: offset %zu: change %u, expected 0 to 3", at, kind);
    }
    const auto sequence = reader.read<std::uint32_t>();
    const auto value = reader.read<std::uint32_t>();
    pass.changes.push_back({static_cast<SequenceChange::Kind>(kind), sequence, value});
  }
  for (std::uint64_t i = 0; i < n_rows; ++i) {
    const std::size_t at = reader.position();
    pass.rows.push_back(read_row(reader));
    if (pass.rows.back().role > RowRole::kDrafted) {
      return corrupt("pass message: offset %zu: row %llu has no known role", at,
                     static_cast<unsigned long long>(i));
    }
  }
  return pass;
}

}  // namespace qsf
