// SPDX-License-Identifier: MIT
//
// The directory at the head of a tensor section: tensor headers, tile count, tile entries, CRC.

#ifndef QSF_FORMAT_DIRECTORY_CODEC_H_
#define QSF_FORMAT_DIRECTORY_CODEC_H_

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "io/file.h"

namespace qsf {

// Bytes of a directory.
constexpr std::uint64_t directory_bytes(std::uint64_t n_tensors, std::uint64_t n_tiles) noexcept {
  return n_tensors * kTensorHeaderBytes + 4 + n_tiles * kTileEntryBytes + 4;
}

// Returns the bytes of a directory. `file_block` is the block size of the file's header.
std::vector<std::byte> encode_directory(const SectionDirectory& directory,
                                        std::uint32_t file_block);

// The entry of a section in the layer index or the section directory.
struct SectionPlace {
  SectionDirectory head;  // without tensors and tiles; raw_bytes only for layers
  std::uint32_t n_tensors = 0;
  std::uint8_t default_type = kMixedType;  // common_type of the tensors
};

// Reads and checks the directory of the section at `place`: codes, shapes, and that the tiles cover
// each tensor's rows exactly once and fill the section without gap or overlap.
// Requires  the section lies inside the file; spec is valid
// Fails     kCorrupt, kUnsupported, kIo; the message begins with the section's label
Result<SectionDirectory> read_directory(const File& file, const ModelSpec& spec,
                                        const SectionPlace& place, bool verify_crc);

}  // namespace qsf

#endif  // QSF_FORMAT_DIRECTORY_CODEC_H_
