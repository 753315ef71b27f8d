// SPDX-License-Identifier: MIT

#include "format/directory_codec.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/crc32.h"
#include "format/tensor_rules.h"

namespace qsf {
namespace {

using ull = unsigned long long;

// Block field of a tensor header: 0 the file's, 1 to 4 for 32 to 256.
std::uint8_t block_field(BlockFormat format, std::uint32_t file_block) noexcept {
  if (fixed_block(format.type) != 0 || format.block == file_block) return 0;
  std::uint8_t field = 1;
  for (std::uint32_t block = 32; block < format.block; block *= 2) ++field;
  return field;
}

Result<TensorInfo> decode_tensor(ByteSpan h, std::uint8_t default_type, std::uint32_t file_block) {
  const auto kind = load_le<std::uint32_t>(h, tensor_at::kKind);
  auto type = load_le<std::uint8_t>(h, tensor_at::kType);
  const auto layout_and_block = load_le<std::uint8_t>(h, tensor_at::kLayoutAndBlock);
  const unsigned layout = layout_and_block & 15U;
  const unsigned block = layout_and_block >> 4;
  if (!is_tensor_kind(kind)) return unsupported("kind %u is not known to this version", kind);
  if (type == kInheritType) type = default_type;
  if (!is_quant_type(type)) return unsupported("weight type %u is not known to this version", type);
  if (layout > 1) return unsupported("layout %u is not known to this version", layout);
  if (block > 4) return unsupported("block size code %u is not known to this version", block);
  TensorInfo tensor;
  tensor.kind = static_cast<TensorKind>(kind);
  tensor.rows = load_le<std::uint32_t>(h, tensor_at::kRows);
  tensor.cols = load_le<std::uint32_t>(h, tensor_at::kCols);
  tensor.layout = static_cast<Layout>(layout);
  tensor.expert = load_le<std::uint16_t>(h, tensor_at::kExpert);
  const auto quant = static_cast<QuantType>(type);
  if (fixed_block(quant) != 0 && block != 0) {
    return corrupt("block size code %u with type %s, expected 0", block,
                   std::string(quant_type_name(quant)).c_str());
  }
  tensor.format = block_format(quant, block == 0 ? file_block : 16U << block);
  return tensor;
}

TileInfo decode_tile_entry(ByteSpan e) noexcept {
  return {
      load_le<std::uint64_t>(e, tile_at::kOffset), load_le<std::uint32_t>(e, tile_at::kStored),
      load_le<std::uint32_t>(e, tile_at::kRaw),    load_le<std::uint32_t>(e, tile_at::kCrc),
      load_le<std::uint32_t>(e, tile_at::kTensor), load_le<std::uint32_t>(e, tile_at::kFirstRow),
      load_le<std::uint32_t>(e, tile_at::kRows)};
}

// Walks the tiles in file order and holds each to the tensor it belongs to.
class TileChecker {
 public:
  explicit TileChecker(const SectionDirectory& directory)
      : directory_(directory),
        next_row_(directory.tensors.size(), 0),
        tile_rows_(directory.tensors.size(), 0),
        end_(directory_bytes(directory.tensors.size(), directory.tiles.size())) {}

  // Checks everything and returns the bytes that the tiles hold.
  Result<std::uint64_t> check_all() {
    std::uint64_t raw_bytes = 0;
    for (const TileInfo& tile : directory_.tiles) {
      QSF_RETURN_IF_ERROR(check_place(tile));
      QSF_RETURN_IF_ERROR(tile.tensor == kOneRowTensors ? check_one_row(tile) : check_rows(tile));
      raw_bytes += tile.raw_bytes;
    }
    if (end_ != directory_.stored_bytes) {
      return corrupt("the tiles end at byte %llu of the section, expected %llu", ull{end_},
                     ull{directory_.stored_bytes});
    }
    QSF_RETURN_IF_ERROR(check_complete());
    return raw_bytes;
  }

 private:
  // Each tile starts at the first multiple of 4,096 after the one before.
  Status check_place(const TileInfo& tile) {
    const std::uint64_t expected = align_up(end_, kSectionAlign);
    if (tile.file_offset != expected) {
      return corrupt("a tile at byte %llu of the section, expected %llu", ull{tile.file_offset},
                     ull{expected});
    }
    if (tile.raw_bytes == 0 || tile.raw_bytes > kMaxTileBytes) {
      return corrupt("a tile of %u bytes, expected 1 to %llu", tile.raw_bytes, ull{kMaxTileBytes});
    }
    const bool plain = tile.stored_bytes == tile.raw_bytes;
    if (!plain && (directory_.compression == Compression::kNone || tile.stored_bytes == 0 ||
                   tile.stored_bytes > tile.raw_bytes)) {
      return corrupt("a tile of %u bytes stored in %u with compression %s", tile.raw_bytes,
                     tile.stored_bytes,
                     std::string(compression_name(directory_.compression)).c_str());
    }
    end_ = expected + tile.stored_bytes;
    return ok_status();
  }

