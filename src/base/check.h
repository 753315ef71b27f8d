// SPDX-License-Identifier: MIT
//
// QSF_CHECK and QSF_DCHECK: bugs of our own, caught where they happen.
//
// QSF_CHECK stays in every build and aborts with the place and the condition. QSF_DCHECK is for hot
// paths and exists in debug and sanitizer builds alone. Nothing that a file, a user or the machine
// can cause may end in either: that is a Status.

#ifndef QSF_BASE_CHECK_H_
#define QSF_BASE_CHECK_H_

namespace qsf {

// Prints "file:line: check failed: condition" to stderr and aborts. The only place in the library
// that writes to stderr: the process is about to end.
[[noreturn]] void check_failed(const char* file, int line, const char* condition) noexcept;

}  // namespace qsf

#define QSF_CHECK(condition)                           \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::qsf::check_failed(__FILE__, __LINE__, #condition))

#ifdef QSF_ENABLE_DCHECK
#define QSF_DCHECK(condition) QSF_CHECK(condition)
#else
#define QSF_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#endif

#endif  // QSF_BASE_CHECK_H_
