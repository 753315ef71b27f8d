// SPDX-License-Identifier: MIT
//
// GGUF files, versions 2 and 3: header, key-value metadata and tensor directory.
//
// Every field is checked: lengths against the bytes present, counts against the least size of their
// entries, uniqueness of keys and tensor names, non-zero dimensions, products for overflow, and
// tensors for alignment, bounds and overlap. Strings and arrays are returned as views into the
// caller's bytes.
//
// Based on: the GGUF specification (ggml, docs/gguf.md).

#ifndef QSF_IMPORT_GGUF_GGUF_READER_H_
#define QSF_IMPORT_GGUF_GGUF_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "import/gguf/ggml_types.h"

namespace qsf {

// Returns `text` for an error message: bounded, unprintable bytes replaced.
std::string shown_gguf_text(std::string_view text);

enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct GgufKey {
  std::string_view name;
  GgufType type;
  GgufType element_type;     // of an array; otherwise equal to type
  std::uint64_t n_elements;  // of an array; otherwise 1
  ByteSpan payload;          // of a string: its bytes; of an array: its elements
};

struct GgufTensor {
  std::string_view name;
  std::uint32_t n_dims;
  std::uint64_t dims[4];  // dims[0] is contiguous; 1 beyond n_dims; all non-zero
  std::uint32_t type;
  const char* type_name;  // bitnet.cpp's name in its files
  std::uint64_t n_elements;
  std::uint64_t file_offset;      // from the start of the file
  std::uint64_t n_bytes;          // from its type; 0 when unknown
  std::uint64_t available_bytes;  // up to the next tensor or the end of the file
};

class GgufReader {
 public:
  // Parses the directory at the start of a file.
  // Requires  `bytes` is the start of a file of `file_bytes` bytes, up to the end of the tensor
  //           directory at least, and outlives the reader and all views it returns
  // Fails     kCorrupt, naming the key or tensor; kUnsupported on versions other than 2 and 3 and
  //           on big-endian files
  static Result<GgufReader> parse(ByteSpan bytes, std::uint64_t file_bytes);

  std::uint32_t version() const noexcept { return version_; }
  std::uint64_t alignment() const noexcept { return alignment_; }
  std::uint64_t data_offset() const noexcept { return data_offset_; }
  const std::vector<GgufKey>& keys() const noexcept { return keys_; }
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }  // in file order

  // Return the entry of that name, or null.
  const GgufKey* find_key(std::string_view name) const noexcept;
  const GgufTensor* find_tensor(std::string_view name) const noexcept;

  // Typed access; nothing when the key is absent. Integers of every width are accepted where the
  // value fits, and so are f32 and f64 for each other.
  // Fails  kCorrupt when the key holds another type
  Result<std::optional<std::uint64_t>> get_unsigned(std::string_view name) const;
  Result<std::optional<double>> get_float(std::string_view name) const;
  Result<std::optional<bool>> get_bool(std::string_view name) const;
  Result<std::optional<std::string_view>> get_string(std::string_view name) const;
  // Arrays are returned as copies of views or numbers; booleans are integers of 0 and 1.
  Result<std::optional<std::vector<std::string_view>>> get_strings(std::string_view name) const;
  Result<std::optional<std::vector<float>>> get_floats(std::string_view name) const;
  Result<std::optional<std::vector<std::int64_t>>> get_integers(std::string_view name) const;

 private:
  GgufReader() = default;
  Status read_keys(ByteSpan bytes, ByteReader& reader, std::uint64_t n_keys);
  Status read_tensors(ByteReader& reader, std::uint64_t n_tensors);
  Status place_tensors(std::uint64_t file_bytes);

  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::uint64_t data_offset_ = 0;
  std::vector<GgufKey> keys_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> keys_by_name_;
  std::vector<std::uint32_t> tensors_by_name_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_READER_H_
