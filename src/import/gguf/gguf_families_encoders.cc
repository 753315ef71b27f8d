// SPDX-License-Identifier: MIT
//
// The keys of encoders, whose rows attend to both sides.

#include "import/gguf/gguf_families.h"

#include <cmath>
#include <string>
#include <vector>

namespace qsf {
namespace {

// Rows of other architectures attend to what is before them, whatever a key says.
Status read_two_sides(GgufFields& fields, ModelSpec& spec) {
  spec.bidirectional = spec.embeds_only = spec.tied_head = true;
  if (!fields.boolean("attention.causal", false)) return fields.status();
  return unsupported("GGUF: key \"attention.causal\" is true, expected false of a %s",
                     spec.architecture.c_str());
}

// Half a window to each side, and the row's own position.
void set_windows(std::uint32_t window, const std::vector<bool>& local, ModelSpec& spec) {
  for (const bool here : local) spec.sliding_window.push_back(here ? window / 2 + 1 : 0);
}

// Layers with a window have a base of RoPE of their own.
void set_bases(float theta, ModelSpec& spec) {
  if (theta == spec.rope.theta && spec.rope.scaling == RopeScaling::kNone) return;
  spec.local_rope_theta = theta;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const LayerRope rope = spec.window_of(layer) != 0 ? LayerRope::kLocal : LayerRope::kMain;
    spec.layer_rope.push_back(static_cast<std::uint32_t>(rope));
  }
}

// The matrices behind the pooling, which a converter may have left out.
Status read_dense(const GgufFile& file, ModelSpec& spec) {
  constexpr const char* kNames[] = {"dense_2.weight", "dense_3.weight"};
  const GgufFile::Entry* const dense[] = {file.find(kNames[0]), file.find(kNames[1])};
  if (dense[0] == nullptr && dense[1] == nullptr) return ok_status();
  for (std::size_t i = 0; i < 2; ++i) {
    if (dense[i] != nullptr) continue;
    return corrupt("GGUF: tensor \"%s\" is missing: the file has \"%s\" alone", kNames[i],
                   kNames[1 - i]);
  }
  const std::uint64_t n_rows = dense[0]->tensor->dims[1];
  if (n_rows < 2 || n_rows > (1U << 20)) {
    return corrupt("GGUF: tensor \"%s\": %llu rows, expected 2 to 2^20", kNames[0],
                   static_cast<unsigned long long>(n_rows));
  }
  spec.embedding_dense = static_cast<std::uint32_t>(n_rows);
  return ok_status();
}

// Names that llama.cpp reads as one activation of the gate.
Status read_gate_activation(GgufFields& fields, ModelSpec& spec) {
  const char* key = "hidden_activation";
  const std::string name = fields.text(key, "gelu");
  QSF_RETURN_IF_ERROR(fields.status());
  if (name == "gelu" || name == "geglu") return ok_status();
  if (name != "silu" && name != "swish" && name != "swiglu") {
    return unsupported("GGUF: key \"%s\" is \"%.64s\", expected gelu or silu", key,
                       shown_gguf_text(name).c_str());
  }
  spec.activation = Activation::kSilu;
  return ok_status();
}

}  // namespace

// The scale of scores follows from the width of a head.
Status finish_gemma_embedding(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(read_two_sides(fields, spec));
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  spec.attention_scale = 1.0F / std::sqrt(static_cast<float>(spec.head_dim));
  const std::uint32_t window = fields.u32("attention.sliding_window", 1, 1U << 30);
  const std::vector<bool> local =
      fields.pattern("attention.sliding_window_pattern", spec.n_layers, 6);
  const float theta = fields.positive("rope.freq_base_swa", 10000.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  set_windows(window, local, spec);
  set_bases(theta, spec);
  return read_dense(file, spec);
}

// Of a pattern that is a number the first of so many layers sees everything, not the last.
Status finish_modernbert(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  const char* key = "attention.sliding_window_pattern";
  QSF_RETURN_IF_ERROR(read_two_sides(fields, spec));
  QSF_RETURN_IF_ERROR(read_gate_activation(fields, spec));
  const std::uint32_t window = fields.u32_or("attention.sliding_window", 0, 0, 1U << 30);
  std::vector<bool> local;
  if (fields.is_array(key)) {
    local = fields.pattern(key, spec.n_layers, 3);
  } else {
    const std::uint32_t every = fields.u32_or(key, 3, 0, 4096);
    for (std::uint32_t i = 0; i < spec.n_layers; ++i) local.push_back(every == 0 || i % every != 0);
  }
  const float theta = fields.positive("rope.freq_base_swa", 10000.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  if (window == 0) return ok_status();
  set_windows(window, local, spec);
  set_bases(theta, spec);
  return ok_status();
}

// Norms of the sums behind attention and FFN. A file that names no pooling means the model's.
Status finish_nomic_bert(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.norms_stream = true;
  spec.pooling = Pooling::kMean;
  return read_two_sides(fields, spec);
}

}  // namespace qsf
