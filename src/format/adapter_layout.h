// SPDX-License-Identifier: MIT
//
// The bytes of an adapter file, version 1, as reader and writer share them.
//
// Based on: docs/format-adapter.md, which is the authority. Nothing here may change for version 1.

#ifndef QSF_FORMAT_ADAPTER_LAYOUT_H_
#define QSF_FORMAT_ADAPTER_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "format/adapter_spec.h"

namespace qsf {

inline constexpr std::string_view kAdapterMagic = "QSFA";
inline constexpr std::uint32_t kAdapterVersion = 1;
inline constexpr std::size_t kAdapterHeadBytes = 40;  // in front of the names
inline constexpr std::size_t kAdapterEntryBytes = 40;

// Offsets in the head. The CRC covers all from byte 12 to the data.
namespace adapter_at {
inline constexpr std::size_t kMagic = 0, kVersion = 4, kCrc = 8, kPairs = 12, kFileBytes = 16,
                             kFingerprint = 24, kNameBytes = 32, kArchitectureBytes = 36;
static_assert(kCrc + 4 == kPairs && kFileBytes + 8 == kFingerprint);
static_assert(kArchitectureBytes + 4 == kAdapterHeadBytes);
}  // namespace adapter_at

// Offsets in the entry of a pair. The CRC covers A and B with their padding.
namespace adapter_pair_at {
inline constexpr std::size_t kKind = 0, kLayer = 4, kExpert = 8, kRank = 12, kIn = 16, kOut = 20,
                             kScale = 24, kType = 28, kCrc = 32, kReserved = 36;
static_assert(kReserved + 4 == kAdapterEntryBytes);
}  // namespace adapter_pair_at

// Where entries and data begin, from the lengths of the names and the number of pairs.
// Requires  these are within their limits: no overflow then
constexpr std::uint64_t adapter_entries_offset(std::uint64_t name_bytes) noexcept {
  return align_up(kAdapterHeadBytes + name_bytes, kAdapterAlign);
}
constexpr std::uint64_t adapter_data_offset(std::uint64_t name_bytes,
                                            std::uint64_t n_pairs) noexcept {
  return align_up(adapter_entries_offset(name_bytes) + n_pairs * kAdapterEntryBytes, kAdapterAlign);
}

}  // namespace qsf

#endif  // QSF_FORMAT_ADAPTER_LAYOUT_H_
