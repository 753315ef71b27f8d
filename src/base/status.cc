// SPDX-License-Identifier: MIT

#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace qsf {
namespace {

std::string format_message(const char* format, std::va_list args) {
  std::va_list copy;
  va_copy(copy, args);
  const int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  if (length < 0) return format;
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

std::string_view status_code_name(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kCorrupt: return "corrupt";
    case StatusCode::kUnsupported: return "unsupported";
    case StatusCode::kOutOfBudget: return "out of budget";
    case StatusCode::kIo: return "i/o error";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message)
    : rep_(code == StatusCode::kOk ? nullptr
                                   : std::make_unique<Rep>(Rep{code, std::move(message)})) {}

Status::Status(const Status& other)
    : rep_(other.rep_ == nullptr ? nullptr : std::make_unique<Rep>(*other.rep_)) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_ = other.rep_ == nullptr ? nullptr : std::make_unique<Rep>(*other.rep_);
  return *this;
}

const std::string& Status::message() const noexcept {
  static const std::string kEmpty;
  return rep_ == nullptr ? kEmpty : rep_->message;
}

Status Status::with_context(std::string_view where) && {
  if (rep_ != nullptr) rep_->message.insert(0, std::string(where) + ": ");
  return std::move(*this);
}

// One definition per code; the names are the vocabulary of every error in the project.
#define QSF_DEFINE_STATUS_BUILDER(name, code)          \
  Status name(const char* format, ...) {               \
    std::va_list args;                                 \
    va_start(args, format);                            \
    Status status(code, format_message(format, args)); \
    va_end(args);                                      \
    return status;                                     \
  }
QSF_DEFINE_STATUS_BUILDER(invalid_argument, StatusCode::kInvalidArgument)
QSF_DEFINE_STATUS_BUILDER(not_found, StatusCode::kNotFound)
QSF_DEFINE_STATUS_BUILDER(corrupt, StatusCode::kCorrupt)
QSF_DEFINE_STATUS_BUILDER(unsupported, StatusCode::kUnsupported)
QSF_DEFINE_STATUS_BUILDER(out_of_budget, StatusCode::kOutOfBudget)
QSF_DEFINE_STATUS_BUILDER(io_error, StatusCode::kIo)
QSF_DEFINE_STATUS_BUILDER(cancelled, StatusCode::kCancelled)
QSF_DEFINE_STATUS_BUILDER(internal_error, StatusCode::kInternal)
#undef QSF_DEFINE_STATUS_BUILDER

}  // namespace qsf
