// SPDX-License-Identifier: MIT
//
// Result<T>: a value or the Status that says why there is none.
//
// The subset of std::expected<T, Status> that we need, with the same member names, so that one
// alias replaces it when the toolchain has C++23.

#ifndef QSF_BASE_RESULT_H_
#define QSF_BASE_RESULT_H_

#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"

namespace qsf {

template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // Requires  a failed status: a Result that holds neither value nor reason is a bug.
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {
    QSF_CHECK(!std::get<1>(state_).ok());
  }

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & {
    QSF_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    QSF_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    QSF_CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  const Status& error() const& {
    QSF_CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  Status&& error() && {
    QSF_CHECK(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace qsf

#define QSF_CONCAT_INNER_(a, b) a##b
#define QSF_CONCAT_(a, b) QSF_CONCAT_INNER_(a, b)

// Evaluates `expr`, a Result; returns its Status from the calling function on failure, otherwise
// initialises `decl` with the value:  QSF_ASSIGN_OR_RETURN(const File file, File::open(path));
#define QSF_ASSIGN_OR_RETURN(decl, expr) \
  QSF_ASSIGN_OR_RETURN_IMPL_(QSF_CONCAT_(qsf_result_, __LINE__), decl, expr)
#define QSF_ASSIGN_OR_RETURN_IMPL_(result, decl, expr) \
  auto result = (expr);                                \
  if (!result.has_value()) [[unlikely]]                \
    return std::move(result).error();                  \
  decl = std::move(result).value()

#endif  // QSF_BASE_RESULT_H_
