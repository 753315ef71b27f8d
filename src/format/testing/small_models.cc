// SPDX-License-Identifier: MIT

#include "format/testing/small_models.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/rng.h"
#include "io/file.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf::testing_support {
namespace {

TensorInfo vector_tensor(TensorKind kind, std::uint32_t cols, QuantType type = QuantType::kF32) {
  return {.kind = kind,
          .rows = 1,
          .cols = cols,
          .format = block_format(type, 64),
          .layout = Layout::kRowMajor};
}

TensorInfo matrix(TensorKind kind, std::uint32_t rows, std::uint32_t cols, QuantType type,
                  std::uint32_t block, Layout layout, std::uint16_t expert = 0) {
  return {.kind = kind,
          .rows = rows,
          .cols = cols,
          .format = block_format(type, block),
          .layout = layout,
          .expert = expert};
}

constexpr Layout kRows = Layout::kRowMajor;
constexpr Layout kGroups = Layout::kInterleaved;

ModelSpec base_spec(std::string_view architecture) {
  ModelSpec spec;
  spec.architecture = architecture;
  spec.n_layers = 1;
  spec.hidden = 86;
  spec.n_heads = 3;
  spec.n_kv_heads = 3;
  spec.head_dim = 12;
  spec.n_vocab = 83;
  spec.max_positions = 19;
  spec.ffn = 70;
  return spec;
}

}  // namespace

SmallModel minimal_model() {
  SmallModel model;
  model.name = "minimal";
  model.spec = base_spec("llama");
  model.spec.hidden = 8;
  model.spec.n_heads = model.spec.n_kv_heads = 2;
  model.spec.head_dim = 4;
  model.spec.n_vocab = 5;
  model.spec.ffn = 16;
  model.spec.norm = NormType::kRmsNorm;
  model.spec.activation = Activation::kSilu;
  model.spec.gated_ffn = true;
  model.spec.positions = PositionEncoding::kRope;
  model.spec.tied_head = true;
  model.spec.bos_id = 1;
  model.spec.eos_ids = {2};
  model.spec.default_type = QuantType::kQ4;
  model.sections = {
      {{matrix(TensorKind::kTokenEmbedding, 5, 8, QuantType::kQ4, 64, kRows)}},
      {{vector_tensor(TensorKind::kAttnNorm, 8)}},
      {{vector_tensor(TensorKind::kFinalNorm, 8, QuantType::kF16)}},
  };
  return model;
}

SmallModel types_model() {
  using enum TensorKind;
  using Q = QuantType;
  SmallModel model;
  model.name = "types";
  ModelSpec& s = model.spec = base_spec("llama");
  s.n_layers = 2;
  s.n_kv_heads = 1;
  s.norm = NormType::kRmsNorm;
  s.norm_epsilon = 1e-6F;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.positions = PositionEncoding::kRope;
  s.rope = {.theta = 500000.0F,
            .scaling = RopeScaling::kLlama3,
            .factor = 8.0F,
            .low_freq_factor = 1.0F,
            .high_freq_factor = 4.0F,
            .original_context = 8192};
  s.eos_ids = {2, 7};
  s.bos_id = 1;
  s.chat_template = "{{ messages }}";
  s.quantiser = "plain rounding";
  const std::uint32_t h = s.hidden, q = s.q_dim(), kv = s.kv_dim(), f = s.ffn;
  model.sections = {
      {{matrix(kTokenEmbedding, s.n_vocab, h, Q::kQ4, 32, kGroups)}},
      {{vector_tensor(kAttnNorm, h), matrix(kAttnQ, q, h, Q::kQ2S, 32, kGroups),
        matrix(kAttnK, kv, h, Q::kQ2A, 64, kRows), matrix(kAttnV, kv, h, Q::kQ3, 128, kGroups),
        matrix(kAttnO, h, q, Q::kF16, 4, kGroups), vector_tensor(kFfnNorm, h, Q::kF16),
        matrix(kFfnGate, f, h, Q::kTernary, 32, kGroups),
        matrix(kFfnUp, f, h, Q::kTernary, 64, kRows), matrix(kFfnDown, h, f, Q::kQ8, 64, kGroups)},
       Compression::kNone,
       0.25F},
      {{vector_tensor(kAttnNorm, h, Q::kBF16), matrix(kAttnQ, q, h, Q::kQ2S, 256, kRows),
        matrix(kAttnK, kv, h, Q::kF32, 4, kGroups), matrix(kAttnV, kv, h, Q::kBF16, 4, kGroups),
        matrix(kAttnO, h, q, Q::kQ8, 32, kRows), vector_tensor(kFfnNorm, h),
        matrix(kFfnGate, f, h, Q::kQ2A, 32, kGroups), matrix(kFfnUp, f, h, Q::kQ3, 64, kRows),
        matrix(kFfnDown, h, f, Q::kQ4, 256, kRows)}},
      {{vector_tensor(kFinalNorm, h), matrix(kHead, s.n_vocab, h, Q::kQ8, 128, kGroups)}},
  };
  return model;
}

