// SPDX-License-Identifier: MIT
//
// The architectures of GGUF files: how the keys of each become a ModelSpec, and how it names and
// stores its tensors.
//
// Names are the same in all of them and follow from the kind of a tensor. Which tensors a model has
// and in which order a .qsf file holds them stands in the tables of Hugging Face folders
// (hf_tensors.h), whose families these are. What this version does not run is refused by name.

#ifndef QSF_IMPORT_GGUF_GGUF_ARCH_H_
#define QSF_IMPORT_GGUF_GGUF_ARCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "import/gguf/gguf_file.h"
#include "import/gguf/gguf_reader.h"
#include "import/hf/hf_tensors.h"

namespace qsf {

// The keys of one architecture in a GGUF file, "llama.block_count" and its like: typed, in range,
// and with the first failure remembered, so that a family reads as a list of keys.

class GgufFields {
 public:
  // Requires  `gguf` outlives the fields
  GgufFields(const GgufReader& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  const Status& status() const noexcept { return status_; }
  const GgufReader& gguf() const noexcept { return gguf_; }

  // Names below are without the architecture: "attention.head_count".
  bool has(const char* name) const { return gguf_.find_key(prefix_ + name) != nullptr; }

  // Integers in [low, high]; without a fallback the key must be there. Return 0 after a failure.
  std::uint32_t u32(const char* name, std::uint32_t low, std::uint32_t high);
  std::uint32_t u32_or(const char* name, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high);
  // Finite numbers above zero; without a fallback the key must be there. Return 1 after a failure.
  float positive(const char* name, std::optional<float> fallback);
  bool boolean(const char* name, bool fallback);
  std::string text(const char* name, std::string_view fallback);

  // Fails when the key is there with a value other than `only`, which is what this version runs.
  void refuse_unless(const char* name, double only);

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  template <typename T>
  std::optional<T> take(Result<std::optional<T>> value);

  const GgufReader& gguf_;
  std::string prefix_;
  Status status_;
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture
  std::string_view family;  // ModelSpec::architecture
  NormType norm = NormType::kRmsNorm;
  Activation activation = Activation::kSilu;
  bool gated_ffn = true;
  PositionEncoding positions = PositionEncoding::kRope;
  bool parallel_block = false;
  // Rows of queries and keys stand in pairs of neighbours that rotate together.
  bool paired_rope = false;
  Status (*finish)(GgufFields& fields, ModelSpec& spec) = nullptr;  // what only this one has
  const TensorTable* table = nullptr;  // kinds and their order; null: those of the family's folders
};

// Returns which tensors a model of an architecture has, in the order of a .qsf file.
const TensorTable& gguf_tensor_table(const GgufArchitecture& architecture);

// Returns the architecture that general.architecture names.
// Fails  kCorrupt without the key; kUnsupported, naming it
Result<const GgufArchitecture*> find_gguf_architecture(const GgufReader& gguf);

// Returns everything but tied_head, special tokens and what a conversion decides.
// Fails  kCorrupt on keys that are missing or out of range; kUnsupported, naming it, on what this
//        version does not run
Result<ModelSpec> gguf_model_spec(const GgufFile& file, const GgufArchitecture& architecture);

// Reads how RoPE is scaled: keys, and the factors that stand in tensors.
Status read_gguf_rope(const GgufFile& file, GgufFields& fields, ModelSpec& spec);

// Returns whether a tensor is one that read_gguf_rope() reads.
bool is_gguf_rope_tensor(std::string_view name) noexcept;

// Returns the name of a tensor: "token_embd.weight", "blk.3.attn_q.bias". Empty for a kind that
// GGUF has no name for.
std::string gguf_tensor_name(TensorKind kind, std::uint32_t layer);

// How many values a small tensor may have that is read whole.
inline constexpr std::uint64_t kMaxGgufVector = 1U << 24;

// Reads a tensor of one dimension, such as factors of RoPE.
// Fails  kCorrupt on other dimensions or values that are not finite; kUnsupported on a type that is
//        not decoded; kIo
Result<std::vector<float>> read_gguf_vector(const GgufFile& file, const GgufFile::Entry& entry);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_ARCH_H_
