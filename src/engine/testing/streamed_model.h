// SPDX-License-Identifier: MIT
//
// For tests of streaming: a model of random weights in a file of its own, and engines over it that
// are bound to budgets.

#ifndef QSF_ENGINE_TESTING_STREAMED_MODEL_H_
#define QSF_ENGINE_TESTING_STREAMED_MODEL_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "format/qsf_writer.h"
#include "format/tensor_rules.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf::testing_support {

inline constexpr std::uint64_t kMB = 1'000'000;

struct StreamedShape {
  std::uint32_t n_layers = 7;
  std::uint32_t hidden = 192;
  std::uint32_t ffn = 384;
  std::uint32_t n_vocab = 500;
  std::uint32_t n_kv_heads = 4;  // of 8 heads
  std::uint32_t max_positions = 640;
  std::uint64_t tile_bytes = 32768;
  Compression compression = Compression::kNone;
  ByteSpan tokenizer = {};  // its section, which outlives the shape; none by default
  bool tied_head = false;
};

inline ModelSpec streamed_spec(const StreamedShape& shape) {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.n_layers = shape.n_layers;
  spec.hidden = shape.hidden;
  spec.ffn = shape.ffn;
  spec.n_heads = 8;
  spec.n_kv_heads = shape.n_kv_heads;
  spec.head_dim = shape.hidden / 8;
  spec.n_vocab = shape.n_vocab;
  spec.max_positions = shape.max_positions;
  spec.positions = PositionEncoding::kRope;
  spec.norm = NormType::kRmsNorm;
  spec.activation = Activation::kSilu;
  spec.gated_ffn = true;
  spec.default_type = QuantType::kQ4;
  spec.block = 64;
  spec.tied_head = shape.tied_head;
  return spec;
}

// A file of random 4-bit weights: matrices of groups of 16 rows, of which every other one occurs
// again and again, so that tiles become smaller under LZ4 and ZSTD and yet no two are equal. The
// same shape gives the same weights under every compression. Removes itself.
class StreamedModel {
 public:
  StreamedModel(const std::string& name, const StreamedShape& shape)
      : path_((std::filesystem::temp_directory_path() /
               ("qsf_streamed." + std::to_string(::getpid()) + "." + name + ".qsf"))
                  .string()) {
    const Status written = write(shape);
    EXPECT_TRUE(written.ok()) << written.message();
  }
  StreamedModel(const StreamedModel&) = delete;
  StreamedModel& operator=(const StreamedModel&) = delete;
  ~StreamedModel() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

 private:
  static constexpr std::size_t kKnownGroups = 8;  // their bytes fit the 64 KB that LZ4 looks back

  Status write(const StreamedShape& shape) {
    const ModelSpec spec = streamed_spec(shape);
    QSF_ASSIGN_OR_RETURN(QsfWriter writer, QsfWriter::create(path_, spec,
                                                             {.compression = shape.compression,
                                                              .tile_bytes = shape.tile_bytes}));
    QSF_RETURN_IF_ERROR(write_section(writer, SectionKind::kEmbedding, 0,
                                      {matrix(spec, TensorKind::kTokenEmbedding)}));
    for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
      QSF_RETURN_IF_ERROR(
          write_section(writer, SectionKind::kLayer, layer,
                        {vector(spec, TensorKind::kAttnNorm), matrix(spec, TensorKind::kAttnQ),
                         matrix(spec, TensorKind::kAttnK), matrix(spec, TensorKind::kAttnV),
                         matrix(spec, TensorKind::kAttnO), vector(spec, TensorKind::kFfnNorm),
                         matrix(spec, TensorKind::kFfnGate), matrix(spec, TensorKind::kFfnUp),
                         matrix(spec, TensorKind::kFfnDown)}));
    }
    std::vector<TensorInfo> last = {vector(spec, TensorKind::kFinalNorm)};
    if (!spec.tied_head) last.push_back(matrix(spec, TensorKind::kHead));
    QSF_RETURN_IF_ERROR(write_section(writer, SectionKind::kFinal, 0, std::move(last)));
    if (!shape.tokenizer.empty()) QSF_RETURN_IF_ERROR(writer.set_tokenizer(shape.tokenizer));
    return writer.finish();
  }

  static TensorInfo matrix(const ModelSpec& spec, TensorKind kind) {
    const TensorShape shape = tensor_shape(spec, 0, kind);
    return {kind, shape.rows, shape.cols, {QuantType::kQ4, 64}, Layout::kInterleaved};
  }
  static TensorInfo vector(const ModelSpec& spec, TensorKind kind) {
    return {kind, 1, tensor_shape(spec, 0, kind).cols, {QuantType::kF32, 4}, Layout::kRowMajor};
  }

  Status write_section(QsfWriter& writer, SectionKind kind, std::uint32_t layer,
                       std::vector<TensorInfo> tensors) {
    QSF_RETURN_IF_ERROR(writer.begin_section(kind, layer, tensors));
    for (const TilePlan& tile : writer.tiles()) {
      std::vector<std::byte> raw(tile.raw_bytes);
      if (tile.tensor == kOneRowTensors) {
        for (std::size_t at = 0; at + 4 <= raw.size(); at += 4) {
          store_le(MutableByteSpan(raw), at, 1.0F);  // gains, which are all that has one row
        }
      } else {
        fill(tensors[tile.tensor], raw);
      }
      QSF_RETURN_IF_ERROR(writer.write_tile(raw));
    }
    return writer.end_section();
  }

  // One group that was seen before, then one whose codes are new, and so on.
  void fill(const TensorInfo& tensor, MutableByteSpan raw) {
    std::vector<std::vector<std::byte>>& known = known_groups(tensor);
    const std::size_t n = known[0].size();
    for (std::size_t at = 0; at < raw.size(); at += n) {
      const MutableByteSpan group = raw.subspan(at, n);
      std::ranges::copy(known[rng_.below(kKnownGroups)], group.begin());
      if (at / n % 2 == 0) continue;
      for (std::uint64_t block = 0; block < tensor.cols / 64; ++block) {
        const std::uint64_t codes = locate_block(tensor.format, block).codes;
        for (std::uint64_t i = 0; i < 16 * 64 / 2; i += 8) {
          store_le(group, codes + i, rng_.next_u64());
        }
      }
    }
  }

  std::vector<std::vector<std::byte>>& known_groups(const TensorInfo& tensor) {
    for (auto& [cols, groups] : known_) {
      if (cols == tensor.cols) return groups;
    }
    auto& groups = known_.emplace_back(tensor.cols, 0).second;
    const std::size_t row_bytes = row_major_bytes(tensor.format, tensor.cols);
    for (std::size_t g = 0; g < kKnownGroups; ++g) {
      std::vector<std::byte> rows(16 * row_bytes);
      for (std::size_t row = 0; row < 16; ++row) {
        std::vector<float> weights(tensor.cols);
        for (float& weight : weights) weight = rng_.next_normal() * 0.04F;
        encode_row(tensor.format, weights, kNearestRounding,
                   MutableByteSpan(rows).subspan(row * row_bytes, row_bytes));
      }
      groups.emplace_back(group_bytes(tensor.format, tensor.cols));
      interleave_rows(tensor.format, 16, tensor.cols, rows, groups.back());
    }
    return groups;
  }

  std::string path_;
  Rng rng_{3};
  std::vector<std::pair<std::uint32_t, std::vector<std::vector<std::byte>>>> known_;  // by columns
};

