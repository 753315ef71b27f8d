// SPDX-License-Identifier: MIT
//
// Any bytes as a .qsf file, checksums not enforced: refused, or opened and read whole without harm.
// Needs qsf_format and qsf_io_testing. Seeds: testdata/format/v1.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "format/qsf_reader.h"
#include "format/tensor_values.h"
#include "io/testing/faulty_file.h"
#include "quant/codec.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxDecodedWeights = 1U << 16;  // keeps one input fast

void read_section(const QsfReader& reader, const SectionDirectory& d) {
  std::vector<std::byte> scratch;
  std::vector<std::byte> raw;
  for (std::uint32_t t = 0; t < d.tiles.size(); ++t) {
    const TileInfo& tile = d.tiles[t];
    scratch.resize(tile.stored_bytes);
    raw.resize(tile.raw_bytes);
    if (!reader.read_tile(d, t, scratch, raw).ok() || tile.tensor == kOneRowTensors) continue;
    const TensorInfo& tensor = d.tensors[tile.tensor];
    // The promise of the directory: the tile has the size its rows need.
    QSF_CHECK(raw.size() == tile_bytes(tensor, tile.n_rows));
    static_cast<void>(
        check_blocks(tensor.format, tensor.layout, tile.n_rows, tensor.cols, raw).ok());
  }
  for (std::uint32_t i = 0; i < d.tensors.size(); ++i) {
    if (std::uint64_t{d.tensors[i].rows} * d.tensors[i].cols > kMaxDecodedWeights) continue;
    static_cast<void>(read_tensor_values(reader, d, i).has_value());
  }
}

}  // namespace
}  // namespace qsf

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  MemoryFileOps ops(std::as_bytes(std::span(data, size)));
  auto file = File::open("fuzz.qsf", ops);
  if (!file) return 0;
  const auto reader = QsfReader::open(std::move(file).value(), {.verify_crc = false});
  if (!reader) return 0;
  for (const SectionDirectory& d : reader->directories()) read_section(*reader, d);
  for (const SectionInfo& section : reader->sections()) {
    static_cast<void>(reader->read_section(section).has_value());
  }
  // What was accepted can be written and read again.
  QSF_CHECK(validate(reader->spec()).ok());
  return 0;
}
