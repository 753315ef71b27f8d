// SPDX-License-Identifier: MIT
//
// The messages of a ring as bytes: a header of 40 bytes, and what its kind says.

#ifndef QSF_RANKS_FRAME_H_
#define QSF_RANKS_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace qsf {

enum class FrameKind : std::uint8_t {
  kOpen = 1,  // the file, the options and the cut of a rank; ring_messages.h
  kOpened,    // what came of it
  kPass,      // a pass to be computed: a PassMessage
  kRows,      // rows in front of a window, f32
  kFailed,    // of a pass: a status
  kClose,     // the engine ends
  kEnd,       // the group ends
};

struct FrameHeader {
  FrameKind kind = FrameKind::kEnd;
  std::uint64_t pass = 0;
  std::uint32_t window = 0;  // of kRows: its number among all, behind the last one the output head
  std::uint32_t n_rows = 0;  // of kRows, and the next
  std::uint32_t n_cols = 0;
};

struct Frame {
  FrameHeader header;
  ByteSpan payload;
};

// Little-endian, with a CRC-32 of header and payload.
std::vector<std::byte> encode_frame(const FrameHeader& header, ByteSpan payload);

// Requires  `bytes` outlives the frame
// Fails     kCorrupt for bytes that encode_frame() does not write, saying what is wrong
Result<Frame> decode_frame(ByteSpan bytes);

}  // namespace qsf

#endif  // QSF_RANKS_FRAME_H_
