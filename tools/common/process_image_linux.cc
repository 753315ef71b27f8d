// SPDX-License-Identifier: MIT
//
// The program of this process: its path, its heap and the pages of its code.

#include <fcntl.h>
#include <malloc.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "tools/common/bundled_model.h"
#include "tools/common/console.h"

// From tools/conversion_code.ld, null where the linker takes no such script, and from the linker.
extern "C" {
extern char qsf_conversion_code_begin[] __attribute__((weak));
extern char qsf_conversion_code_end[] __attribute__((weak));
extern char __executable_start[];  // NOLINT(bugprone-reserved-identifier): the linker names it
extern char edata[];
}

namespace qsf_tools {
namespace {

void advise(char* begin, char* end, int advice) {
  ::madvise(begin, static_cast<std::size_t>(end - begin), advice);
}

}  // namespace

std::string program_path() {
  char path[PATH_MAX];
  const ssize_t n_bytes = ::readlink("/proc/self/exe", path, sizeof path);
  if (n_bytes > 0) return std::string(path, static_cast<std::size_t>(n_bytes));
  // Where /proc is not mounted, as in a bare chroot: the path that the program was started by. The
  // kernel passes its address as a number.
  const auto* started_by = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  if (started_by != nullptr && ::realpath(started_by, path) != nullptr) return path;
  return {};
}

void share_one_heap() {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

// The kernel would read that code along with its neighbours, so the program is read once, without
// it, and nothing around a page that is needed later; pages of that code that were read before are
// given up. The memory plan counts the rest (src/platform/memory_limits.h).
void set_conversion_code_aside() {
  char* const begin = qsf_conversion_code_begin;
  char* const end = qsf_conversion_code_end;
  if (begin == nullptr) return;
  advise(__executable_start, begin, MADV_WILLNEED);
  advise(end, edata, MADV_WILLNEED);
  advise(__executable_start, edata, MADV_RANDOM);
  advise(begin, end, MADV_DONTDUMP);
  const int program = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (program < 0) return;
  // Code lies as far from the begin of the file as from that of its memory; behind the data are
  // symbols.
  ::posix_fadvise(program, begin - __executable_start, end - begin, POSIX_FADV_DONTNEED);
  ::posix_fadvise(program, edata - __executable_start, 0, POSIX_FADV_DONTNEED);
  ::close(program);
}

}  // namespace qsf_tools
