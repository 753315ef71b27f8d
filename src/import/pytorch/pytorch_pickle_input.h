// SPDX-License-Identifier: MIT
//
// The bytes of a pickle, read from a file through a small buffer.
//
// How long a pickle is shows only when it has been read (the legacy container does not say), so it
// is never held whole. Reading past the end yields zeros and makes ok() false for good.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_PICKLE_INPUT_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_PICKLE_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "io/file.h"

namespace qsf {

// Ten times what the largest published checkpoints need: about 300 bytes a tensor.
inline constexpr std::uint64_t kMaxPickleBytes = 64U << 20;

class PickleInput {
 public:
  // Reads what stands at [begin, begin + n_bytes) of the file, and no more than kMaxPickleBytes.
  // Requires  the file outlives it; the range lies inside the file
  PickleInput(const File& file, std::uint64_t begin, std::uint64_t n_bytes) noexcept;

  bool ok() const noexcept { return status_.ok(); }
  const Status& status() const noexcept { return status_; }
  // Bytes taken since `begin`.
  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t remaining() const noexcept { return n_bytes_ - position_; }

  template <typename T>
  T read() {
    static_assert(std::is_trivially_copyable_v<T>);
    std::byte bytes[sizeof(T)] = {};
    return take(bytes) ? load_le<T>(bytes, 0) : T{};
  }
  // Returns `n_bytes` bytes, none when fewer are left.
  // Requires  the caller has bounded n_bytes
  std::string read_text(std::size_t n_bytes);
  // Returns what stands before the next newline, which is taken too; at most `max_bytes` long.
  std::string read_line(std::size_t max_bytes);

 private:
  bool take(MutableByteSpan to);
  bool fill();

  const File& file_;
  std::uint64_t begin_;
  std::uint64_t n_bytes_;
  std::uint64_t position_ = 0;
  bool cut_;  // the pickle may go on beyond n_bytes_
  Status status_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;  // bytes of the buffer already taken
};

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_PICKLE_INPUT_H_
