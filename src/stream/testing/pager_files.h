// SPDX-License-Identifier: MIT
//
// For tests of the pager: small files of random weights in every form, what each row of them
// decodes to, and a pager opened over one with its memory.

#ifndef QSF_STREAM_TESTING_PAGER_FILES_H_
#define QSF_STREAM_TESTING_PAGER_FILES_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "format/qsf_reader.h"
#include "format/qsf_writer.h"
#include "format/tensor_rules.h"
#include "io/read_device.h"
#include "memory/arena.h"
#include "quant/codec.h"
#include "quant/interleave.h"
#include "stream/weight_pager.h"

namespace qsf::testing_support {

// How a test file stores its matrices.
struct Storage {
  BlockFormat format{QuantType::kQ4, 64};
  Layout layout = Layout::kInterleaved;
  Compression compression = Compression::kNone;
  friend bool operator==(const Storage&, const Storage&) = default;
};

struct FileShape {
  std::uint32_t n_layers = 2;
  bool tied_head = false;
  float poison = 0.0F;  // a number of layer 1's first norm, unless it is 0
  std::uint32_t n_experts = 0;
  std::uint32_t noisy_experts = 0;  // first ones that no compression makes smaller
};

// 200 and 150 are multiples of neither 16, 64 nor a block; 300 rows make several tiles of 64 rows.
inline ModelSpec small_spec(const FileShape& shape) {
  ModelSpec spec;
  spec.architecture = "gpt2";
  spec.n_layers = shape.n_layers;
  spec.tied_head = shape.tied_head;
  spec.hidden = 150;
  spec.n_heads = 5;
  spec.n_kv_heads = 5;
  spec.head_dim = 30;
  spec.n_vocab = 300;
  spec.max_positions = 70;
  spec.ffn = 200;
  spec.gated_ffn = true;
  if (shape.n_experts != 0) {
    spec.n_experts = shape.n_experts;
    spec.n_experts_used = 2;
    spec.expert_ffn = 80;
  }
  return spec;
}

using Key = std::pair<std::uint32_t, std::uint32_t>;  // section, tensor

// Writes a file of random weights and keeps what each row decodes to.
class PagerFile {
 public:
  PagerFile(std::string path, const Storage& storage, const FileShape& shape = {})
      : path_(std::move(path)),
        shape_(shape),
        is_coarse_(storage.compression != Compression::kNone) {
    const Storage f32{{QuantType::kF32, 4}, storage.layout, storage.compression};
    auto writer = QsfWriter::create(path_, small_spec(shape),
                                    {.compression = storage.compression, .tile_bytes = 4096});
    EXPECT_TRUE(writer.has_value()) << writer.error().message();
    const auto matrix = [](TensorKind kind, std::uint32_t rows, std::uint32_t cols,
                           const Storage& as) {
      return TensorInfo{kind, rows, cols, as.format, as.layout};
    };
    const auto vector = [](TensorKind kind, std::uint32_t cols, QuantType type) {
      return TensorInfo{kind, 1, cols, {type, 4}, Layout::kRowMajor};
    };
    write(*writer, SectionKind::kEmbedding, 0,
          {matrix(TensorKind::kTokenEmbedding, 300, 150, storage),
           matrix(TensorKind::kPositionEmbedding, 70, 150, f32)});
    for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
      std::vector<TensorInfo> tensors = {vector(TensorKind::kAttnNorm, 150, QuantType::kF32),
                                         matrix(TensorKind::kAttnQ, 150, 150, storage),
                                         vector(TensorKind::kAttnQBias, 150, QuantType::kF16),
                                         matrix(TensorKind::kFfnGate, 200, 150, storage),
                                         matrix(TensorKind::kFfnUp, 200, 150, storage),
                                         vector(TensorKind::kFfnUpBias, 200, QuantType::kBF16),
                                         matrix(TensorKind::kFfnDown, 150, 200, storage)};
      for (std::uint16_t expert = 0; expert < shape.n_experts; ++expert) {
        tensors.push_back(matrix(TensorKind::kExpertGate, 80, 150, storage));
        tensors.push_back(matrix(TensorKind::kExpertUp, 80, 150, storage));
        tensors.push_back(matrix(TensorKind::kExpertDown, 150, 80, storage));
        for (std::size_t i = tensors.size() - 3; i < tensors.size(); ++i)
          tensors[i].expert = expert;
      }
      write(*writer, SectionKind::kLayer, layer, tensors);
    }
    std::vector<TensorInfo> last = {vector(TensorKind::kFinalNorm, 150, QuantType::kF32)};
    if (!shape.tied_head) last.push_back(matrix(TensorKind::kHead, 300, 150, storage));
    write(*writer, SectionKind::kFinal, 0, last);
    const Status finished = writer->finish();
    EXPECT_TRUE(finished.ok()) << finished.message();
  }
  ~PagerFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }
  // What every row of a tensor decodes to.
  const std::map<Key, std::vector<std::vector<float>>>& rows() const { return rows_; }

 private:
  void write(QsfWriter& writer, SectionKind kind, std::uint32_t layer,
             std::vector<TensorInfo> tensors) {
    ASSERT_TRUE(writer.begin_section(kind, layer, tensors).ok());
    std::vector<std::vector<std::byte>> encoded;
    for (std::uint32_t t = 0; t < tensors.size(); ++t) encoded.push_back(encode(tensors[t], t));
    for (const TilePlan& tile : writer.tiles()) {
      std::vector<std::byte> raw(tile.raw_bytes);
      if (tile.tensor == kOneRowTensors) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
          if (tensors[t].rows != 1) continue;
          std::copy(encoded[t].begin(), encoded[t].end(),
                    raw.begin() + static_cast<std::ptrdiff_t>(one_row_offset(tensors, t)));
        }
      } else {
        const TensorInfo& tensor = tensors[tile.tensor];
        const ByteSpan plain =
            ByteSpan(encoded[tile.tensor])
                .subspan(tile.first_row * row_bytes(tensor), tile.n_rows * row_bytes(tensor));
        if (tensor.layout == Layout::kRowMajor) {
          std::copy(plain.begin(), plain.end(), raw.begin());
        } else {
          interleave_rows(tensor.format, tile.n_rows, tensor.cols, plain, raw);
        }
      }
      ASSERT_TRUE(writer.write_tile(raw).ok());
    }
    ASSERT_TRUE(writer.end_section().ok());
    ++section_;
  }

  static std::size_t row_bytes(const TensorInfo& tensor) {
    return static_cast<std::size_t>(row_major_bytes(tensor.format, tensor.cols));
  }

  std::vector<std::byte> encode(const TensorInfo& tensor, std::uint32_t index) {
    std::vector<std::byte> bytes(tensor.rows * row_bytes(tensor));
    std::vector<std::vector<float>>& decoded = rows_[{section_, index}];
    for (std::uint32_t row = 0; row < tensor.rows; ++row) {
      std::vector<float> weights(tensor.cols);
      for (float& weight : weights) weight = rng_.next_normal() * 0.1F;
      const bool noisy = is_expert(tensor.kind) && tensor.expert < shape_.noisy_experts;
      if (is_coarse_ && !noisy) {  // mostly zeros, so that tiles become smaller
        for (float& weight : weights) weight = std::round(weight * 5.0F) * 0.2F;
      }
      const MutableByteSpan out =
          MutableByteSpan(bytes).subspan(row * row_bytes(tensor), row_bytes(tensor));
      encode_row(tensor.format, weights, kNearestRounding, out);
      if (shape_.poison != 0.0F && tensor.kind == TensorKind::kAttnNorm && section_ == 2) {
        store_le(out, 40, shape_.poison);
      }
      decode_row(tensor.format, out, weights);
      decoded.push_back(weights);
    }
    return bytes;
  }

  std::string path_;
  FileShape shape_;
  bool is_coarse_;
  Rng rng_{7};
  std::uint32_t section_ = 0;
  std::map<Key, std::vector<std::vector<float>>> rows_;
};