SmallModel compressed_model() {
  using enum TensorKind;
  using Q = QuantType;
  SmallModel model;
  model.name = "compressed";
  ModelSpec& s = model.spec = base_spec("gpt2");
  s.n_layers = 3;
  s.hidden = 36;
  s.default_type = Q::kQ4;
  s.eos_ids = {82};
  model.tile_bytes = 1;
  const std::uint32_t h = s.hidden, f = s.ffn;
  model.sections.push_back({{matrix(kTokenEmbedding, s.n_vocab, h, Q::kQ4, 64, kGroups),
                             matrix(kPositionEmbedding, s.max_positions, h, Q::kF16, 4, kRows)}});
  for (const Compression compression :
       {Compression::kLz4, Compression::kLz4Hc, Compression::kZstd}) {
    model.sections.push_back(
        {{vector_tensor(kAttnNorm, h), vector_tensor(kAttnNormBias, h),
          matrix(kAttnQ, h, h, Q::kQ4, 64, kGroups), vector_tensor(kAttnQBias, h),
          vector_tensor(kAttnOBias, h), vector_tensor(kFfnNorm, h), vector_tensor(kFfnNormBias, h),
          matrix(kFfnUp, f, h, Q::kQ2A, 64, kGroups), vector_tensor(kFfnUpBias, f),
          matrix(kFfnDown, h, f, Q::kQ8, 32, kRows), vector_tensor(kFfnDownBias, h)},
         compression});
  }
  model.sections.push_back(
      {{vector_tensor(kFinalNorm, h), vector_tensor(kFinalNormBias, h),
        matrix(kHead, s.n_vocab, h, Q::kF32, 4, kRows), vector_tensor(kHeadBias, s.n_vocab)},
       Compression::kZstd});
  return model;
}

SmallModel full_model() {
  using enum TensorKind;
  using Q = QuantType;
  SmallModel model;
  model.name = "full";
  ModelSpec& s = model.spec = base_spec("qwen2moe");
  s.n_layers = 2;
  s.hidden = 24;
  s.n_heads = 4;
  s.n_kv_heads = 2;
  s.head_dim = 8;
  s.activation = Activation::kReluSquared;
  s.norm = NormType::kRmsNorm;
  s.positions = PositionEncoding::kRope;
  s.rope = {.theta = 12345.0F, .dims = 6, .scaling = RopeScaling::kLinear, .factor = 2.5F};
  s.sliding_window = {0, 4096};
  s.tied_head = true;
  s.natively_ternary = true;
  s.calibrated = true;
  s.parallel_block = true;
  s.attention_scale = 0.125F;
  s.attention_soft_cap = 50.0F;
  s.logit_soft_cap = 30.0F;
  s.logit_scale = 0.5F;
  s.embedding_scale = 12.0F;
  s.residual_scale = 0.9F;
  s.n_experts = 2;
  s.n_experts_used = 1;
  s.expert_ffn = 70;
  s.bos_id = 0;
  s.eos_ids = {3, 4, 5};
  s.pad_id = 6;
  s.chat_template = "template";
  s.quantiser = "q";
  s.source = "made up";
  s.default_type = Q::kTernary;
  s.block = 32;
  const float numbers[] = {1.5F, -2.0F};
  s.extra.set_f32_array("user.numbers", numbers);
  s.extra.set_u64("user.big", UINT64_MAX);
  s.extra.set_bool("user.flag", true);
  model.tile_bytes = 1;
  model.tokenizer.assign(5000, std::byte{0x5A});
  model.notes.assign(3, std::byte{1});
  const std::uint32_t h = s.hidden;
  model.sections.push_back(
      {{matrix(kTokenEmbedding, s.n_vocab, h, Q::kQ8, 32, kGroups),
        vector_tensor(kEmbeddingNorm, h), vector_tensor(kEmbeddingNormBias, h)}});
  for (int layer = 0; layer < 2; ++layer) {
    SmallSection section;
    section.compression = Compression::kLz4;
    section.importance = static_cast<float>(layer);
    section.tensors = {vector_tensor(kAttnNorm, h),
                       matrix(kAttnQ, s.q_dim(), h, Q::kTernary, 32, kGroups),
                       vector_tensor(kQNorm, s.head_dim),
                       vector_tensor(kKNorm, s.kv_dim()),
                       vector_tensor(kAttnSubNorm, s.q_dim()),
                       matrix(kRouter, s.n_experts, h, Q::kF32, 4, kGroups)};
    for (std::uint16_t expert = 0; expert < 2; ++expert) {
      section.tensors.push_back(
          matrix(kExpertGate, s.expert_ffn, h, Q::kTernary, 64, kGroups, expert));
      section.tensors.push_back(
          matrix(kExpertUp, s.expert_ffn, h, Q::kTernary, 64, kGroups, expert));
      section.tensors.push_back(matrix(kExpertDown, h, s.expert_ffn, Q::kQ8, 32, kGroups, expert));
    }
    model.sections.push_back(std::move(section));
  }
  model.sections.push_back({{vector_tensor(kFinalNorm, h)}});
  return model;
}

