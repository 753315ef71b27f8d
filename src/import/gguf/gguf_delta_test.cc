// SPDX-License-Identifier: MIT
//
// Delta rules of GGUF files whose converter put the heads of values in another order: the folder's
// weights, head by head, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "import/gguf/gguf_model.h"
#include "import/hf/hf_model.h"

namespace qsf {
namespace {

std::filesystem::path test_data() {
  return std::filesystem::path(QSF_SOURCE_DIR) / "testdata";
}

std::vector<float> tensor_values(const ModelSource& source, std::uint32_t layer, std::size_t i) {
  const SourceTensor& t = source.tensors(SectionKind::kLayer, layer)[i];
  std::vector<float> values(std::size_t{t.rows} * t.cols);
  const Status status = source.read_rows(SectionKind::kLayer, layer, i, 0, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

// Puts `width` values of each head in the folder's order, of `n_rows` rows of all heads behind
// `first` values.
std::vector<float> heads_as_in_folder(const ModelSpec& spec, std::vector<float> values,
                                      std::size_t n_rows, std::size_t first, std::size_t width) {
  const std::vector<float> stored = values;
  const std::size_t each = spec.mixer_heads / spec.mixer_groups;
  const std::size_t row_size = first + spec.mixer_heads * width;
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t head = 0; head < spec.mixer_heads; ++head) {
      const std::size_t place = head % each * spec.mixer_groups + head / each;
      for (std::size_t i = 0; i < width; ++i) {
        values[row * row_size + first + head * width + i] =
            stored[row * row_size + first + place * width + i];
      }
    }
  }
  return values;
}

TEST(GgufDeltaTest, HeadsInTurnAreThoseOfTheFolder) {
  const auto folder = HfModel::open((test_data() / "golden" / "qwen3_5").string());
  ASSERT_TRUE(folder) << folder.error().message();
  const auto gguf = GgufModel::open((test_data() / "gguf" / "qwen3_5.gguf").string());
  ASSERT_TRUE(gguf) << gguf.error().message();
  const ModelSpec& spec = (*folder)->spec();
  ASSERT_EQ(spec.mixer_heads, 2 * spec.mixer_groups);
  EXPECT_FALSE(spec.mixer_heads_in_turn);
  EXPECT_TRUE((*gguf)->spec().mixer_heads_in_turn);
  EXPECT_EQ((*gguf)->spec().layer_mixers, spec.layer_mixers);
  EXPECT_EQ((*gguf)->spec().rope, spec.rope);
  const std::size_t hidden = spec.hidden;
  const std::size_t width = spec.mixer_head_dim;
  const std::size_t keys = std::size_t{2} * spec.mixer_groups * spec.mixer_state;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    const auto ours = (*gguf)->tensors(SectionKind::kLayer, layer);
    ASSERT_EQ(ours.size(), (*folder)->tensors(SectionKind::kLayer, layer).size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      std::vector<float> values = tensor_values(**gguf, layer, i);
      switch (ours[i].kind) {
        case TensorKind::kMixerIn:
          values = heads_as_in_folder(spec, values, 1, keys * hidden, width * hidden);
          break;
        case TensorKind::kConvTaps:
          values = heads_as_in_folder(spec, values, spec.conv_taps, keys, width);
          break;
        case TensorKind::kMixerGate:
          values = heads_as_in_folder(spec, values, 1, 0, width * hidden);
          break;
        case TensorKind::kDeltaRate:
        case TensorKind::kDeltaStep: values = heads_as_in_folder(spec, values, 1, 0, hidden); break;
        case TensorKind::kScanDecay:
        case TensorKind::kScanBias: values = heads_as_in_folder(spec, values, 1, 0, 1); break;
        case TensorKind::kMixerOut:
          values = heads_as_in_folder(spec, values, hidden, 0, width);
          break;
        default: break;
      }
      EXPECT_EQ(values, tensor_values(**folder, layer, i)) << layer << ' ' << ours[i].name;
    }
  }
}

}  // namespace
}  // namespace qsf
