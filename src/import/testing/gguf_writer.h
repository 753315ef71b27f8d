// SPDX-License-Identifier: MIT
//
// GGUF files made by tests: keys and tensors in the order they are added, and whatever is wrong
// with them on purpose.

#ifndef QSF_IMPORT_TESTING_GGUF_WRITER_H_
#define QSF_IMPORT_TESTING_GGUF_WRITER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace qsf::testing_support {

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // stated as a key when it is not 32

  void add_u32(std::string_view name, std::uint32_t value) {
    begin_key(name, 4);
    append(keys_, value);
  }
  void add_f32(std::string_view name, float value) {
    begin_key(name, 6);
    append(keys_, value);
  }
  void add_bool(std::string_view name, bool value) {
    begin_key(name, 7);
    keys_.push_back(value ? '\1' : '\0');
  }
  void add_text(std::string_view name, std::string_view value) {
    begin_key(name, 8);
    append_text(keys_, value);
  }
  void add_texts(std::string_view name, const std::vector<std::string>& values) {
    begin_key(name, 9);
    append(keys_, std::uint32_t{8});
    append(keys_, std::uint64_t{values.size()});
    for (const std::string& value : values) append_text(keys_, value);
  }
  void add_floats(std::string_view name, const std::vector<float>& values) {
    begin_key(name, 9);
    append(keys_, std::uint32_t{6});
    append(keys_, std::uint64_t{values.size()});
    for (const float value : values) append(keys_, value);
  }
  void add_u32s(std::string_view name, const std::vector<std::uint32_t>& values) {
    begin_key(name, 9);
    append(keys_, std::uint32_t{4});
    append(keys_, std::uint64_t{values.size()});
    for (const std::uint32_t value : values) append(keys_, value);
  }
  void add_bools(std::string_view name, const std::vector<bool>& values) {
    begin_key(name, 9);
    append(keys_, std::uint32_t{7});
    append(keys_, std::uint64_t{values.size()});
    for (const bool value : values) keys_.push_back(value ? '\1' : '\0');
  }

  // `dims` begins with the contiguous one.
  void add_tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                  std::string_view data) {
    append_text(infos_, name);
    append(infos_, static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) append(infos_, dim);
    append(infos_, type);
    append(infos_, std::uint64_t{data_.size()});
    data_ += data;
    data_.resize(align_up(data_.size(), alignment), '\0');
    ++n_tensors_;
  }
  void add_f32_tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                      const std::vector<float>& values) {
    std::string data(values.size() * 4, '\0');
    std::memcpy(data.data(), values.data(), data.size());
    add_tensor(name, dims, 0, data);
  }

  // Returns the file.
  std::string finish() {
    if (alignment != 32) add_u32("general.alignment", static_cast<std::uint32_t>(alignment));
    std::string file = "GGUF";
    append(file, version);
    append(file, n_tensors_);
    append(file, n_keys_);
    file += keys_ + infos_;
    file.resize(align_up(file.size(), alignment), '\0');
    return file + data_;
  }

 private:
  template <typename T>
  static void append(std::string& to, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    to.append(bytes, sizeof value);
  }
  static void append_text(std::string& to, std::string_view text) {
    append(to, std::uint64_t{text.size()});
    to += text;
  }
  void begin_key(std::string_view name, std::uint32_t type) {
    append_text(keys_, name);
    append(keys_, type);
    ++n_keys_;
  }

  std::string keys_;
  std::string infos_;
  std::string data_;
  std::uint64_t n_keys_ = 0;
  std::uint64_t n_tensors_ = 0;
};

}  // namespace qsf::testing_support

#endif  // QSF_IMPORT_TESTING_GGUF_WRITER_H_