inline QsfReader open_reader(const std::string& path) {
  auto reader = QsfReader::open(path);
  EXPECT_TRUE(reader.has_value()) << reader.error().message();
  return std::move(reader).value();
}

// A path of this process and test alone.
inline std::string pager_file_path() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test.test_suite_name()) + "." + test.name();
  std::replace(name.begin(), name.end(), '/', '.');
  // Beside the build: the folder of temporary files is often in memory, where nothing is direct.
  return (std::filesystem::path(QSF_BIN_DIR) /
          ("qsf_pager_test." + std::to_string(::getpid()) + "." + name + ".qsf"))
      .string();
}

struct OpenOptions {
  WeightLimits limits;
  ReadDeviceOptions device{.path = ReadPath::kPread, .direct = false, .depth = 2};
  const std::atomic<bool>* cancel = nullptr;
  SubmittedWork* work = nullptr;
  bool on_threads = true;
};

// A pager with what it needs to live.
struct OpenedPager {
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ReadDevice> device;
  std::unique_ptr<WeightPager> pager;
};

// Opens a pager; limits.n_queues 0 takes what the device wants.
inline Result<OpenedPager> open_pager(const QsfReader& reader, OpenOptions options = {}) {
  QSF_ASSIGN_OR_RETURN(ReadDevice device, ReadDevice::open(reader.file(), options.device));
  if (options.limits.n_queues == 0) options.limits.n_queues = device.n_queues();
  OpenedPager opened;
  opened.device = std::make_unique<ReadDevice>(std::move(device));
  QSF_ASSIGN_OR_RETURN(const Residency needs, WeightPager::plan(reader, options.limits));
  MemoryPlan plan;
  const RegionId weights = plan.add("weights", needs.region_bytes, "");
  QSF_ASSIGN_OR_RETURN(Arena arena, Arena::create(plan));
  opened.arena = std::make_unique<Arena>(std::move(arena));
  const MutableByteSpan region = opened.arena->carve(weights);
  std::fill(region.begin(), region.end(), std::byte{0xEE});  // nothing may count on zeroed memory
  QSF_ASSIGN_OR_RETURN(opened.pager, WeightPager::open(reader, *opened.device, needs, region,
                                                       {.cancel = options.cancel,
                                                        .work = options.work,
                                                        .on_threads = options.on_threads}));
  return opened;
}

inline void expect_same_bits(std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size_bytes()), 0);
}

}  // namespace qsf::testing_support

#endif  // QSF_STREAM_TESTING_PAGER_FILES_H_
