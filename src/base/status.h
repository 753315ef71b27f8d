// SPDX-License-Identifier: MIT
//
// Status: the outcome of an operation that the outside world can make fail.
//
// One pointer wide, null when OK, so that the good path costs a compare. It carries a code for
// programs and a message for people; the message says where, what is wrong, got and expected, and
// what to do. Bugs of our own are not statuses: see base/check.h.

#ifndef QSF_BASE_STATUS_H_
#define QSF_BASE_STATUS_H_

#include <memory>
#include <string>
#include <string_view>

namespace qsf {

// The values are those of qsf_code in include/qsf/qsf.h; capi.cc asserts it.
enum class StatusCode : int {
  kOk = 0,
  kInvalidArgument = 1,
  kNotFound = 2,
  kCorrupt = 3,
  kUnsupported = 4,
  kOutOfBudget = 5,
  kIo = 6,
  kCancelled = 7,
  kInternal = 8,
};

// Returns a lower-case name such as "corrupt". Threads: any.
std::string_view status_code_name(StatusCode code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(StatusCode code, std::string message);

  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  Status(const Status& other);
  Status& operator=(const Status& other);
  ~Status() = default;

  bool ok() const noexcept { return rep_ == nullptr; }
  StatusCode code() const noexcept { return rep_ == nullptr ? StatusCode::kOk : rep_->code; }
  const std::string& message() const noexcept;

  // Puts `where` in front of the message: "where: message". Does nothing when OK.
  Status with_context(std::string_view where) &&;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

inline Status ok_status() noexcept {
  return {};
}

// Build a failed Status with a printf-style message.
// Threads  any
[[gnu::format(printf, 1, 2)]] Status invalid_argument(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status not_found(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status corrupt(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status unsupported(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status out_of_budget(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status io_error(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status cancelled(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status internal_error(const char* format, ...);

}  // namespace qsf

// Returns from the calling function when `expr`, a Status, is not OK.
#define QSF_RETURN_IF_ERROR(expr)       \
  do {                                  \
    ::qsf::Status qsf_status_ = (expr); \
    if (!qsf_status_.ok()) [[unlikely]] \
      return qsf_status_;               \
  } while (false)

#endif  // QSF_BASE_STATUS_H_
