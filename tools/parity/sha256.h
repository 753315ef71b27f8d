// SPDX-License-Identifier: MIT
//
// SHA-256 (FIPS 180-4): the hash by which a receipt names files.

#ifndef QSF_TOOLS_PARITY_SHA256_H_
#define QSF_TOOLS_PARITY_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qsf_tools {

class Sha256 {
 public:
  void add(std::string_view bytes) noexcept;
  // Returns the digest in 64 hexadecimal digits. Nothing may be added afterwards.
  std::string finish() noexcept;

 private:
  void compress(const unsigned char* block) noexcept;

  std::array<std::uint32_t, 8> state_ = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                         0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
  std::array<unsigned char, 64> pending_{};
  std::uint64_t n_bytes_ = 0;
};

std::string sha256_of(std::string_view bytes);
// Returns nothing when the file cannot be read to its end.
std::optional<std::string> sha256_of_file(const std::string& path);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_PARITY_SHA256_H_
