// SPDX-License-Identifier: MIT
//
// QsfReader: opens a .qsf file, checks everything but the weights, and reads tiles.
//
// Opening reads the header, the metadata, the layer index and every directory, a few KB a layer,
// and checks each offset, size, code, shape and checksum before use. Afterwards every offset and
// size that it returns is valid. Weights and other sections are checked when they are read.

#ifndef QSF_FORMAT_QSF_READER_H_
#define QSF_FORMAT_QSF_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/kept_layers.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "io/file.h"

namespace qsf {

struct ReaderOptions {
  bool verify_crc = true;  // false only in fuzzers, whose inputs would fail every checksum
};

// An entry of the section directory.
struct SectionInfo {
  std::string name;
  std::uint64_t file_offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
  bool required = false;
};

class QsfReader {
 public:
  // Opens and checks a file.
  // Fails  kCorrupt, kUnsupported or kIo, and kNotFound from the path's form; the message begins
  //        with the path and names the part that is wrong
  static Result<QsfReader> open(File file, ReaderOptions options = {});
  static Result<QsfReader> open(const std::string& path, ReaderOptions options = {});

  const File& file() const noexcept { return file_; }
  const ModelSpec& spec() const noexcept { return spec_; }
  // Has every row take fewer experts than the model's, in spec() alone.
  // Fails  kInvalidArgument with the range; kUnsupported where the model's router needs its number
  Status use_experts(std::uint32_t n_used);
  // Leaves out the layers of least importance, so that spec() and directories() are those of a file
  // without them; the others are numbered anew, but keep SectionDirectory::layer for messages.
  // Returns those that are left out, ascending.
  // Fails  as choose_layers and keep_layers of format/kept_layers.h
  Result<std::vector<std::uint32_t>> use_quality(float quality);
  // Leaves out the layers that are not in `kept`, as use_quality() does; returns them.
  // Requires  kept is ascending, not empty and below n_layers()
  // Fails     as keep_layers
  Result<std::vector<std::uint32_t>> use_layers(std::span<const std::uint32_t> kept, KeptLayers as);
  // All metadata as stored, the keys behind spec() included.
  const Metadata& metadata() const noexcept { return metadata_; }
  std::uint32_t n_layers() const noexcept { return spec_.n_layers; }

  const SectionDirectory& embedding() const noexcept { return directories_.front(); }
  const SectionDirectory& final_section() const noexcept { return directories_.back(); }
  // Requires  layer < n_layers()
  const SectionDirectory& layer(std::uint32_t layer) const noexcept;
  // Embedding, then layers in order, then final.
  std::span<const SectionDirectory> directories() const noexcept { return directories_; }

  // The section directory: embedding, final, layer index, tokenizer where there is one, and others.
  std::span<const SectionInfo> sections() const noexcept { return sections_; }
  const SectionInfo* find_section(std::string_view name) const noexcept;
  // 0 when the file has no tokenizer.
  std::uint64_t tokenizer_bytes() const noexcept;

  // Reads a whole section and checks its CRC.
  // Requires  to.size() == section.bytes (first form)
  // Fails     kCorrupt, kIo; kNotFound when there is no tokenizer
  // Threads   any
  Status read_section(const SectionInfo& section, MutableByteSpan to) const;
  Result<std::vector<std::byte>> read_section(const SectionInfo& section) const;
  Result<std::vector<std::byte>> read_tokenizer() const;

  // Reads one tile, checks its CRC and decompresses it.
  // Requires  raw.size() == raw_bytes of the tile; stored_scratch.size() >= its stored_bytes when
  //           it is compressed (not touched otherwise)
  // Fails     kCorrupt or kIo, naming the section, the tile and the file offset
  // Threads   any number at once, with spans of their own
  Status read_tile(const SectionDirectory& directory, std::uint32_t tile,
                   MutableByteSpan stored_scratch, MutableByteSpan raw) const;

  // The second half of read_tile, for bytes that the caller read itself. `stored` and `raw` may be
  // the same bytes when the tile is not compressed.
  // Requires  stored.size() == stored_bytes and raw.size() == raw_bytes of the tile
  Status decode_tile(const SectionDirectory& directory, std::uint32_t tile, ByteSpan stored,
                     MutableByteSpan raw) const;

  // The checksum alone, for bytes that the caller read itself. Requires  as decode_tile
  Status check_tile(const SectionDirectory& directory, std::uint32_t tile, ByteSpan stored) const;

  // Returns "model.qsf: layer 7: tile 3 at offset 4096", for messages.
  std::string tile_label(const SectionDirectory& directory, std::uint32_t tile) const;

  // Heap bytes of this object, for the memory plan (estimate from above, vectors' capacity).
  std::size_t heap_bytes() const noexcept;

 private:
  QsfReader(File file, ReaderOptions options) noexcept;
  Status load();

  File file_;
  ReaderOptions options_;
  ModelSpec spec_;
  Metadata metadata_;
  std::vector<SectionInfo> sections_;
  std::vector<SectionDirectory> directories_;
};

}  // namespace qsf

#endif  // QSF_FORMAT_QSF_READER_H_
