// SPDX-License-Identifier: MIT

#include <windows.h>
// Needs the types of windows.h.
#include <ntsecapi.h>

#include "platform/random_bytes.h"

namespace qsf {

// Of a library that every program links.
Status fill_with_random_bytes(MutableByteSpan to) {
  if (::RtlGenRandom(to.data(), static_cast<ULONG>(to.size())) != 0) return ok_status();
  return io_error("random bytes: the system gives none");
}

}  // namespace qsf
