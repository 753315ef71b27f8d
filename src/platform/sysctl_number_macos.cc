// SPDX-License-Identifier: MIT

#include <sys/sysctl.h>

#include <cstddef>
#include <cstring>

#include "platform/sysctl_number.h"

namespace qsf {

std::uint64_t sysctl_number(const char* name) noexcept {
  unsigned char bytes[sizeof(std::uint64_t)] = {};
  std::size_t n_bytes = sizeof bytes;
  if (::sysctlbyname(name, bytes, &n_bytes, nullptr, 0) != 0) return 0;
  // Numbers have 4 or 8 bytes, in the order of the machine.
  if (n_bytes == sizeof(std::uint32_t)) {
    std::uint32_t number = 0;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }
  std::uint64_t number = 0;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

}  // namespace qsf
