// SPDX-License-Identifier: MIT
//
// Pages from the operating system, and how many of them this process holds.

#ifndef QSF_PLATFORM_MEMORY_H_
#define QSF_PLATFORM_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace qsf {

// Whether a mapping may use huge pages: fewer TLB misses for weights that are read whole; but one
// touched byte can become 2 MiB, so only what is touched throughout wants them.
enum class HugePages { kAllow, kNever };

// Bytes of a page; a power of two.
std::size_t page_bytes() noexcept;

// Maps private zeroed memory, rounded up to whole pages. The span returned has exactly n_bytes.
// Fails  kInvalidArgument for 0 bytes; kOutOfBudget when the system refuses, with its reason
Result<MutableByteSpan> map_pages(std::uint64_t n_bytes, HugePages huge_pages);

// Returns a mapping to the system. Requires  exactly a span that map_pages returned, or an empty
// one
void unmap_pages(MutableByteSpan pages) noexcept;

// Gives the memory behind part of a mapping back to the system, whole pages of it; they read as
// zeros from then on. Requires  inside a span that map_pages returned
void discard_pages(MutableByteSpan bytes) noexcept;

// Makes all pages of a span physical memory now instead of when they are first written; its bytes
// stay. Requires  nobody else writes there meanwhile
void touch_pages(MutableByteSpan bytes) noexcept;

// Bytes of physical memory this process holds now, and the most it ever held; 0 when the system
// does not say.
std::uint64_t resident_bytes() noexcept;
std::uint64_t peak_resident_bytes() noexcept;

}  // namespace qsf

#endif  // QSF_PLATFORM_MEMORY_H_
