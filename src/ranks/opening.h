// SPDX-License-Identifier: MIT
//
// What rank 0 tells the others about the engine that they are to open, as bytes.

#ifndef QSF_RANKS_OPENING_H_
#define QSF_RANKS_OPENING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/engine.h"
#include "ranks/ring_plan.h"

namespace qsf {

struct Opening {
  bool plans_only = false;  // or opens
  std::string version;      // of QSF, with the tier of instruction sets
  std::string path;
  std::uint64_t file_bytes = 0;
  std::uint32_t file_crc = 0;  // of its first MiB: header and directories
  EngineOptions options;       // those that every rank needs
  RingPlan plan;
  std::uint64_t ring_bytes = 0;  // LayerCut::ring_bytes
};

// Reads size and CRC of a file. Fails  as File::open()
Status identify_file(const std::string& path, Opening& opening);

std::vector<std::byte> encode_opening(const Opening& opening);
// Fails  kCorrupt for bytes that encode_opening() does not write
Result<Opening> decode_opening(ByteSpan bytes);

}  // namespace qsf

#endif  // QSF_RANKS_OPENING_H_
