// SPDX-License-Identifier: MIT
//
// QsfWriter: writes a .qsf file front to back with bounded memory.
//
// The calls follow the order of the file: create; then for each tensor section (embedding, layers 0
// to n - 1, final) begin_section, write_tile for every tile of tiles(), end_section; then finish.
// set_tokenizer and add_section may come anywhere between sections. The same calls give the same
// bytes. Until finish() succeeds, no file exists under the target's name.
//
//   QSF_ASSIGN_OR_RETURN(QsfWriter writer, QsfWriter::create(path, spec, {}));
//   QSF_RETURN_IF_ERROR(writer.begin_section(SectionKind::kEmbedding, 0, tensors));
//   for (const TilePlan& tile : writer.tiles())
//   QSF_RETURN_IF_ERROR(writer.write_tile(encode(tile)));
//   QSF_RETURN_IF_ERROR(writer.end_section());
//   ...
//   QSF_RETURN_IF_ERROR(writer.finish());

#ifndef QSF_FORMAT_QSF_WRITER_H_
#define QSF_FORMAT_QSF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "format/tile_plan.h"
#include "io/atomic_file.h"

namespace qsf {

struct WriterOptions {
  Compression compression = Compression::kNone;  // of layers and final; the embedding never is
  std::uint64_t tile_bytes = kDefaultTileBytes;  // raw, at most kMaxTileBytes
};

class QsfWriter {
 public:
  // Validates the spec and creates the temporary file.
  // Requires  `ops` outlives the writer
  // Fails     kInvalidArgument, kIo
  static Result<QsfWriter> create(const std::string& path, ModelSpec spec, WriterOptions options,
                                  FileOps& ops = system_file_ops());

  QsfWriter(QsfWriter&&) noexcept = default;
  QsfWriter& operator=(QsfWriter&&) noexcept = default;

  // Writes the tokenizer section (docs/format-tokenizer.md).
  Status set_tokenizer(ByteSpan bytes);
  // Writes a section of another kind. `required`: readers that do not support it refuse the file.
  Status add_section(std::string_view name, ByteSpan bytes, bool required);

  // Sets the compression of sections that begin later (the embedding is never compressed).
  void set_compression(Compression compression) noexcept { options_.compression = compression; }

  // Starts a section and plans its tiles. `layer` is 0 except for layers; `tensors` are in order of
  // use, except that one-row norms may be anywhere.
  // Fails  kInvalidArgument: a shape does not follow from the spec, a kind does not belong in the
  //        section or occurs twice, or the section is not the next one
  Status begin_section(SectionKind kind, std::uint32_t layer, std::vector<TensorInfo> tensors);
  // The tiles of the current section, in the order of write_tile.
  std::span<const TilePlan> tiles() const noexcept { return plan_; }
  const std::vector<TensorInfo>& tensors() const noexcept { return section_.tensors; }
  // Writes the next tile. Requires  raw.size() == raw_bytes of its plan.
  Status write_tile(ByteSpan raw);
  // Writes the directory of the section. `importance` (layers) is finite and >= 0; 0: not measured.
  Status end_section(float importance = 0.0F);

  // Writes the data to the disk and drops it from the page cache. Fails  kIo
  Status drop_cached() { return file_.drop_cached(); }

  // Writes layer index, metadata and header, and commits the file. May be called once.
  Status finish();

  // Sums of the bytes written so far, for reports.
  std::uint64_t raw_bytes() const noexcept { return raw_bytes_; }
  std::uint64_t stored_bytes() const noexcept { return stored_bytes_; }

 private:
  struct WrittenSection {
    std::string name;
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint32_t crc;
    bool required;
    std::uint32_t n_tensors;
    Compression compression;
    std::uint8_t type;
  };

  QsfWriter(AtomicFile file, ModelSpec spec, WriterOptions options) noexcept;
  Status check_turn(SectionKind kind, std::uint32_t layer) const;
  Status write_plain_section(std::string_view name, ByteSpan bytes, bool required);
  std::vector<std::byte> encode_metadata(std::uint64_t file_bytes) const;
  Status write_header(std::uint64_t metadata_offset, std::uint64_t file_bytes);

  AtomicFile file_;
  ModelSpec spec_;
  WriterOptions options_;
  std::uint64_t end_;  // where the next section starts
  std::vector<WrittenSection> sections_;
  std::vector<std::byte> index_;
  std::uint32_t n_begun_ = 0;  // tensor sections begun
  bool in_section_ = false;
  bool finished_ = false;
  SectionDirectory section_;  // the one being written
  std::vector<TilePlan> plan_;
  std::uint64_t directory_bytes_ = 0;
  std::uint64_t section_end_ = 0;  // end of the last byte written in it
  std::uint32_t data_crc_ = 0;     // of the section's bytes after the directory's place
  std::vector<std::byte> compressed_;
  std::uint64_t raw_bytes_ = 0;
  std::uint64_t stored_bytes_ = 0;
};

}  // namespace qsf

#endif  // QSF_FORMAT_QSF_WRITER_H_
