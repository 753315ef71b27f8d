// SPDX-License-Identifier: MIT
//
// The architectures of GGUF files: reads the keys of each into a ModelSpec, and names its tensors.
//
// All architectures name a tensor by its kind. The tables of hf_tensors.h list the tensors of each
// family in the order of a .qsf file. Unsupported features are rejected by name.

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

// Typed, range-checked access to the keys of one architecture, such as "llama.block_count". The
// first failure is kept, so callers read a list of keys and check status() once.
class GgufFields {
 public:
  // Requires  `gguf` outlives the fields
  GgufFields(const GgufReader& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  const Status& status() const noexcept { return status_; }
  const GgufReader& gguf() const noexcept { return gguf_; }

  // Names are given without the architecture: "attention.head_count".
  bool has(const char* name) const { return gguf_.find_key(prefix_ + name) != nullptr; }

  // Integers in [low, high]. u32() requires the key. Return 0 after a failure.
  std::uint32_t u32(const char* name, std::uint32_t low, std::uint32_t high);
  std::uint32_t u32_or(const char* name, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high);
  // A finite number above zero. The key is required when there is no fallback. Returns 1 after a
  // failure.
  float positive(const char* name, std::optional<float> fallback);
  bool boolean(const char* name, bool fallback);
  std::string text(const char* name, std::string_view fallback);

  // Fails when the key is present with a value other than `only`, the supported one.
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
  // RoPE rotates neighbouring rows of queries and keys in pairs (GPT-J order).
  bool paired_rope = false;
  Status (*finish)(GgufFields& fields, ModelSpec& spec) = nullptr;  // reads its own keys
  const TensorTable* table = nullptr;  // kinds and their order; null: those of the family's folders
};

// Returns which tensors a model of an architecture has, in the order of a .qsf file.
const TensorTable& gguf_tensor_table(const GgufArchitecture& architecture);

// Returns the architecture that general.architecture names.
// Fails  kCorrupt without the key; kUnsupported, naming it
Result<const GgufArchitecture*> find_gguf_architecture(const GgufReader& gguf);

// Returns the spec without tied_head, special tokens and the fields that a conversion sets.
// Fails  kCorrupt on keys that are missing or out of range; kUnsupported, naming it, on an
//        unsupported feature
Result<ModelSpec> gguf_model_spec(const GgufFile& file, const GgufArchitecture& architecture);

// Reads the scaling of RoPE from keys and from tensors of factors.
Status read_gguf_rope(const GgufFile& file, GgufFields& fields, ModelSpec& spec);

// Returns whether read_gguf_rope() reads the tensor.
bool is_gguf_rope_tensor(std::string_view name) noexcept;

// Returns the name of a tensor: "token_embd.weight", "blk.3.attn_q.bias". Empty for a kind that
// GGUF has no name for.
std::string gguf_tensor_name(TensorKind kind, std::uint32_t layer);

// The most values of a tensor that is read whole.
inline constexpr std::uint64_t kMaxGgufVector = 1U << 24;

// Reads a tensor of one dimension, such as factors of RoPE.
// Fails  kCorrupt on other dimensions or values that are not finite; kUnsupported on a type that is
//        not decoded; kIo
Result<std::vector<float>> read_gguf_vector(const GgufFile& file, const GgufFile::Entry& entry);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_ARCH_H_