SmallModel longrope_model() {
  using enum TensorKind;
  using Q = QuantType;
  SmallModel model;
  model.name = "longrope";
  ModelSpec& s = model.spec = base_spec("phi3");
  s.hidden = 36;
  s.norm = NormType::kRmsNorm;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.positions = PositionEncoding::kRope;
  s.rope = {.dims = 8,
            .scaling = RopeScaling::kLongrope,
            .original_context = 7,
            .attention_factor = 1.25F,
            .short_factors = {1.0F, 1.0625F, 1.5F, 2.0F},
            .long_factors = {0.9375F, 3.0F, 17.0F, 64.5F}};
  s.default_type = Q::kQ8;
  const std::uint32_t h = s.hidden;
  model.sections = {
      {{matrix(kTokenEmbedding, s.n_vocab, h, Q::kQ8, 64, kGroups)}},
      {{vector_tensor(kAttnNorm, h), matrix(kAttnQ, s.q_dim(), h, Q::kQ8, 64, kGroups),
        matrix(kAttnK, s.kv_dim(), h, Q::kQ8, 64, kGroups),
        matrix(kAttnV, s.kv_dim(), h, Q::kQ8, 64, kGroups),
        matrix(kAttnO, h, s.q_dim(), Q::kQ8, 64, kGroups), vector_tensor(kAttnPostNorm, h),
        vector_tensor(kFfnNorm, h), matrix(kFfnGate, s.ffn, h, Q::kQ8, 64, kGroups),
        matrix(kFfnUp, s.ffn, h, Q::kQ8, 64, kGroups),
        matrix(kFfnDown, h, s.ffn, Q::kQ8, 64, kGroups), vector_tensor(kFfnPostNorm, h)}},
      {{vector_tensor(kFinalNorm, h), matrix(kHead, s.n_vocab, h, Q::kQ8, 64, kGroups)}},
  };
  return model;
}

SmallModel super_model() {
  using enum TensorKind;
  using Q = QuantType;
  SmallModel model;
  model.name = "super";
  ModelSpec& s = model.spec = base_spec("llama");
  s.n_layers = 8;
  s.hidden = 20;
  s.n_heads = 25;
  s.n_kv_heads = 5;
  s.ffn = 600;
  s.norm = NormType::kRmsNorm;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.positions = PositionEncoding::kRope;
  s.default_type = Q::kQ2Super;
  const std::uint32_t h = s.hidden, q = s.q_dim(), f = s.ffn;  // rows of 20, 300 and 600 columns
  model.sections.push_back({{matrix(kTokenEmbedding, s.n_vocab, h, Q::kQ4Super, 64, kGroups)}});
  for (const QuantType type : {Q::kQ2Super, Q::kQ3Super, Q::kQ4Super}) {
    for (const Layout layout : {kRows, kGroups}) {
      model.sections.push_back(
          {{matrix(kAttnO, h, q, type, 32, layout), matrix(kFfnDown, h, f, type, 64, layout)}});
    }
  }
  model.sections.push_back({{matrix(kAttnO, h, q, Q::kQk256, 0, kRows),
                             matrix(kFfnDown, h, f, Q::kTernaryRow, 0, kRows)}});
  model.sections.push_back({{matrix(kAttnO, h, q, Q::kTernaryRow, 0, kGroups),
                             matrix(kFfnDown, h, f, Q::kQk256, 0, kGroups)}});
  model.sections.push_back(
      {{vector_tensor(kFinalNorm, h), matrix(kHead, s.n_vocab, h, Q::kQ2Super, 32, kRows)}});
  return model;
}

