// SPDX-License-Identifier: MIT

#include "tools/inspect/qsf_inspect_verify.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32.h"
#include "quant/codec.h"
#include "tokenizer/tokenizer.h"

namespace qsf_tools {
namespace {

using qsf::ByteSpan;
using qsf::MutableByteSpan;
using qsf::Status;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

class Verifier {
 public:
  Verifier(const qsf::QsfReader& reader, const std::function<void(std::uint64_t)>& progress)
      : reader_(reader), progress_(progress), buffer_(kReadBytes) {}

  Status verify() {
    for (const qsf::SectionDirectory& d : reader_.directories()) {
      QSF_RETURN_IF_ERROR(verify_tiles(d));
      QSF_RETURN_IF_ERROR(
          verify_crc(qsf::section_label(d.kind, d.layer), d.file_offset, d.stored_bytes, d.crc));
    }
    for (const qsf::SectionInfo& s : reader_.sections()) {
      if (s.name == "embedding" || s.name == "final") continue;  // above
      QSF_RETURN_IF_ERROR(verify_crc("section " + s.name, s.file_offset, s.bytes, s.crc));
      QSF_RETURN_IF_ERROR(verify_zeros(s.file_offset + s.bytes,
                                       qsf::align_up(s.file_offset + s.bytes, qsf::kSectionAlign)));
    }
    QSF_RETURN_IF_ERROR(verify_zeros(qsf::kHeaderBytes, qsf::kSectionAlign));
    return verify_tokenizer();
  }

 private:
  Status damage(const std::string& where, std::uint64_t offset, const std::string& what) const {
    return qsf::corrupt("%s: %s at offset %llu: %s", reader_.file().path().c_str(), where.c_str(),
                        static_cast<unsigned long long>(offset), what.c_str());
  }

  Status verify_tiles(const qsf::SectionDirectory& d) {
    std::vector<std::byte> scratch;
    std::vector<std::byte> raw;
    for (std::uint32_t t = 0; t < d.tiles.size(); ++t) {
      const qsf::TileInfo& tile = d.tiles[t];
      scratch.resize(tile.stored_bytes);
      raw.resize(tile.raw_bytes);
      QSF_RETURN_IF_ERROR(reader_.read_tile(d, t, scratch, raw));
      const std::uint64_t end = tile.file_offset + tile.stored_bytes;
      QSF_RETURN_IF_ERROR(verify_zeros(end, qsf::align_up(end, qsf::kSectionAlign)));
      const Status content = tile.tensor == qsf::kOneRowTensors
                                 ? verify_one_row_tensors(d, raw)
                                 : verify_rows(d.tensors[tile.tensor], tile.n_rows, raw);
      if (!content.ok()) {
        return damage(qsf::section_label(d.kind, d.layer) + ": tile " + std::to_string(t),
                      tile.file_offset, content.message());
      }
      advance(tile.stored_bytes);
    }
    return qsf::ok_status();
  }

  static Status verify_rows(const qsf::TensorInfo& tensor, std::uint64_t n_rows, ByteSpan raw) {
    return qsf::check_blocks(tensor.format, tensor.layout, n_rows, tensor.cols, raw)
        .with_context(qsf::tensor_kind_name(tensor.kind));
  }

  static Status verify_one_row_tensors(const qsf::SectionDirectory& d, ByteSpan raw) {
    for (std::size_t i = 0; i < d.tensors.size(); ++i) {
      const qsf::TensorInfo& tensor = d.tensors[i];
      if (tensor.rows != 1) continue;
      const auto offset = static_cast<std::size_t>(qsf::one_row_offset(d.tensors, i));
      const auto bytes = static_cast<std::size_t>(qsf::tile_bytes(tensor, 1));
      QSF_RETURN_IF_ERROR(verify_rows(tensor, 1, raw.subspan(offset, bytes)));
      const ByteSpan padding =
          raw.subspan(offset + bytes,
                      static_cast<std::size_t>(qsf::align_up(bytes, qsf::kOneRowAlign)) - bytes);
      if (!all_zero(padding)) {
        return qsf::corrupt("%s: the padding after it is not zero",
                            std::string(qsf::tensor_kind_name(tensor.kind)).c_str());
      }
    }
    return qsf::ok_status();
  }

  static bool all_zero(ByteSpan bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  // Reads [begin, end), less than 4,096 bytes, which must be zero.
  Status verify_zeros(std::uint64_t begin, std::uint64_t end) {
    const auto bytes = static_cast<std::size_t>(std::min(end, reader_.file().size_bytes()) - begin);
    const MutableByteSpan part = MutableByteSpan(buffer_).first(bytes);
    QSF_RETURN_IF_ERROR(reader_.file().read_exact_at(begin, part));
    if (all_zero(part)) return qsf::ok_status();
    return damage("padding", begin, "is not zero");
  }

  Status verify_crc(const std::string& where, std::uint64_t offset, std::uint64_t bytes,
                    std::uint32_t expected) {
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < bytes;) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, bytes - done));
      const MutableByteSpan part = MutableByteSpan(buffer_).first(n);
      QSF_RETURN_IF_ERROR(reader_.file().read_exact_at(offset + done, part));
      crc = qsf::crc32(part, crc);
      done += n;
      advance(n);
    }
    if (crc == expected) return qsf::ok_status();
    char text[64];
    std::snprintf(text, sizeof text, "CRC 0x%08x, expected 0x%08x", crc, expected);
    return damage(where, offset, text);
  }

  Status verify_tokenizer() const {
    if (reader_.tokenizer_bytes() == 0) return qsf::ok_status();
    QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> section, reader_.read_tokenizer());
    Status status;
    auto index_bytes = qsf::Tokenizer::index_bytes(section);
    if (!index_bytes) {
      status = std::move(index_bytes).error();
    } else {
      std::vector<std::byte> index(*index_bytes);
      auto tokenizer = qsf::Tokenizer::open(section, index);
      if (!tokenizer) status = std::move(tokenizer).error();
    }
    return std::move(status).with_context(reader_.file().path() + ": section tokenizer");
  }

  void advance(std::uint64_t bytes) {
    read_bytes_ += bytes;
    progress_(read_bytes_);
  }

  const qsf::QsfReader& reader_;
  const std::function<void(std::uint64_t)>& progress_;
  std::vector<std::byte> buffer_;
  std::uint64_t read_bytes_ = 0;
};

}  // namespace

Status verify_file(const qsf::QsfReader& reader,
                   const std::function<void(std::uint64_t)>& progress) {
  return Verifier(reader, progress).verify();
}

}  // namespace qsf_tools
