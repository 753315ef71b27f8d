// SPDX-License-Identifier: MIT
//
// GgufFields: typed, range-checked access to the keys of one architecture, such as
// "llama.block_count".
//
// The first failure is kept, so callers read a list of keys and check status() once. A key of
// another architecture that would change a model's results is not to be passed over: the fields
// remember which keys were read, and refuse_unread() is for the others.

#ifndef QSF_IMPORT_GGUF_GGUF_FIELDS_H_
#define QSF_IMPORT_GGUF_GGUF_FIELDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "import/gguf/gguf_reader.h"

namespace qsf {

class GgufFields {
 public:
  // Requires  `gguf` outlives the fields
  GgufFields(const GgufReader& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  const Status& status() const noexcept { return status_; }

  // Names are given without the architecture: "attention.head_count".
  bool has(const char* name) const { return gguf_.find_key(prefix_ + name) != nullptr; }

  // Integers in [low, high]. u32() requires the key. Return 0 after a failure.
  std::uint32_t u32(const char* name, std::uint32_t low, std::uint32_t high);
  std::uint32_t u32_or(const char* name, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high);
  // A finite number above zero. The key is required when there is no fallback. Returns 1 after a
  // failure.
  float positive(const char* name, std::optional<float> fallback);
  bool is_array(const char* name) const;
  // An array of `n` integers up to `high`. The key is required. Returns zeros after a failure.
  std::vector<std::uint32_t> u32_array(const char* name, std::uint32_t n, std::uint32_t high);
  // An array of `n` numbers, infinite ones too. The key is required. Returns zeros after a failure.
  std::vector<float> f32_array(const char* name, std::uint32_t n);
  // The same where a zero in the file means `fallback`, as it does in llama.cpp.
  float positive_or(const char* name, float fallback);
  bool boolean(const char* name, bool fallback);
  std::string text(const char* name, std::string_view fallback);
  // Which of `n` things an array of booleans or a number that is a period names: of a period, all
  // but every last one; 0 names all. `period` is for files without the key.
  std::vector<bool> pattern(const char* name, std::uint32_t n, std::uint32_t period);

  // Fails when the key is present, none of the above has read it, and its value is another than
  // `only`, the supported one.
  void refuse_unread(const char* name, double only);

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  template <typename T>
  std::optional<T> take(Result<std::optional<T>> value);
  // Returns the full name of a key and notes that it is read.
  std::string read(const char* name);

  const GgufReader& gguf_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
  Status status_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_FIELDS_H_