SmallModel base3_model() {
  using enum TensorKind;
  using Q = QuantType;
  SmallModel model;
  model.name = "base3";
  ModelSpec& s = model.spec = base_spec("llama");
  s.n_layers = 2;
  s.hidden = 20;
  s.n_heads = 25;
  s.n_kv_heads = 5;
  s.ffn = 400;
  s.norm = NormType::kRmsNorm;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.positions = PositionEncoding::kRope;
  s.default_type = Q::kTernaryBase3;
  const std::uint32_t h = s.hidden, q = s.q_dim(), f = s.ffn;  // rows of 20, 300 and 400 columns
  model.sections.push_back({{matrix(kTokenEmbedding, s.n_vocab, h, Q::kTernaryBase3, 0, kRows)}});
  for (const Layout layout : {kRows, kGroups}) {
    model.sections.push_back({{matrix(kAttnO, h, q, Q::kTernaryBase3, 0, layout),
                               matrix(kFfnDown, h, f, Q::kTernaryBase3, 0, layout)}});
  }
  model.sections.push_back(
      {{vector_tensor(kFinalNorm, h), matrix(kHead, s.n_vocab, h, Q::kTernaryBase3, 0, kGroups)}});
  return model;
}

namespace {

// A model of layers with one matrix of 300 and one of 600 columns in either layout of each type.
SmallModel model_of_types(const char* name, std::initializer_list<QuantType> types,
                          QuantType embedding, QuantType head) {
  using enum TensorKind;
  SmallModel model = super_model();
  model.name = name;
  ModelSpec& s = model.spec;
  s.n_layers = static_cast<std::uint32_t>(2 * types.size());
  s.default_type = embedding;
  const std::uint32_t h = s.hidden, q = s.q_dim(), f = s.ffn;  // rows of 20, 300 and 600 columns
  model.sections.clear();
  model.sections.push_back({{matrix(kTokenEmbedding, s.n_vocab, h, embedding, 0, kGroups)}});
  for (const QuantType type : types) {
    for (const Layout layout : {kRows, kGroups}) {
      model.sections.push_back(
          {{matrix(kAttnO, h, q, type, 0, layout), matrix(kFfnDown, h, f, type, 0, layout)}});
    }
  }
  model.sections.push_back(
      {{vector_tensor(kFinalNorm, h), matrix(kHead, s.n_vocab, h, head, 0, kRows)}});
  return model;
}

}  // namespace

SmallModel k_quant_model() {
  using Q = QuantType;
  return model_of_types("k_quants", {Q::kQ2K, Q::kQ3K, Q::kQ5K, Q::kQ6K}, Q::kQ6K, Q::kQ5K);
}

SmallModel codebook_model() {
  using Q = QuantType;
  return model_of_types("tables", {Q::kQ2Codebook, Q::kQ3Codebook, Q::kQ4Codebook}, Q::kQ4Codebook,
                        Q::kQ3Codebook);
}

SmallModel trellis_model() {
  using Q = QuantType;
  return model_of_types("trellis", {Q::kQ2Trellis, Q::kQ3Trellis}, Q::kQ3Trellis, Q::kQ2Trellis);
}

SmallModel mxfp4_model() {
  using Q = QuantType;
  return model_of_types("mxfp4", {Q::kMxfp4}, Q::kMxfp4, Q::kMxfp4);
}

std::vector<float> small_row(std::uint32_t section, const TensorInfo& tensor, std::uint32_t row) {
  const auto kind = static_cast<std::uint64_t>(tensor.kind);
  Rng rng((std::uint64_t{section} << 48) | (kind << 40) | (std::uint64_t{tensor.expert} << 24) |
          row);
  // Columns repeat every 8, so that compression has something to find.
  float pattern[8];
  for (float& value : pattern) value = rng.next_normal() * 0.1F;
  std::vector<float> weights(tensor.cols);
  for (std::size_t c = 0; c < weights.size(); ++c) {
    weights[c] = tensor.rows == 1 ? 1.0F + rng.next_normal() * 0.1F : pattern[c % 8];
  }
  return weights;
}