// Returns the budget in MB that the refusal of a far smaller one names.
inline std::uint64_t named_budget_mb(const std::string& path, EngineOptions options) {
  options.ram_budget_bytes = kMB;
  const auto refused = Engine::open(path, options);
  EXPECT_FALSE(refused.has_value());
  if (refused.has_value()) return 0;
  const std::string message(refused.error().message());
  const std::size_t at = message.find("needs ");
  EXPECT_NE(at, message.npos) << message;
  return at == message.npos ? 0 : std::strtoull(message.c_str() + at + 6, nullptr, 10);
}

// Returns a budget in bytes that is little more than the process needs to open the model now: the
// memory of the process moves by some pages until then.
inline std::uint64_t smallest_budget(const std::string& path, EngineOptions options) {
  constexpr std::uint64_t kStep = kMB / 10;
  options.ram_budget_bytes = named_budget_mb(path, options) * kMB;
  do {
    options.ram_budget_bytes -= kStep;
  } while (Engine::plan_file(path, options).has_value());
  return options.ram_budget_bytes + 5 * kStep;
}

// Keeps the logits of every row: [row][token].
class AllLogits final : public LogitsSink {
 public:
  explicit AllLogits(std::uint32_t n_vocab) : n_vocab_(n_vocab) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    if (rows.size() <= row) rows.resize(row + 1, std::vector<float>(n_vocab_));
    std::ranges::copy(logits, rows[row].begin() + first_token);
  }
  std::vector<std::vector<float>> rows;

 private:
  std::uint32_t n_vocab_;
};

// Returns `n` tokens of a vocabulary, some of them more than once.
inline std::vector<TokenId> some_tokens(std::size_t n, std::uint32_t n_vocab) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<TokenId>(i * 37 % 29 * 17 % n_vocab));
  }
  return tokens;
}

// The logits of every row of a prompt, and of each of some decode steps after it.
struct Passes {
  std::vector<std::vector<float>> prompt;
  std::vector<std::vector<float>> steps;
  friend bool operator==(const Passes&, const Passes&) = default;
};

inline constexpr int kSteps = 2;

inline Result<Passes> run_passes(Engine& engine, std::size_t n_prompt) {
  const std::uint32_t n_vocab = engine.spec().n_vocab;
  QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine.create_session());
  AllLogits prompt(n_vocab);
  QSF_RETURN_IF_ERROR(session->prefill_rows(some_tokens(n_prompt, n_vocab), prompt));
  Passes passes{std::move(prompt.rows), {}};
  for (int i = 0; i < kSteps; ++i) {
    AllLogits step(n_vocab);
    QSF_RETURN_IF_ERROR(session->step(static_cast<TokenId>(11 + i), &step));
    passes.steps.push_back(std::move(step.rows.at(0)));
  }
  return passes;
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_STREAMED_MODEL_H_
