// SPDX-License-Identifier: MIT
//
// GgufFile: the tensors of a model in one GGUF file or in several parts.
//
// A directory is read in growing pieces up to its end, at most 256 MiB. Weights are read by ranges.
// The parts of a model are named ...-00001-of-0000N.gguf and have the keys split.no and
// split.count. A model may be opened by any part; the first part holds its metadata.

#ifndef QSF_IMPORT_GGUF_GGUF_FILE_H_
#define QSF_IMPORT_GGUF_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "import/gguf/gguf_reader.h"
#include "io/file.h"

namespace qsf {

class GgufFile {
 public:
  struct Entry {
    const GgufTensor* tensor;
    std::uint32_t part;  // the file that holds it
  };

  // Opens a file and the other parts of its model.
  // Requires  `ops` outlives the GgufFile
  // Fails     as GgufReader::parse; kNotFound when a part is missing; kCorrupt on parts that do not
  //           belong together, on a tensor name in two of them, and on a directory of more than
  //           256 MiB; messages begin with the file's name
  static Result<GgufFile> open(const std::string& path, FileOps& ops = system_file_ops());

  // The metadata of the model.
  const GgufReader& keys() const noexcept { return parts_.front().directory; }
  std::size_t n_parts() const noexcept { return parts_.size(); }
  const File& file(std::uint32_t part) const noexcept { return parts_[part].file; }

  // All tensors, sorted by name.
  const std::vector<Entry>& tensors() const noexcept { return tensors_; }
  // Returns the entry of that name, or null.
  const Entry* find(std::string_view name) const noexcept;

  // Reads bytes of a tensor's data.
  // Requires  offset + to.size() <= available_bytes of the tensor
  // Fails     as File::read_exact_at
  // Threads   any number at once
  Status read(const Entry& entry, std::uint64_t offset, MutableByteSpan to) const;

 private:
  struct Part {
    File file;
    std::vector<std::byte> bytes;  // owned here, viewed by `directory`
    GgufReader directory;
  };
  GgufFile() = default;
  static Result<Part> open_part(const std::string& path, FileOps& ops);
  Status open_other_parts(const std::string& path, FileOps& ops);
  Status index_tensors();

  std::vector<Part> parts_;
  std::vector<Entry> tensors_;
};

// The most values of a tensor that is read whole.
inline constexpr std::uint64_t kMaxGgufVector = 1U << 24;

// Reads a tensor of one dimension or two, such as factors of RoPE and gains of heads.
// Fails  kCorrupt on other dimensions or values that are not finite; kUnsupported on a type that is
//        not decoded; kIo
Result<std::vector<float>> read_gguf_vector(const GgufFile& file, const GgufFile::Entry& entry);
// The same of a tensor of any dimensions, row behind row.
Result<std::vector<float>> read_gguf_rows(const GgufFile& file, const GgufFile::Entry& entry);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_FILE_H_
