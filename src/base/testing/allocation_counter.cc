// SPDX-License-Identifier: MIT

#include "base/testing/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "base/sanitizer.h"

namespace qsf::testing_support {
namespace {

std::atomic<long> allocations{0};

}  // namespace

bool counts_allocations() noexcept {
#ifdef QSF_WITH_SANITIZER
  return false;
#else
  return true;
#endif
}

long n_allocations() noexcept {
  return allocations.load();
}

}  // namespace qsf::testing_support

#ifndef QSF_WITH_SANITIZER
using qsf::testing_support::allocations;

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(block, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  ++allocations;
  *block = __libc_memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}  // extern "C"
#endif