  Status check_one_row(const TileInfo& tile) {
    const auto n = static_cast<std::uint32_t>(
        std::count_if(directory_.tensors.begin(), directory_.tensors.end(),
                      [](const TensorInfo& t) { return t.rows == 1; }));
    const std::uint64_t bytes = one_row_tile_bytes(directory_.tensors);
    if (seen_one_row_ || tile.first_row != 0 || tile.n_rows != n || tile.raw_bytes != bytes) {
      return corrupt(
          "the tile of one-row tensors holds %u of %u bytes from %u, expected %u of %llu",
          tile.n_rows, tile.raw_bytes, tile.first_row, n, ull{bytes});
    }
    seen_one_row_ = true;
    return ok_status();
  }

  Status check_rows(const TileInfo& tile) {
    if (tile.tensor >= directory_.tensors.size()) {
      return corrupt("a tile of tensor %u, the section has %zu", tile.tensor,
                     directory_.tensors.size());
    }
    const TensorInfo& tensor = directory_.tensors[tile.tensor];
    std::uint32_t& next = next_row_[tile.tensor];
    std::uint32_t& tile_rows = tile_rows_[tile.tensor];
    if (tensor.rows == 1 || tile.first_row != next || tile.n_rows == 0 ||
        tile.n_rows > tensor.rows - next) {
      return corrupt("%s: a tile of rows %u to %llu, expected it to start at row %u of %u",
                     std::string(tensor_kind_name(tensor.kind)).c_str(), tile.first_row,
                     ull{tile.first_row} + tile.n_rows, next, tensor.rows);
    }
    const bool last = tile.n_rows == tensor.rows - next;
    if (next == 0) tile_rows = tile.n_rows;
    if (!last && tile.n_rows % kTileRowAlign != 0) {
      return corrupt("%s: a tile of %u rows, expected a multiple of 64",
                     std::string(tensor_kind_name(tensor.kind)).c_str(), tile.n_rows);
    }
    if (last ? tile.n_rows > tile_rows : tile.n_rows != tile_rows) {
      return corrupt("%s: a tile of %u rows after one of %u",
                     std::string(tensor_kind_name(tensor.kind)).c_str(), tile.n_rows, tile_rows);
    }
    if (tile.raw_bytes != tile_bytes(tensor, tile.n_rows)) {
      return corrupt("%s: a tile of %u rows in %u bytes, expected %llu",
                     std::string(tensor_kind_name(tensor.kind)).c_str(), tile.n_rows,
                     tile.raw_bytes, ull{tile_bytes(tensor, tile.n_rows)});
    }
    next += tile.n_rows;
    return ok_status();
  }

  Status check_complete() const {
    for (std::size_t i = 0; i < directory_.tensors.size(); ++i) {
      const TensorInfo& tensor = directory_.tensors[i];
      if (tensor.rows == 1 ? !seen_one_row_ : next_row_[i] != tensor.rows) {
        return corrupt("%s: the tiles hold %u of its %u rows",
                       std::string(tensor_kind_name(tensor.kind)).c_str(), next_row_[i],
                       tensor.rows);
      }
    }
    return ok_status();
  }

