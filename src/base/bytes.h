// SPDX-License-Identifier: MIT
//
// Little-endian bytes: loads and stores at explicit offsets, overflow-safe sizes, bounded cursors.
//
// Files are parsed with these and never by casting a pointer to a struct. Weight blocks are the one
// exception: they are used in place, which is why a big-endian host is refused here at compile
// time.

#ifndef QSF_BASE_BYTES_H_
#define QSF_BASE_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace qsf {

static_assert(std::endian::native == std::endian::little,
              "weights are used in place; a big-endian host needs a byte-swapping loader");

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

// Loads a little-endian value at `offset`. Requires  offset + sizeof(T) <= bytes.size().
template <typename T>
T load_le(ByteSpan bytes, std::size_t offset) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Stores a little-endian value at `offset`. Requires  offset + sizeof(T) <= bytes.size().
template <typename T>
void store_le(MutableByteSpan bytes, std::size_t offset, T value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

inline ByteSpan as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view as_text(ByteSpan bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Rounds up to a multiple of `alignment`, a power of two. Requires  no overflow (sizes that come
// from a file go through checked_add first).
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Rounds a / b up. Requires  b > 0.
constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Sums and products of sizes from a file: empty when they do not fit 64 bits.
inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}
inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The same, the largest value standing in for what does not fit: a plan that adds up to it is
// refused for its size.
inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) noexcept {
  return checked_add(a, b).value_or(UINT64_MAX);
}
inline std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) noexcept {
  return checked_mul(a, b).value_or(UINT64_MAX);
}

// A cursor over bytes from outside. Reading past the end yields zeros and makes ok() false for
// good, so a parser checks once, at the end of a group of fields, and never reads out of range.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) noexcept : bytes_(bytes) {}

  bool ok() const noexcept { return ok_; }
  std::size_t position() const noexcept { return position_; }
  std::size_t remaining() const noexcept { return bytes_.size() - position_; }

  template <typename T>
  T read() noexcept {
    static_assert(std::is_trivially_copyable_v<T>);
    if (!take(sizeof(T))) return T{};
    return load_le<T>(bytes_, position_ - sizeof(T));
  }
  // Returns the next `n_bytes`, or an empty span when fewer are left.
  ByteSpan read_bytes(std::uint64_t n_bytes) noexcept {
    if (!take(n_bytes)) return {};
    return bytes_.subspan(position_ - static_cast<std::size_t>(n_bytes),
                          static_cast<std::size_t>(n_bytes));
  }
  std::string_view read_text(std::uint64_t n_bytes) noexcept {
    return as_text(read_bytes(n_bytes));
  }
  void skip(std::uint64_t n_bytes) noexcept { take(n_bytes); }

 private:
  bool take(std::uint64_t n_bytes) noexcept {
    if (!ok_ || n_bytes > remaining()) {
      ok_ = false;
      return false;
    }
    position_ += static_cast<std::size_t>(n_bytes);
    return true;
  }

  ByteSpan bytes_;
  std::size_t position_ = 0;
  bool ok_ = true;
};

// Appends little-endian fields to a buffer.
class ByteWriter {
 public:
  std::vector<std::byte>& bytes() noexcept { return bytes_; }
  ByteSpan view() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return bytes_.size(); }

  template <typename T>
  void write(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof(T));
  }
  void write_bytes(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void write_text(std::string_view text) { write_bytes(as_bytes(text)); }
  void pad_to(std::size_t alignment) { bytes_.resize(align_up(bytes_.size(), alignment)); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace qsf

#endif  // QSF_BASE_BYTES_H_