std::vector<std::byte> small_tile(std::uint32_t section, const std::vector<TensorInfo>& tensors,
                                  const TilePlan& tile) {
  if (tile.tensor == kOneRowTensors) {
    std::vector<std::byte> bytes(tile.raw_bytes);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].rows != 1) continue;
      encode_row(
          tensors[i].format, small_row(section, tensors[i], 0), kNearestRounding,
          MutableByteSpan(bytes).subspan(one_row_offset(tensors, i), tile_bytes(tensors[i], 1)));
    }
    return bytes;
  }
  const TensorInfo& tensor = tensors[tile.tensor];
  const std::size_t row_bytes = row_major_bytes(tensor.format, tensor.cols);
  std::vector<std::byte> rows(row_bytes * tile.n_rows);
  for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
    encode_row(tensor.format, small_row(section, tensor, tile.first_row + r), kNearestRounding,
               MutableByteSpan(rows).subspan(r * row_bytes, row_bytes));
  }
  if (tensor.layout == Layout::kRowMajor) return rows;
  std::vector<std::byte> groups(tile.raw_bytes);
  interleave_rows(tensor.format, tile.n_rows, tensor.cols, rows, groups);
  return groups;
}

Status write_small_model(const SmallModel& model, const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(QsfWriter writer,
                       QsfWriter::create(path, model.spec, {.tile_bytes = model.tile_bytes}, ops));
  for (std::uint32_t i = 0; i < model.sections.size(); ++i) {
    const SmallSection& section = model.sections[i];
    const SectionKind kind = i == 0                           ? SectionKind::kEmbedding
                             : i + 1 == model.sections.size() ? SectionKind::kFinal
                                                              : SectionKind::kLayer;
    writer.set_compression(section.compression);
    QSF_RETURN_IF_ERROR(
        writer.begin_section(kind, kind == SectionKind::kLayer ? i - 1 : 0, section.tensors));
    for (const TilePlan& tile : writer.tiles()) {
      QSF_RETURN_IF_ERROR(writer.write_tile(small_tile(i, section.tensors, tile)));
    }
    QSF_RETURN_IF_ERROR(writer.end_section(section.importance));
    if (i == 0 && !model.tokenizer.empty()) {
      QSF_RETURN_IF_ERROR(writer.set_tokenizer(model.tokenizer));
    }
  }
  if (!model.notes.empty()) {
    QSF_RETURN_IF_ERROR(writer.add_section("extra.notes", model.notes, false));
  }
  return writer.finish();
}

Result<std::vector<std::byte>> small_model_bytes(const SmallModel& model) {
  const char* directory = std::getenv("TMPDIR");
  const std::string path = std::string(directory == nullptr ? "/tmp" : directory) +
                           "/qsf_small_model." + std::to_string(::getpid()) + "." + model.name;
  QSF_RETURN_IF_ERROR(write_small_model(model, path));
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path));
  Result<std::vector<std::byte>> bytes = file.read_all(std::uint64_t{1} << 24);
  system_file_ops().remove(path);
  return bytes;
}

ModelSpec shaped_spec() {
  ModelSpec s;
  s.architecture = "gemma4";
  s.n_layers = 3;
  s.hidden = 24;
  s.n_heads = 6;
  s.n_kv_heads = 3;
  s.head_dim = 16;
  s.n_vocab = 30;
  s.max_positions = 64;
  s.ffn = 40;
  s.gated_ffn = true;
  s.norm = NormType::kRmsNorm;
  s.positions = PositionEncoding::kRope;
  s.rope.n_turning = 3;
  s.value_norms = true;
  s.layer_heads = {{3, 8}, {1, 16}, {3, 8}};
  s.key_value_layers = {0, 1, 0};
  s.layer_rope = {2, 1, 2};
  s.kv_layers = {0, 1, 0};
  s.layer_ffn = {40, 40, 28};
  s.layer_input_dim = 4;
  return s;
}

ModelSpec embedding_spec() {
  ModelSpec s = minimal_model().spec;
  s.tied_head = true;
  s.pooling = Pooling::kLast;
  s.embedding_dense = 40;
  s.embeds_only = true;
  s.bidirectional = true;
  s.norms_stream = true;
  return s;
}

ModelSpec stream_spec() {
  ModelSpec s = shaped_spec();
  s.architecture = "gemma3n";
  s.n_streams = 3;
  s.laurel_dim = 5;
  s.layer_input_rows = 26;
  s.ffn_cutoff = 0.75F;
  s.ffn_cutoff_layers = {1, 0, 1};
  return s;
}

}  // namespace qsf::testing_support