  const SectionDirectory& directory_;  // tile offsets still count from the section's start
  std::vector<std::uint32_t> next_row_;
  std::vector<std::uint32_t> tile_rows_;
  std::uint64_t end_;
  bool seen_one_row_ = false;
};

// Returns all bytes of the directory, in one read where it fits 4 KiB.
Result<std::vector<std::byte>> read_directory_bytes(const File& file, const SectionPlace& place) {
  const std::uint64_t section_bytes = place.head.stored_bytes;
  const std::uint64_t count_at = std::uint64_t{place.n_tensors} * kTensorHeaderBytes;
  if (directory_bytes(place.n_tensors, 0) > section_bytes) {
    return corrupt("%u tensors do not fit a section of %llu bytes", place.n_tensors,
                   ull{section_bytes});
  }
  const std::uint64_t first_bytes =
      std::max(std::min<std::uint64_t>(section_bytes, kSectionAlign), count_at + 4);
  std::vector<std::byte> bytes(static_cast<std::size_t>(first_bytes));
  QSF_RETURN_IF_ERROR(file.read_exact_at(place.head.file_offset, bytes));
  const auto n_tiles = load_le<std::uint32_t>(bytes, static_cast<std::size_t>(count_at));
  const std::uint64_t all_bytes = directory_bytes(place.n_tensors, n_tiles);
  // Every tile but the last takes at least 4,096 bytes, so this also bounds the memory.
  if (all_bytes > section_bytes || n_tiles > ceil_div(section_bytes, kSectionAlign)) {
    return corrupt("%u tiles do not fit a section of %llu bytes", n_tiles, ull{section_bytes});
  }
  bytes.resize(static_cast<std::size_t>(all_bytes));
  if (all_bytes > first_bytes) {
    QSF_RETURN_IF_ERROR(
        file.read_exact_at(place.head.file_offset + first_bytes,
                           MutableByteSpan(bytes).subspan(static_cast<std::size_t>(first_bytes))));
  }
  return bytes;
}

Result<SectionDirectory> parse_directory(const File& file, const ModelSpec& spec,
                                         const SectionPlace& place, bool verify_crc) {
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, read_directory_bytes(file, place));
  const ByteSpan covered = ByteSpan(bytes).first(bytes.size() - 4);
  const auto stored_crc = load_le<std::uint32_t>(bytes, covered.size());
  if (verify_crc && crc32(covered) != stored_crc) {
    return corrupt("directory CRC 0x%08x, expected 0x%08x", crc32(covered), stored_crc);
  }
  SectionDirectory directory = place.head;
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < place.n_tensors; ++i, at += kTensorHeaderBytes) {
    Result<TensorInfo> tensor =
        decode_tensor(covered.subspan(at, kTensorHeaderBytes), place.default_type, spec.block);
    if (!tensor) {
      return std::move(tensor).error().with_context("tensor " + std::to_string(i));
    }
    directory.tensors.push_back(*tensor);
  }
  const Status valid = check_tensors(spec, directory.kind, directory.layer, directory.tensors);
  if (!valid.ok()) return Status(StatusCode::kCorrupt, valid.message());
  if (common_type(directory.tensors) != place.default_type) {
    return corrupt("weight type %u of the section is not that of its tensors, expected %u",
                   place.default_type, common_type(directory.tensors));
  }
  at += 4;
  directory.tiles.reserve((covered.size() - at) / kTileEntryBytes);
  for (; at < covered.size(); at += kTileEntryBytes) {
    directory.tiles.push_back(decode_tile_entry(covered.subspan(at, kTileEntryBytes)));
  }
  QSF_ASSIGN_OR_RETURN(const std::uint64_t raw_bytes, TileChecker(directory).check_all());
  if (directory.kind == SectionKind::kLayer && raw_bytes != directory.raw_bytes) {
    return corrupt("the tiles hold %llu bytes, but the layer index says %llu", ull{raw_bytes},
                   ull{directory.raw_bytes});
  }
  directory.raw_bytes = raw_bytes;
  for (TileInfo& tile : directory.tiles) tile.file_offset += directory.file_offset;
  return directory;
}

}  // namespace

std::vector<std::byte> encode_directory(const SectionDirectory& directory,
                                        std::uint32_t file_block) {
  ByteWriter to;
  for (const TensorInfo& tensor : directory.tensors) {
    to.write(static_cast<std::uint32_t>(tensor.kind));
    to.write(tensor.rows);
    to.write(tensor.cols);
    to.write(static_cast<std::uint8_t>(tensor.format.type));
    to.write(static_cast<std::uint8_t>(static_cast<unsigned>(tensor.layout) |
                                       unsigned{block_field(tensor.format, file_block)} << 4));
    to.write(tensor.expert);
  }
  to.write(static_cast<std::uint32_t>(directory.tiles.size()));
  for (const TileInfo& tile : directory.tiles) {
    to.write(tile.file_offset - directory.file_offset);
    to.write(tile.stored_bytes);
    to.write(tile.raw_bytes);
    to.write(tile.crc);
    to.write(tile.tensor);
    to.write(tile.first_row);
    to.write(tile.n_rows);
  }
  to.write(crc32(to.view()));
  return std::move(to.bytes());
}

Result<SectionDirectory> read_directory(const File& file, const ModelSpec& spec,
                                        const SectionPlace& place, bool verify_crc) {
  Result<SectionDirectory> directory = parse_directory(file, spec, place, verify_crc);
  if (directory) return directory;
  return std::move(directory).error().with_context(
      section_label(place.head.kind, place.head.layer) + " at offset " +
      std::to_string(place.head.file_offset));
}

}  // namespace qsf
