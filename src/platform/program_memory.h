// SPDX-License-Identifier: MIT
//
// What this process holds apart from what it plans: the program's own pages, and what it allocated.

#ifndef QSF_PLATFORM_PROGRAM_MEMORY_H_
#define QSF_PLATFORM_PROGRAM_MEMORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace qsf {

struct ProgramMemory {
  std::uint64_t file_bytes = 0;  // of executable and libraries: all that may come to lie in the
                                 // page cache, whether it is used yet or not
  std::uint64_t anonymous_bytes = 0;  // heap, data and stacks that are resident now, but for the
                                      // main thread's stack, whose size differs from run to run
  std::uint64_t stack_bytes = 0;      // the main thread's, resident now
};

// Adds up a /proc/self/smaps. A file counts with the span of all its mappings and `readahead_bytes`
// on either side of it, which the kernel may read along, within its size, which `file_size` returns
// (0: unknown). Files mapped under `/dev`, `/memfd:` and the kernel's own mappings count for what
// is resident of them.
ProgramMemory add_up_mappings(std::string_view smaps, std::uint64_t readahead_bytes,
                              const std::function<std::uint64_t(const std::string&)>& file_size);

// Returns the figures of this process. Where the system does not tell them they are 0. In builds
// with sanitizers, whose shadow memory is several times what it watches and which no product has,
// anonymous_bytes is 0.
ProgramMemory program_memory();

}  // namespace qsf

#endif  // QSF_PLATFORM_PROGRAM_MEMORY_H_
