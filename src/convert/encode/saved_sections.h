// SPDX-License-Identifier: MIT
//
// SavedSections: the finished sections of a conversion in one file each, so that an interrupted
// conversion does not encode them again (decision 033).
//
// A file appears when its section is complete. It records tensors, formats and tiles, and has a
// checksum of every part. The caller ensures that the folder belongs to this model and these
// options.

#ifndef QSF_CONVERT_ENCODE_SAVED_SECTIONS_H_
#define QSF_CONVERT_ENCODE_SAVED_SECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "convert/choose/format_choice.h"
#include "convert/encode/encode_rows.h"
#include "format/tile_plan.h"
#include "import/model_source.h"
#include "io/atomic_file.h"
#include "io/file.h"

namespace qsf {

// The plan of a section.
struct SectionPlan {
  SectionId id;
  std::span<const TensorInfo> tensors;
  std::span<const TensorChoice> choices;  // of them
  std::span<const TilePlan> tiles;
};

// A saved section, for reading.
class SavedSection {
 public:
  // Errors of its tensors.
  std::span<const ErrorSums> sums() const noexcept { return sums_; }
  // Reads the next tile. Requires  to.size() is the tile's size in the plan; not all were read
  // Fails  kCorrupt on a damaged file, kIo
  Status read_tile(MutableByteSpan to);
  void drop_cached() const noexcept { file_.drop_cached(); }

 private:
  friend class SavedSections;
  explicit SavedSection(File file) noexcept : file_(std::move(file)) {}

  File file_;
  std::vector<ErrorSums> sums_;
  std::vector<std::uint32_t> crcs_;  // of the tiles
  std::size_t n_read_ = 0;
  std::uint64_t offset_ = 0;  // of the next tile
};

// Writes a section.
class SectionSaver {
 public:
  // Called in the order of QsfWriter. Fails  kIo
  Status add_tile(ByteSpan raw);
  Status drop_cached() { return file_.drop_cached(); }
  // Requires  every tile was added; sums are of its tensors
  Status finish(std::span<const ErrorSums> sums);

 private:
  friend class SavedSections;
  SectionSaver(AtomicFile file, std::vector<std::byte> shape, const SectionPlan& plan);

  AtomicFile file_;
  std::vector<std::byte> shape_;
  std::vector<std::uint32_t> crcs_;
  std::size_t n_tensors_;
  std::size_t n_tiles_;
  std::uint64_t offset_;
};

class SavedSections {
 public:
  // The prefix of its files' names.
  static constexpr const char* kPrefix = "section-";

  // In a folder that exists. Requires  `ops` outlives all of it
  explicit SavedSections(std::string folder, FileOps& ops = system_file_ops())
      : folder_(std::move(folder)), ops_(ops) {}

  // Opens a section; nothing when it was not finished or has another plan.
  // Fails  kCorrupt on a damaged file, kIo
  Result<std::optional<SavedSection>> find(const SectionPlan& plan) const;
  // Begins a section, which replaces an older one when it is finished. Fails  kIo
  Result<SectionSaver> begin(const SectionPlan& plan) const;

 private:
  std::string path_of(const SectionId& id) const;

  std::string folder_;
  FileOps& ops_;
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_SAVED_SECTIONS_H_
