// SPDX-License-Identifier: MIT
//
// The keys of one architecture in a GGUF file, "llama.block_count" and its like: typed, in range,
// and with the first failure remembered, so that a family reads as a list of keys.

#ifndef QSF_IMPORT_GGUF_GGUF_FIELDS_H_
#define QSF_IMPORT_GGUF_GGUF_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "import/gguf/gguf_reader.h"

namespace qsf {

class GgufFields {
 public:
  // Requires  `gguf` outlives the fields
  GgufFields(const GgufReader& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  const Status& status() const noexcept { return status_; }
  const GgufReader& gguf() const noexcept { return gguf_; }

  // Names below are without the architecture: "attention.head_count".
  bool has(const char* name) const { return gguf_.find_key(prefix_ + name) != nullptr; }

  // Integers in [low, high]; without a fallback the key must be there. Return 0 after a failure.
  std::uint32_t u32(const char* name, std::uint32_t low, std::uint32_t high);
  std::uint32_t u32_or(const char* name, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high);
  // Finite numbers above zero; without a fallback the key must be there. Return 1 after a failure.
  float positive(const char* name, std::optional<float> fallback);
  bool boolean(const char* name, bool fallback);
  std::string text(const char* name, std::string_view fallback);

  // Fails when the key is there with a value other than `only`, which is what this version runs.
  void refuse_unless(const char* name, double only);

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  template <typename T>
  std::optional<T> take(Result<std::optional<T>> value);

  const GgufReader& gguf_;
  std::string prefix_;
  Status status_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_FIELDS_H_
