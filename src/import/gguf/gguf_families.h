// SPDX-License-Identifier: MIT
//
// The architectures of GGUF files: which one a file has, what its name says of the model, and the
// keys that it alone reads.
//
// llama.cpp decides what a name means (its src/llama-model.cpp and src/models); where its graph
// departs from the published model, as with GELU, the model is followed. No key says which form of
// GELU a model has.

#ifndef QSF_IMPORT_GGUF_GGUF_FAMILIES_H_
#define QSF_IMPORT_GGUF_GGUF_FAMILIES_H_

#include <span>
#include <string_view>

#include "base/result.h"
#include "base/status.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "import/gguf/gguf_fields.h"
#include "import/gguf/gguf_file.h"
#include "import/hf/hf_tensors.h"

namespace qsf {

// The name of a tensor in its layer, or of one outside layers: "attn_norm.weight".
struct GgufKindName {
  TensorKind kind;
  const char* name;
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
  bool latent = false;                        // latent attention, whose rotating rows are in pairs
  LayerMixer state = LayerMixer::kAttention;  // of layers without heads of keys
  bool single_sublayers = false;              // a layer has a state, attends or is an FFN
  bool own_head = false;                      // a head that is missing is not the embedding
  bool gated_queries = false;                 // queries lie beside their gates (delta_rows.h)
  bool rates_by_group = false;                // the same of rates and time steps of a delta rule
  bool heads_by_layer = false;                // the layers' numbers of heads of keys may differ
  Status (*finish)(const GgufFile& file, GgufFields& fields,
                   ModelSpec& spec) = nullptr;  // reads its own keys
  const TensorTable* table = nullptr;  // kinds and their order; null: those of the family's folders
  std::span<const GgufKindName> names = {};  // of layers, where they differ from the common ones
  // Of rows with one name, the first that this is true of; null: of every file.
  bool (*holds)(const GgufFile& file) = nullptr;
};

// The keys of Gemma 4.
Status finish_gemma3n(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
Status finish_gemma4(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
Status finish_gemma4moe(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
bool has_gemma4_experts(const GgufFile& file);

// The keys of families whose attention and FFN may stand side by side, and of MPT.
Status finish_falcon(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
bool has_falcon_attention_norm(const GgufFile& file);
Status finish_gptneox(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
Status finish_mpt(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
Status finish_stablelm(const GgufFile& file, GgufFields& fields, ModelSpec& spec);

// The keys of encoders.
Status finish_gemma_embedding(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
Status finish_modernbert(const GgufFile& file, GgufFields& fields, ModelSpec& spec);
Status finish_nomic_bert(const GgufFile& file, GgufFields& fields, ModelSpec& spec);

// Returns the architecture that general.architecture names.
// Fails  kCorrupt without the key; kUnsupported, naming it
Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file);

// Returns the architecture of that name whose models are of a family. Null where there is none, and
// where there are several, which the tensors of a model tell apart.
// Threads  any
const GgufArchitecture* find_gguf_architecture(std::string_view name,
                                               std::string_view family) noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_FAMILIES_H_
