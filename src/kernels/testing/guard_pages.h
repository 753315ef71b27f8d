// SPDX-License-Identifier: MIT
//
// Operands between guards: the last byte stands directly before an unreadable page, so one byte too
// far is a crash and not luck; the bytes before the first hold a pattern that is checked.

#ifndef QSF_KERNELS_TESTING_GUARD_PAGES_H_
#define QSF_KERNELS_TESTING_GUARD_PAGES_H_

#include <cstddef>

namespace qsf::kernels::testing_support {

// What the system does. Maps memory whose first and last page cannot be touched; null: there is
// none.
std::byte* map_between_guards(std::size_t n_bytes) noexcept;
void unmap_guarded(std::byte* base, std::size_t n_bytes) noexcept;
std::size_t guard_bytes() noexcept;  // of a page

class GuardedBytes {
 public:
  // Aborts when the system has no memory: tests cannot go on then.
  explicit GuardedBytes(std::size_t n_bytes);
  ~GuardedBytes();
  GuardedBytes(GuardedBytes&& other) noexcept;
  GuardedBytes& operator=(GuardedBytes&&) = delete;
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return n_bytes_; }

  // Whether the bytes in front of data() still hold their pattern.
  bool front_intact() const noexcept;

 private:
  std::byte* base_ = nullptr;  // an unreadable page comes first
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t n_bytes_ = 0;
};

// n_values of T, whose end is the guard. The start is as aligned as the size in bytes is.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(std::size_t n_values) : bytes_(n_values * sizeof(T)) {}

  T* data() const noexcept { return reinterpret_cast<T*>(bytes_.data()); }
  std::size_t size() const noexcept { return bytes_.size() / sizeof(T); }
  T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size(); }
  bool front_intact() const noexcept { return bytes_.front_intact(); }

 private:
  GuardedBytes bytes_;
};

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_GUARD_PAGES_H_
