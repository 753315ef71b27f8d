// SPDX-License-Identifier: MIT

#include "convert/random/random_shapes.h"

#include <algorithm>
#include <iterator>

namespace qsf {
namespace {

// name, architecture, layers, hidden, FFN, heads, KV heads, vocabulary, positions, int8 rows
constexpr RandomShape kShapes[] = {
    {"1b", "llama", 22, 2048, 5632, 32, 4, 32000, 16384},
    {"3b", "llama", 28, 3072, 8192, 24, 8, 32000, 4096},
    {"7b", "llama", 32, 4096, 11008, 32, 32, 32000, 4096},
    {"7b-gqa", "llama", 32, 4096, 14336, 32, 8, 32000, 4096},
    {"13b", "llama", 40, 5120, 13824, 40, 40, 32000, 4096},
    {"gpt2", "gpt2", 12, 768, 3072, 12, 12, 50257, 1024},
    {"gpt2-medium", "gpt2", 24, 1024, 4096, 16, 16, 50257, 1024},
    {"gpt2-large", "gpt2", 36, 1280, 5120, 20, 20, 50257, 1024},
    {"phi2", "phi2", 32, 2560, 10240, 32, 32, 51200, 2048},
    // One layer of 1b, for attention over more positions than the whole is measured with.
    {"1b-layer", "llama", 1, 2048, 5632, 32, 4, 32000, 32768},
    // 1b with positions for prompts of 32,768 tokens and texts behind them.
    {"1b-long", "llama", 22, 2048, 5632, 32, 4, 32000, 65536},
    // As a natively ternary model takes its rows.
    {"1b-int8", "llama", 22, 2048, 5632, 32, 4, 32000, 16384, true},
    // For tests: rows that do not divide by 16 and columns that do not divide by a block.
    {"tiny", "llama", 2, 80, 200, 4, 2, 330, 512},
};

}  // namespace

std::span<const RandomShape> random_shapes() noexcept {
  return kShapes;
}

std::string random_shape_names() {
  std::string names;
  for (const RandomShape& shape : kShapes) {
    if (!names.empty()) names += ", ";
    names += shape.name;
  }
  return names;
}

Result<RandomShape> find_random_shape(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kShapes), std::end(kShapes),
                                         [name](const RandomShape& s) { return s.name == name; });
  if (found != std::end(kShapes)) return *found;
  return invalid_argument("shape \"%s\" is not known, expected one of %s",
                          std::string(name.substr(0, 40)).c_str(), random_shape_names().c_str());
}

ModelSpec shape_spec(const RandomShape& shape) {
  ModelSpec spec;
  spec.architecture = shape.architecture;
  spec.n_layers = shape.n_layers;
  spec.hidden = shape.hidden;
  spec.ffn = shape.ffn;
  spec.n_heads = shape.n_heads;
  spec.n_kv_heads = shape.n_kv_heads;
  spec.head_dim = shape.hidden / shape.n_heads;
  spec.n_vocab = shape.n_vocab;
  spec.max_positions = shape.max_positions;
  spec.int8_rows = shape.int8_rows;
  if (shape.architecture == "gpt2") {
    spec.tied_head = true;
    return spec;
  }
  spec.positions = PositionEncoding::kRope;
  if (shape.architecture == "phi2") {
    spec.rope.dims = spec.head_dim * 2 / 5;
    spec.parallel_block = true;
    return spec;
  }
  spec.norm = NormType::kRmsNorm;
  spec.activation = Activation::kSilu;
  spec.gated_ffn = true;
  return spec;
}

}  // namespace qsf
