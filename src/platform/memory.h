// SPDX-License-Identifier: MIT
//
// Memory pages from the operating system, and the number of bytes that this process holds.

#ifndef QSF_PLATFORM_MEMORY_H_
#define QSF_PLATFORM_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace qsf {

// Whether a mapping may use huge pages. They cause fewer TLB misses for weights that are read
// whole, but one touched byte can take 2 MiB, so they suit only memory that is used completely.
enum class HugePages { kAllow, kNever };

// Bytes of a page; a power of two.
std::size_t page_bytes() noexcept;

// Maps private zeroed memory, rounded up to whole pages. The span returned has exactly n_bytes.
// Fails  kInvalidArgument for 0 bytes; kOutOfBudget when the system refuses, with its reason
Result<MutableByteSpan> map_pages(std::uint64_t n_bytes, HugePages huge_pages);

// Returns a mapping to the system.
// Requires  a span that map_pages returned, or an empty one
void unmap_pages(MutableByteSpan pages) noexcept;

// Returns the part of `bytes` that consists of whole pages of `page` bytes, a power of two; empty
// when there is none.
MutableByteSpan whole_pages(MutableByteSpan bytes, std::size_t page) noexcept;

// Returns the whole pages inside a part of a mapping to the system; they read as zeros afterwards.
// Requires  inside a span that map_pages returned
void discard_pages(MutableByteSpan bytes) noexcept;

// Gives freed memory of the heap back to the system, which else counts for this process.
void return_free_heap() noexcept;

// Makes all pages of a span resident now instead of at the first write; its bytes are kept.
// Requires  no concurrent writes
void touch_pages(MutableByteSpan bytes) noexcept;

// Bytes of physical memory that this process holds now, and their maximum so far; 0 where the
// system does not report them.
std::uint64_t resident_bytes() noexcept;
std::uint64_t peak_resident_bytes() noexcept;

}  // namespace qsf

#endif  // QSF_PLATFORM_MEMORY_H_
