// SPDX-License-Identifier: MIT
//
// AdapterSpec: what a LoRA adapter changes of a model, without the values.
//
// An adapter adds a product of low rank to matrix products of a model whose weights stay as they
// are. For a matrix W [out, in] it has A [rank, in] and B [out, rank], and the product becomes
//
//   y = W x + scale * B (A x)
//
// Rows and columns are in the order of a .qsf file, whatever format the adapter comes from: parts
// of a fused projection are separate, and query and key rows are those of RoPE on halves.
//
// Based on: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.

#ifndef QSF_FORMAT_ADAPTER_SPEC_H_
#define QSF_FORMAT_ADAPTER_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "format/qsf_layout.h"
#include "format/qsf_reader.h"

namespace qsf {

// Far above published adapters, most of which have a rank of 8 to 256.
inline constexpr std::uint32_t kMaxAdapterRank = 4096;
inline constexpr std::uint32_t kMaxAdapterPairs = 1U << 16;
inline constexpr std::uint32_t kMaxAdapterLayers = 4096;     // as of a model
inline constexpr std::uint32_t kMaxAdapterWidth = 1U << 24;  // rows or columns of a matrix
inline constexpr std::size_t kMaxAdapterNameBytes = 256;
inline constexpr std::size_t kAdapterAlign = 64;  // of A and of B in the file

// How values are stored. f16 is chosen where it loses nothing: most adapters are published as f32
// or bf16, and rounding what training gave would be an error that no base type asks for.
enum class AdapterType : std::uint32_t { kF32 = 0, kF16 = 1 };

// A and B of one matrix.
struct AdapterPair {
  TensorKind kind = TensorKind::kAttnQ;  // of the matrix; kHead is that of the final section
  std::uint32_t layer = 0;               // 0 for kHead
  std::uint32_t expert = 0;              // of kinds that every expert has
  std::uint32_t rank = 0;                // 1 to kMaxAdapterRank
  std::uint32_t in = 0;                  // columns of the matrix
  std::uint32_t out = 0;                 // rows of the matrix
  float scale = 1.0F;                    // alpha / rank, or alpha / sqrt(rank); finite
  AdapterType type = AdapterType::kF32;
  friend bool operator==(const AdapterPair&, const AdapterPair&) = default;

  std::uint64_t a_values() const noexcept { return std::uint64_t{rank} * in; }
  std::uint64_t b_values() const noexcept { return std::uint64_t{out} * rank; }
};

struct AdapterSpec {
  std::string name;                    // for people and requests; 1 to 256 bytes of UTF-8
  std::string architecture;            // ModelSpec::architecture of the base; a-z 0-9 _ . -
  std::uint64_t base_fingerprint = 0;  // model_fingerprint() of the base; 0: of any that fits
  std::vector<AdapterPair> pairs;      // layer by layer, the head's last; by kind, then expert
  friend bool operator==(const AdapterSpec&, const AdapterSpec&) = default;
};

// Returns whether adapters change products of this kind of matrix. Embeddings are looked up, and
// the matrices of latent keys and values are stored transposed: neither is among them.
// Threads  any
bool is_adaptable(TensorKind kind) noexcept;

// Returns whether `a` comes before `b` in AdapterSpec::pairs.
bool comes_before(const AdapterPair& a, const AdapterPair& b) noexcept;

// Returns "layer 3, attn_q", "layer 3, expert_up of expert 2" or "head", for messages.
std::string adapter_pair_label(const AdapterPair& pair);

// Returns "f32" or "f16".
std::string_view adapter_type_name(AdapterType type) noexcept;
// Bytes of one value.
constexpr std::uint64_t adapter_value_bytes(AdapterType type) noexcept {
  return type == AdapterType::kF16 ? 2 : 4;
}

// Bytes of a pair as they are stored and loaded: A, then B, row-major, each of them padded with
// zeros to a multiple of kAdapterAlign.
// Requires  the pair is valid: no overflow then
std::uint64_t adapter_a_bytes(const AdapterPair& pair) noexcept;
std::uint64_t adapter_b_bytes(const AdapterPair& pair) noexcept;
std::uint64_t adapter_pair_bytes(const AdapterPair& pair) noexcept;

// Checks one pair, whatever the base.
// Fails  kInvalidArgument, naming the pair and the field
Status validate(const AdapterPair& pair);
// Checks names, every pair and their order.
// Fails  kInvalidArgument, naming the pair and the field
Status validate(const AdapterSpec& spec);

// Checks that an adapter belongs to a model: architecture, fingerprint unless the adapter has none,
// weights that are not rotated, and for every pair that the model has the matrix in this shape.
// Requires  validate(adapter) is OK
// Fails     kInvalidArgument, naming what differs
// Threads   any
Status check_adapter_fits(const AdapterSpec& adapter, const QsfReader& base);

// Values as bytes of a type, and back.
// Shapes    values [n]; bytes [n * 4] or [n * 2]
// Requires  every value is an f16 when the type is kF16 (fits_f16)
void encode_adapter_values(std::span<const float> values, AdapterType type, MutableByteSpan bytes);
void decode_adapter_values(ByteSpan bytes, AdapterType type, std::span<float> values);
// Returns whether f16 holds every value exactly.
bool fits_f16(std::span<const float> values) noexcept;

}  // namespace qsf

#endif  // QSF_FORMAT_ADAPTER_SPEC_H_
