// SPDX-License-Identifier: MIT

#include "ranks/frame.h"

#include <cstring>

#include "base/crc32.h"

namespace qsf {
namespace {

constexpr std::uint32_t kFrameMagic = 0x52465351;  // "QSFR"
constexpr std::uint32_t kFrameVersion = 1;
constexpr std::size_t kFrameHeaderBytes = 40;
constexpr std::size_t kCrcAt = 36;

// The header's CRC field is taken as 0.
std::uint32_t crc_of(ByteSpan bytes) {
  constexpr std::byte kZeros[4] = {};
  const std::uint32_t head = crc32(kZeros, crc32(bytes.first(kCrcAt)));
  return crc32(bytes.subspan(kFrameHeaderBytes), head);
}

}  // namespace

std::vector<std::byte> encode_frame(const FrameHeader& header, ByteSpan payload) {
  std::vector<std::byte> bytes(kFrameHeaderBytes + payload.size());
  const MutableByteSpan to = bytes;
  store_le(to, 0, kFrameMagic);
  store_le(to, 4, kFrameVersion);
  store_le(to, 8, static_cast<std::uint32_t>(header.kind));
  store_le(to, 12, header.window);
  store_le(to, 16, header.pass);
  store_le(to, 24, header.n_rows);
  store_le(to, 28, header.n_cols);
  store_le(to, 32, static_cast<std::uint32_t>(payload.size()));
  if (!payload.empty())
    std::memcpy(bytes.data() + kFrameHeaderBytes, payload.data(), payload.size());
  store_le(to, kCrcAt, crc_of(bytes));
  return bytes;
}

Result<Frame> decode_frame(ByteSpan bytes) {
  if (bytes.size() < kFrameHeaderBytes) {
    return corrupt("message of %zu bytes, expected at least %zu", bytes.size(), kFrameHeaderBytes);
  }
  if (load_le<std::uint32_t>(bytes, 0) != kFrameMagic) return corrupt("message: not of QSF");
  if (const auto version = load_le<std::uint32_t>(bytes, 4); version != kFrameVersion) {
    return corrupt("message of version %u, expected %u; run the same QSF on every rank", version,
                   kFrameVersion);
  }
  const auto kind = load_le<std::uint32_t>(bytes, 8);
  if (kind < static_cast<std::uint32_t>(FrameKind::kOpen) ||
      kind > static_cast<std::uint32_t>(FrameKind::kEnd)) {
    return corrupt("message of kind %u, expected 1 to %u", kind,
                   static_cast<unsigned>(FrameKind::kEnd));
  }
  if (load_le<std::uint32_t>(bytes, 32) != bytes.size() - kFrameHeaderBytes) {
    return corrupt("message: %u bytes behind its header, expected %zu",
                   load_le<std::uint32_t>(bytes, 32), bytes.size() - kFrameHeaderBytes);
  }
  if (load_le<std::uint32_t>(bytes, kCrcAt) != crc_of(bytes)) {
    return corrupt("message: its checksum is wrong");
  }
  return Frame{.header = {.kind = static_cast<FrameKind>(kind),
                          .pass = load_le<std::uint64_t>(bytes, 16),
                          .window = load_le<std::uint32_t>(bytes, 12),
                          .n_rows = load_le<std::uint32_t>(bytes, 24),
                          .n_cols = load_le<std::uint32_t>(bytes, 28)},
               .payload = bytes.subspan(kFrameHeaderBytes)};
}

}  // namespace qsf
