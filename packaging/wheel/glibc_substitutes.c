// SPDX-License-Identifier: MIT
//
// What glibc 2.28 lacks of the functions that GCC 12's C++ library and code compiled with a newer
// glibc's headers call. Linked into the wheel's libqsf.so alone (cmake/wheel.cmake), and hidden in
// it: other libraries of the process keep the C library's own. The linker names what is missing
// here, since scripts/package/make_glibc_stubs.py hides all that is younger from it.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

// Not <sys/stat.h>, whose own stat() this would be. Since 2.33 these are functions; before, headers
// called __xstat() with the version of the struct, which glibc keeps for old programs.
struct stat;
int __xstat(int version, const char* path, struct stat* to);
int __lxstat(int version, const char* path, struct stat* to);
int __fxstat(int version, int descriptor, struct stat* to);
#if defined(__x86_64__)
enum { kStatVersion = 1 };
#elif defined(__aarch64__)
enum { kStatVersion = 0 };
#else
#error "glibc_substitutes.c: the version of struct stat is known for x86_64 and aarch64 alone"
#endif

HIDDEN int stat(const char* path, struct stat* to);
HIDDEN int lstat(const char* path, struct stat* to);
HIDDEN int stat64(const char* path, struct stat* to);
HIDDEN int fstat64(int descriptor, struct stat* to);

int stat(const char* path, struct stat* to) {
  return __xstat(kStatVersion, path, to);
}
int lstat(const char* path, struct stat* to) {
  return __lxstat(kStatVersion, path, to);
}
// On machines of 64 bits struct stat64 is struct stat.
int stat64(const char* path, struct stat* to) {
  return __xstat(kStatVersion, path, to);
}
int fstat64(int descriptor, struct stat* to) {
  return __fxstat(kStatVersion, descriptor, to);
}

// 0: reference counts of the C++ library are atomic always. A process that loads a library may have
// threads at any time.
HIDDEN char __libc_single_threaded = 0;

// Of 2.36; the C++ library's std::random_device.
HIDDEN uint32_t arc4random(void);
uint32_t arc4random(void) {
  uint32_t value = 0;
  size_t n_done = 0;
  while (n_done < sizeof value) {
    const ssize_t n = getrandom((char*)&value + n_done, sizeof value - n_done, 0);
    if (n > 0) {
      n_done += (size_t)n;
    } else if (errno != EINTR) {
      abort();
    }
  }
  return value;
}

enum { kNsPerSecond = 1000000000 };

static int64_t ns_between(const struct timespec* from, const struct timespec* to) {
  return (int64_t)(to->tv_sec - from->tv_sec) * kNsPerSecond + (to->tv_nsec - from->tv_nsec);
}

// Of 2.30; waits until a time of any clock, as on the clock of the condition variable, which is the
// time of day. When that is set meanwhile the wait ends early or late by as much; who waits with a
// limit looks at his own clock afterwards, as the C++ library does.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const struct timespec* until);
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  struct timespec now;
  struct timespec end;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &end) != 0) {
    return EINVAL;
  }
  const int64_t left_ns = ns_between(&now, until);
  if (left_ns > 0) {
    end.tv_sec += left_ns / kNsPerSecond;
    end.tv_nsec += left_ns % kNsPerSecond;
    if (end.tv_nsec >= kNsPerSecond) {
      end.tv_sec += 1;
      end.tv_nsec -= kNsPerSecond;
    }
  }
  return pthread_cond_timedwait(condition, mutex, &end);
}
