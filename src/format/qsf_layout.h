// SPDX-License-Identifier: MIT
//
// The bytes of a .qsf file, version 1: constants, offsets and codes, and the plain structs that
// reader and writer share.
//
// Based on: docs/format.md, which is the authority. Nothing here may change for version 1.

#ifndef QSF_FORMAT_QSF_LAYOUT_H_
#define QSF_FORMAT_QSF_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/block_format.h"

namespace qsf {

inline constexpr std::string_view kQsfMagic = "QSF1";
inline constexpr std::uint32_t kQsfVersion = 1;
inline constexpr std::size_t kHeaderBytes = 128;
inline constexpr std::size_t kSectionAlign = 4096;  // sections, tiles and the file's length
inline constexpr std::size_t kIndexEntryBytes = 32;
inline constexpr std::size_t kTensorHeaderBytes = 16;
inline constexpr std::size_t kTileEntryBytes = 32;
inline constexpr std::size_t kSectionEntryBytes = 64;
inline constexpr std::size_t kSectionNameBytes = 32;  // zero-padded
inline constexpr std::size_t kMetadataHeaderBytes = 16;
inline constexpr std::size_t kOneRowAlign = 64;     // each one-row tensor inside their tile
inline constexpr std::uint32_t kTileRowAlign = 64;  // rows at which a tile may start
inline constexpr std::uint64_t kMaxTileBytes = 4U << 20;
inline constexpr std::uint64_t kDefaultTileBytes = 1U << 20;
inline constexpr std::uint64_t kMaxMetadataBytes = 16U << 20;
inline constexpr std::uint32_t kMaxMetadataKeys = 4096;
inline constexpr std::uint32_t kMaxSections = 1024;
inline constexpr std::uint64_t kMaxSectionBytes = (std::uint64_t{1} << 48) - 1;
inline constexpr std::uint32_t kAbsentToken = 0xFFFFFFFFU;
inline constexpr std::uint32_t kOneRowTensors = 0xFFFFFFFFU;  // tensor field of the shared tile
inline constexpr std::uint8_t kMixedType = 5;                 // header byte 48, index byte 16
inline constexpr std::uint8_t kInheritType = 0xFF;            // tensor header byte 12

// Offsets in the file header.
namespace header_at {
inline constexpr std::size_t kMagic = 0, kVersion = 4, kHeaderSize = 8, kArchitecture = 12,
                             kLayers = 16, kHidden = 20, kHeads = 24, kKvHeads = 28, kVocab = 32,
                             kMaxPositions = 36, kFfn = 40, kHeadDim = 44, kDefaultType = 48,
                             kActivation = 49, kNorm = 50, kPositions = 51, kRopeTheta = 52,
                             kIndexOffset = 56, kEmbeddingOffset = 64, kFinalOffset = 72, kBos = 80,
                             kEos = 84, kPad = 88, kFileSizeLow = 92, kCrc = 96,
                             kTokenizerOffset = 100, kMetadataOffset = 108, kBlock = 116,
                             kFlags = 118, kCrc2 = 120, kReserved = 124;
static_assert(kPositions + 1 == kRopeTheta && kRopeTheta + 4 == kIndexOffset);
static_assert(kFinalOffset + 8 == kBos && kPad + 4 == kFileSizeLow && kFileSizeLow + 4 == kCrc);
static_assert(kCrc + 4 == kTokenizerOffset && kTokenizerOffset + 8 == kMetadataOffset);
static_assert(kMetadataOffset + 8 == kBlock && kFlags + 2 == kCrc2 && kCrc2 + 4 == kReserved);
static_assert(kReserved + 4 == kHeaderBytes);
}  // namespace header_at

inline constexpr std::uint16_t kFlagTiedHead = 1, kFlagCalibrated = 2, kFlagNativelyTernary = 4;

// Offsets in an entry of the layer index.
namespace index_at {
inline constexpr std::size_t kOffset = 0, kStoredLow = 8, kRawLow = 12, kType = 16,
                             kCompression = 17, kTensors = 18, kCrc = 20, kImportance = 24,
                             kStoredHigh = 28, kRawHigh = 30;
static_assert(kRawHigh + 2 == kIndexEntryBytes);
}  // namespace index_at

// Offsets in a tensor header.
namespace tensor_at {
inline constexpr std::size_t kKind = 0, kRows = 4, kCols = 8, kType = 12, kLayoutAndBlock = 13,
                             kExpert = 14;
static_assert(kExpert + 2 == kTensorHeaderBytes);
}  // namespace tensor_at

// Offsets in a tile entry; the tile's own offset counts from the start of its section.
namespace tile_at {
inline constexpr std::size_t kOffset = 0, kStored = 8, kRaw = 12, kCrc = 16, kTensor = 20,
                             kFirstRow = 24, kRows = 28;
static_assert(kRows + 4 == kTileEntryBytes);
}  // namespace tile_at

// Offsets in an entry of the section directory.
namespace section_at {
inline constexpr std::size_t kName = 0, kOffset = 32, kBytes = 40, kCrc = 48, kFlags = 52,
                             kTensors = 56, kCompression = 60, kType = 61, kReserved = 62;
static_assert(kReserved + 2 == kSectionEntryBytes);
}  // namespace section_at

inline constexpr std::uint32_t kSectionRequired = 1;  // flag of a section and of a metadata key

// Offsets in the head of the metadata section. The CRC covers bytes 4 to the end of the payload.
namespace metadata_at {
inline constexpr std::size_t kCrc = 0, kPayload = 4, kKeys = 8, kSections = 12;
static_assert(kSections + 4 == kMetadataHeaderBytes);
}  // namespace metadata_at

enum class TensorKind : std::uint32_t {
  kAttnQ = 0,
  kAttnK = 1,
  kAttnV = 2,
  kAttnO = 3,
  kFfnGate = 4,
  kFfnUp = 5,
  kFfnDown = 6,
  kAttnNorm = 7,
  kFfnNorm = 8,
  kAttnQBias = 9,
  kAttnKBias = 10,
  kAttnVBias = 11,
  kAttnOBias = 12,
  kFfnBiases = 13,  // read only: up bias and then down bias in one row
  kFfnUpBias = 16,
  kFfnDownBias = 17,
  kFfnGateBias = 18,
  kAttnNormBias = 19,
  kFfnNormBias = 20,
  kQNorm = 21,
  kKNorm = 22,
  kAttnSubNorm = 23,
  kFfnSubNorm = 24,
  kRouter = 25,
  kExpertGate = 26,
  kExpertUp = 27,
  kExpertDown = 28,
  kAttnPostNorm = 29,  // of a sublayer's output, before it joins the residual stream
  kFfnPostNorm = 30,
  kTokenEmbedding = 31,
  kPositionEmbedding = 32,
  kEmbeddingNorm = 33,
  kEmbeddingNormBias = 34,
  kFinalNorm = 35,
  kFinalNormBias = 36,
  kHead = 37,
  kHeadBias = 38,
  kSharedGate = 39,  // of the expert that takes every row, in a layer
  kSharedUp = 40,
  kSharedDown = 41,
  kSharedWeight = 42,      // sigmoid(its product with a row) weighs what that expert adds
  kRouterCorrection = 43,  // added to scores where experts are chosen
  // Of layers with a state, in place of queries, keys, values and output.
  kMixerIn = 48,
  kMixerInBias = 49,
  kMixerOut = 50,
  kMixerOutBias = 51,
  kConvTaps = 52,  // one row: all channels of the oldest position, ... of the row's own
  kConvBias = 53,
  kAttnSinks = 56,  // of heads: scores that take weight and have no value, in a layer
  kRouterBias = 57,
  kExpertGateBias = 58,
  kExpertUpBias = 59,
  kExpertDownBias = 60,
  kScanDecay = 61,  // negative, of each head
  kScanBias = 62,   // of each head's time step
  kScanSkip = 63,   // of each head's input in its output
  kScanNorm = 64,
  // Of latent attention, beside queries, the row that all heads share (kAttnK) and the output.
  kLatentQuery = 70,      // the row that queries are products of
  kLatentQueryNorm = 71,  // of that row
  kLatentNorm = 72,       // of the latent columns of the shared row
  kLatentKeys = 73,       // of each head: its keys by latent column
  kLatentValues = 74,     // of each head: its values
  // Of what is pooled of a text's rows, in the embedding section.
  kDenseUp = 75,
  kDenseDown = 76,
  kMixerGate = 80,   // of what a delta rule gives
  kDeltaRate = 81,   // of each head: how much of what it remembers of a key a row replaces
  kDeltaStep = 82,   // of each head's time step
  kDeltaNorm = 83,   // of every head
  kAttnGate = 84,    // of what attention gives
  kLaurelNorm = 85,  // of what kLaurelRight gives
  kLayerScale = 90,  // one number that multiplies the residual stream behind a layer
  // Of experts beside an FFN.
  kRouterNorm = 91,      // of the residual stream, before the router; scores are over sqrt(hidden)
  kExpertScales = 92,    // multiply the weights of experts
  kExpertNorm = 93,      // of the residual stream, before the experts
  kDensePostNorm = 94,   // of what the FFN gives
  kExpertPostNorm = 95,  // of what the experts give together
  // Of inputs of each layer.
  kLayerEmbedding = 96,       // a second embedding, of all layers' columns
  kLayerInput = 97,           // of the embedded row
  kLayerInputNorm = 98,       // of that product
  kLayerInputGate = 99,       // of the residual stream
  kLayerInputOut = 100,       // to the residual stream
  kLayerInputPostNorm = 101,  // of what it gives
  // Of residual streams beside the first; TensorInfo::expert is the stream's number less one.
  kStreamIn = 102,   // in the first layer: of the embedded row
  kStreamOut = 103,  // in the last layer: of the stream
  // One row each of all layers: [streams, hidden], [streams, streams, streams], [streams, streams].
  kStreamRouter = 104,
  kStreamPredict = 105,
  kStreamCorrect = 106,
  kStreamScale = 107,  // of the first stream, before the gate of the layer's input
  kLaurelLeft = 108,   // beside attention, of few columns
  kLaurelRight = 109,
  // Of a block for multi-token prediction, in its first layer.
  kMtpProjection = 110,  // of the normed embedding and, behind it, the other model's normed row
  kMtpTokenNorm = 111,   // of the embedding
  kMtpHiddenNorm = 112,  // of that row
};

// Returns whether `code` is one of the kinds above.
constexpr bool is_tensor_kind(std::uint32_t code) noexcept {
  return code <= 13 || (code >= 16 && code <= 43) || (code >= 48 && code <= 53) ||
         (code >= 56 && code <= 64) || (code >= 70 && code <= 76) || (code >= 80 && code <= 85) ||
         (code >= 90 && code <= 112);
}
// Returns a name such as "attn_q" or "final_norm_bias".
std::string_view tensor_kind_name(TensorKind kind) noexcept;

enum class Compression : std::uint8_t { kNone = 0, kLz4 = 1, kLz4Hc = 2, kZstd = 3 };
// Returns "none", "lz4", "lz4hc" or "zstd".
std::string_view compression_name(Compression compression) noexcept;

// The sections that hold tensors.
enum class SectionKind : std::uint8_t { kEmbedding, kLayer, kFinal };

// One tensor: its shape and how its weights are stored.
struct TensorInfo {
  TensorKind kind = TensorKind::kAttnQ;
  std::uint32_t rows = 0;  // >= 1; a tensor of one row is f32, f16 or bf16 in layout kRowMajor
  std::uint32_t cols = 0;  // >= 1; true columns, not padded
  BlockFormat format{QuantType::kF32, 4};
  Layout layout = Layout::kInterleaved;
  std::uint16_t expert = 0;  // of kinds that a section has several of: experts, streams
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// Whole rows of one tensor, or all one-row tensors of a section together: the unit of reading.
struct TileInfo {
  std::uint64_t file_offset = 0;   // absolute; a multiple of 4,096
  std::uint32_t stored_bytes = 0;  // equal to raw_bytes: not compressed
  std::uint32_t raw_bytes = 0;
  std::uint32_t crc = 0;        // of the stored bytes
  std::uint32_t tensor = 0;     // index into the section's tensors, or kOneRowTensors
  std::uint32_t first_row = 0;  // a multiple of 64
  std::uint32_t n_rows = 0;     // for kOneRowTensors: the number of tensors
  friend bool operator==(const TileInfo&, const TileInfo&) = default;
};

// Everything about one section that holds tensors.
struct SectionDirectory {
  SectionKind kind = SectionKind::kLayer;
  std::uint32_t layer = 0;  // with kLayer
  Compression compression = Compression::kNone;
  std::uint64_t file_offset = 0;
  std::uint64_t stored_bytes = 0;   // of the section, its directory and inner padding included
  std::uint64_t raw_bytes = 0;      // sum over tiles
  std::uint32_t crc = 0;            // of the section's stored bytes
  float importance = 0.0F;          // layers alone; 0: not measured
  std::vector<TensorInfo> tensors;  // in order of use
  std::vector<TileInfo> tiles;      // in order of the file

  // Returns the index in `tensors`, or nothing.
  std::optional<std::uint32_t> find(TensorKind kind, std::uint16_t expert = 0) const noexcept;
};

// Returns "embedding", "layer 7" or "final", for messages.
std::string section_label(SectionKind kind, std::uint32_t layer);

// Bytes of `n_rows` rows of a tensor in a tile.
// Requires  rows and columns below 2^32
constexpr std::uint64_t tile_bytes(const TensorInfo& tensor, std::uint64_t n_rows) noexcept {
  return rows_bytes(tensor.format, tensor.layout, n_rows, tensor.cols);
}

// The offset of the one-row tensor `index` in the tile that all one-row tensors share: in the order
// of `tensors`, each at a multiple of 64 bytes. Requires  tensors[index].rows == 1
std::uint64_t one_row_offset(std::span<const TensorInfo> tensors, std::size_t index) noexcept;
// Bytes of that tile; 0 when no tensor has one row.
std::uint64_t one_row_tile_bytes(std::span<const TensorInfo> tensors) noexcept;

}  // namespace qsf

#endif  // QSF_FORMAT_QSF_LAYOUT_H_
