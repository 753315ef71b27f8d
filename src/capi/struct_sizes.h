// SPDX-License-Identifier: MIT
//
// The structs of the C interface that grow: every size they ever had, and how a struct of one size
// is read and written by a library that knows another.
//
// A new field is appended, after the padding at the end of the struct before it: then no size of a
// release is the size of two layouts. Its release adds a size here.

#ifndef QSF_CAPI_STRUCT_SIZES_H_
#define QSF_CAPI_STRUCT_SIZES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/status.h"
#include "qsf/qsf.h"

namespace qsf::capi {

// Of systems whose pointers have 64 bits, ascending, from 0.1 on; the last one is sizeof(T).
template <typename T>
inline constexpr std::array<std::size_t, 0> kReleasedSizes{};
template <>
inline constexpr std::array kReleasedSizes<qsf_h2o_options> = {std::size_t{32}};
template <>
inline constexpr std::array kReleasedSizes<qsf_sampling> = {std::size_t{56}, std::size_t{152}};
template <>
inline constexpr std::array kReleasedSizes<qsf_generate_options> = {std::size_t{88},
                                                                    std::size_t{184}};
template <>
inline constexpr std::array kReleasedSizes<qsf_chat_options> = {std::size_t{40}};
template <>
inline constexpr std::array kReleasedSizes<qsf_chat_send_options> = {std::size_t{64}};
template <>
inline constexpr std::array kReleasedSizes<qsf_model_info> = {std::size_t{88}};
template <>
inline constexpr std::array kReleasedSizes<qsf_engine_stats> = {std::size_t{160}, std::size_t{200}};
template <>
inline constexpr std::array kReleasedSizes<qsf_generate_result> = {std::size_t{48},
                                                                   std::size_t{64}};
template <>
inline constexpr std::array kReleasedSizes<qsf_chat_result> = {std::size_t{56}};
template <>
inline constexpr std::array kReleasedSizes<qsf_chat_info> = {std::size_t{32}};
template <>
inline constexpr std::array kReleasedSizes<qsf_plan_info> = {std::size_t{104}, std::size_t{144}};
template <>
inline constexpr std::array kReleasedSizes<qsf_memory_region> = {std::size_t{32}};
template <>
inline constexpr std::array kReleasedSizes<qsf_step_counts> = {std::size_t{64}};
template <>
inline constexpr std::array kReleasedSizes<qsf_step_options> = {std::size_t{16}};
template <>
inline constexpr std::array kReleasedSizes<qsf_prefix_stats> = {std::size_t{160}};
template <>
inline constexpr std::array kReleasedSizes<qsf_kv_page_counts> = {std::size_t{24}};
template <>
inline constexpr std::array kReleasedSizes<qsf_chat_prompt_options> = {std::size_t{80}};
template <>
inline constexpr std::array kReleasedSizes<qsf_chat_prompt_info> = {std::size_t{80}};
template <>
inline constexpr std::array kReleasedSizes<qsf_layer_info> = {std::size_t{48}};
template <>
inline constexpr std::array kReleasedSizes<qsf_layer_row> = {std::size_t{32}};

// The sizes on this system. Where words are shorter there was no release: this header's alone.
template <typename T>
inline constexpr auto kKnownSizes = [] {
  if constexpr (sizeof(void*) == 8) {
    return kReleasedSizes<T>;
  } else {
    return std::array{sizeof(T)};
  }
}();

Status null_argument(const char* name);

// Fails  kInvalidArgument unless `size` is one of `released` or beyond them and of whole words
Status check_struct_size(const char* name, std::size_t size, std::span<const std::size_t> released);
// Fails  kUnsupported, naming the first byte of `from` [size] that is set from `n_known` on
Status check_unknown_bytes(const char* name, const void* from, std::size_t n_known,
                           std::size_t size);

// Copies what a caller filled over `to`, which holds the defaults.
// Fails  as the two above
template <typename T>
Status read_struct(const T* from, const char* name, T& to) {
  static_assert(kKnownSizes<T>.back() == sizeof(T));
  if (from == nullptr) return null_argument(name);
  const std::size_t size = from->struct_size;
  QSF_RETURN_IF_ERROR(check_struct_size(name, size, kKnownSizes<T>));
  QSF_RETURN_IF_ERROR(check_unknown_bytes(name, from, sizeof(T), size));
  std::memcpy(&to, from, std::min(size, sizeof(T)));
  return ok_status();
}

// Fills a struct of the caller up to its struct_size, which becomes the bytes filled.
// Fails  as check_struct_size
template <typename T>
Status write_struct(T value, const char* name, T* to) {
  static_assert(kKnownSizes<T>.back() == sizeof(T));
  if (to == nullptr) return null_argument(name);
  QSF_RETURN_IF_ERROR(check_struct_size(name, to->struct_size, kKnownSizes<T>));
  value.struct_size = std::min(to->struct_size, sizeof(T));
  std::memcpy(to, &value, value.struct_size);
  return ok_status();
}

// Sets a struct of `struct_size` bytes to the defaults, and what this library does not know to 0.
template <typename T>
void init_struct(T defaults, std::size_t struct_size, T* to) {
  if (to == nullptr || struct_size < sizeof(std::size_t)) return;
  defaults.struct_size = struct_size;
  const std::size_t n_known = std::min(struct_size, sizeof(T));
  std::memcpy(to, &defaults, n_known);
  std::memset(reinterpret_cast<std::byte*>(to) + n_known, 0, struct_size - n_known);
}

}  // namespace qsf::capi

#endif  // QSF_CAPI_STRUCT_SIZES_H_
