// SPDX-License-Identifier: MIT
//
// Calibration files come back as they were written, and any other bytes are refused by name; and
// what becomes of a calibration: weights of columns and importance of layers.

#include "convert/calibrate/calibration_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/crc32.h"
#include "base/rng.h"
#include "base/testing/temporary_path.h"
#include "format/expert_hits.h"
#include "io/atomic_file.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::SizeIs;

Calibration small_calibration() {
  Calibration calibration;
  calibration.model = {.architecture = "llama",
                       .n_layers = 2,
                       .hidden = 5,
                       .q_dim = 6,
                       .ffn = 7,
                       .n_vocab = 90,
                       .tied_head = true,
                       .weights_crc = 0xFEDCBA98U};
  calibration.context = 512;
  calibration.n_rows = 65408;
  calibration.n_skip_rows = 4088;
  calibration.loss = 3.625;
  Rng rng(7);
  const auto draw = [&rng](std::uint32_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = std::fabs(rng.next_normal());
    return values;
  };
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    LayerCalibration& to = calibration.layers.emplace_back();
    to.cosine = 0.75 - layer;
    to.skip_loss = 0.5 - layer;
    for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
      to.mean_squares[i] =
          draw(input_cols(calibration.model, {static_cast<ProductInput>(i), layer}));
    }
  }
  calibration.head_mean_squares = draw(5);
  return calibration;
}

// Of a model whose second layer has experts, one of which no row chose.
Calibration mixture_calibration(std::uint32_t shared_ffn = 4) {
  Calibration calibration = small_calibration();
  CalibratedModel& model = calibration.model;
  model.n_experts = 3;
  model.expert_ffn = 2;
  model.shared_ffn = shared_ffn;
  model.expert_layers = {0, 1};
  for (std::uint32_t i = 0; i < kExpertHitSizes; ++i) {
    calibration.expert_hits.push_back(static_cast<float>(i) / kExpertHitSizes);
  }
  calibration.layers[1].mean_squares[3].assign(shared_ffn, 0.5F);
  calibration.layers[1].experts = {{.n_rows = 48,
                                    .largest = 9.5F,
                                    .gate_up_mean_squares = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F},
                                    .down_mean_squares = {6.0F, 7.0F}},
                                   {.n_rows = 16,
                                    .largest = 2.5F,
                                    .gate_up_mean_squares = {5.0F, 6.0F, 7.0F, 8.0F, 9.0F},
                                    .down_mean_squares = {2.0F, 3.0F}},
                                   {.n_rows = 0,
                                    .largest = 0.0F,
                                    .gate_up_mean_squares = std::vector<float>(5),
                                    .down_mean_squares = std::vector<float>(2)}};
  return calibration;
}

// Of a model whose layers take other columns: a mixer without an FFN, latent heads.
Calibration placed_calibration(Calibration calibration = small_calibration()) {
  CalibratedModel& model = calibration.model;
  model.place_cols.assign(2 * kInputsPerLayer, 0);
  const auto set = [&](std::uint32_t layer, ProductInput input, std::uint32_t n_cols) {
    const auto i = static_cast<std::size_t>(input);
    model.place_cols[layer * kInputsPerLayer + i] = n_cols;
    calibration.layers[layer].mean_squares[i].assign(n_cols, 0.25F * static_cast<float>(i + 1));
  };
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (auto& means : calibration.layers[layer].mean_squares) means.clear();
    set(layer, ProductInput::kQkv, 5);
  }
  set(0, ProductInput::kMixerOut, 8);
  set(1, ProductInput::kLatentQuery, 3);
  set(1, ProductInput::kLatentKeys, 6);
  set(1, ProductInput::kLatentValues, 4);
  set(1, ProductInput::kGateUp, 5);
  set(1, ProductInput::kDown, model.has_experts(1) ? 4 : 9);
  set(1, ProductInput::kLayerInputOut, 2);
  return calibration;
}

Calibration probed_calibration() {
  Calibration calibration = small_calibration();
  calibration.n_probe_rows = 2048;
  calibration.probes = {
      {TensorKind::kTokenEmbedding, 0, 1, {QuantType::kQ2Super, 64}, 0.125},
      {TensorKind::kFfnUp, 0, 2, {QuantType::kQ6K, 16}, 0.0},
      {TensorKind::kFfnDown, 1, 1, {QuantType::kQ4Super, 32}, 1e-5},
  };
  return calibration;
}

void expect_equal(const Calibration& got, const Calibration& want) {
  EXPECT_EQ(got.model, want.model);
  EXPECT_EQ(got.context, want.context);
  EXPECT_EQ(got.n_rows, want.n_rows);
  EXPECT_EQ(got.n_skip_rows, want.n_skip_rows);
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.head_mean_squares, want.head_mean_squares);
  EXPECT_EQ(got.expert_hits, want.expert_hits);
  ASSERT_EQ(got.layers.size(), want.layers.size());
  for (std::size_t i = 0; i < want.layers.size(); ++i) {
    EXPECT_EQ(got.layers[i].cosine, want.layers[i].cosine);
    EXPECT_EQ(got.layers[i].skip_loss, want.layers[i].skip_loss);
    EXPECT_EQ(got.layers[i].mean_squares, want.layers[i].mean_squares);
    ASSERT_EQ(got.layers[i].experts.size(), want.layers[i].experts.size());
    for (std::size_t e = 0; e < want.layers[i].experts.size(); ++e) {
      const ExpertCalibration& expert = got.layers[i].experts[e];
      const ExpertCalibration& wanted = want.layers[i].experts[e];
      EXPECT_EQ(expert.n_rows, wanted.n_rows);
      EXPECT_EQ(expert.largest, wanted.largest);
      EXPECT_EQ(expert.gate_up_mean_squares, wanted.gate_up_mean_squares);
      EXPECT_EQ(expert.down_mean_squares, wanted.down_mean_squares);
    }
  }
  EXPECT_EQ(got.n_probe_rows, want.n_probe_rows);
  EXPECT_EQ(got.probes, want.probes);
}

std::vector<std::byte> bytes_of(const Calibration& calibration) {
  return encode_calibration(calibration);
}

void repair(std::vector<std::byte>& bytes) {
  const std::size_t end = bytes.size() - 4;
  store_le(MutableByteSpan(bytes), end, crc32(ByteSpan(bytes).first(end)));
}

void expect_refused(ByteSpan bytes, StatusCode code, const std::string& message,
                    CalibrationReadOptions options = {}) {
  const auto read = decode_calibration(bytes, options);
  ASSERT_FALSE(read) << message;
  EXPECT_EQ(read.error().code(), code) << read.error().message();
  EXPECT_THAT(std::string(read.error().message()), HasSubstr(message));
}

class CalibrationFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = testing_support::temporary_path("calibration");
};

TEST_F(CalibrationFileTest, ComesBackAsWritten) {
  const Calibration want = small_calibration();
  ASSERT_TRUE(write_calibration_file(path_, want).ok());
  const auto is_one = is_calibration_file(path_);
  ASSERT_TRUE(is_one) << is_one.error().message();
  EXPECT_TRUE(*is_one);
  const auto got = read_calibration_file(path_);
  ASSERT_TRUE(got) << got.error().message();
  expect_equal(*got, want);
}

TEST_F(CalibrationFileTest, ExpertsComeBackAsWritten) {
  for (const std::uint32_t shared_ffn : {0U, 4U}) {
    Calibration want = mixture_calibration(shared_ffn);
    for (const bool probed : {false, true}) {
      if (probed) {
        want.n_probe_rows = 256;
        want.probes = {{TensorKind::kExpertUp, 1, 1, {QuantType::kQ4Super, 32}, 1e-5}};
      }
      const std::vector<std::byte> bytes = bytes_of(want);
      EXPECT_EQ(load_le<std::uint32_t>(bytes, 4), 4U);
      const auto got = decode_calibration(bytes);
      ASSERT_TRUE(got) << got.error().message();
      expect_equal(*got, want);
    }
  }
  Calibration want = mixture_calibration();
  want.expert_hits.clear();  // as older programs wrote
  const std::vector<std::byte> bytes = bytes_of(want);
  EXPECT_EQ(load_le<std::uint32_t>(bytes, 4), 3U);
  EXPECT_EQ(bytes.size() + 64, bytes_of(mixture_calibration()).size());
  const auto got = decode_calibration(bytes);
  ASSERT_TRUE(got) << got.error().message();
  expect_equal(*got, want);
}

TEST_F(CalibrationFileTest, ColumnsOfPlacesComeBackAsWritten) {
  for (Calibration want : {placed_calibration(), placed_calibration(mixture_calibration())}) {
    for (const bool probed : {false, true}) {
      if (probed) {
        want.n_probe_rows = 256;
        want.probes = {{TensorKind::kMixerOut, 0, 1, {QuantType::kQ4Super, 32}, 1e-5}};
      }
      const std::vector<std::byte> bytes = bytes_of(want);
      EXPECT_EQ(load_le<std::uint32_t>(bytes, 4), 5U);
      const auto got = decode_calibration(bytes);
      ASSERT_TRUE(got) << got.error().message();
      expect_equal(*got, want);
    }
  }
}

// Offsets of docs/calibration-files.md.
TEST_F(CalibrationFileTest, DamagedColumnsOfPlacesAreRefusedByName) {
  const std::vector<std::byte> whole = bytes_of(placed_calibration());
  constexpr std::size_t kMixture = 136;
  constexpr std::size_t kPlaces = kMixture + 12 + 2 * 4 + 64;
  EXPECT_EQ(load_le<std::uint32_t>(whole, kPlaces), 5U);
  EXPECT_EQ(load_le<std::uint32_t>(whole, kPlaces + 4 * 4), 8U);
  EXPECT_EQ(load_le<std::uint32_t>(whole, kPlaces + 44 + 4 * 6), 6U);
  const auto expect_damage = [&](std::size_t offset, auto value, const std::string& message) {
    std::vector<std::byte> bytes = whole;
    store_le(MutableByteSpan(bytes), offset, value);
    repair(bytes);
    expect_refused(bytes, StatusCode::kCorrupt, message);
  };
  expect_damage(kMixture, 1U, "FFN size of experts: 0");
  expect_damage(kMixture + 4, 7U, "FFN sizes of experts: 7 and 0, but there are none");
  expect_damage(kMixture + 8, 7U, "FFN sizes of experts: 0 and 7, but there are none");
  expect_damage(kMixture + 12, 1U, "layer 0: whether it has experts: 1, expected 0");
  expect_damage(kPlaces - 64, 2.0F, "hits of experts: 2");
  expect_damage(kPlaces - 4, 0.5F, "hits of experts, but there are none");
  expect_damage(kPlaces - 4, -0.0F, "hits of experts, but there are none");
  expect_damage(kPlaces, 6U, "for its shape");
  expect_damage(kPlaces + 44, (1U << 24) + 1, "layer 1: 16777217 columns of an input");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(decode_calibration(ByteSpan(whole).first(n), {.verify_crc = false})) << n;
  }
}

TEST_F(CalibrationFileTest, DefaultColumnsAreLeftOut) {
  for (Calibration calibration : {small_calibration(), mixture_calibration()}) {
    CalibratedModel& model = calibration.model;
    std::vector<std::uint32_t> cols;
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
      for (std::size_t i = 0; i < kInputsPerLayer; ++i) {
        cols.push_back(input_cols(model, {static_cast<ProductInput>(i), layer}));
      }
    }
    EXPECT_TRUE(has_default_cols(model));
    model.place_cols = cols;
    EXPECT_TRUE(has_default_cols(model));
    expect_refused(bytes_of(calibration), StatusCode::kCorrupt, "those of earlier versions");
  }
  EXPECT_FALSE(has_default_cols(placed_calibration().model));
}

// Offsets of docs/calibration-files.md.
TEST_F(CalibrationFileTest, DamagedExpertsAreRefusedByName) {
  const std::vector<std::byte> whole = bytes_of(mixture_calibration());
  constexpr std::size_t kMixture = 136;
  constexpr std::size_t kHits = kMixture + 12 + 2 * 4;
  constexpr std::size_t kLayer0 = kHits + 64;
  constexpr std::size_t kExpert0 = kLayer0 + (16 + 4 * (5 + 6 + 5 + 7)) + 16 + 4 * (5 + 6 + 5 + 4);
  const auto expect_damage = [&](std::size_t offset, auto value, const std::string& message) {
    std::vector<std::byte> bytes = whole;
    store_le(MutableByteSpan(bytes), offset, value);
    repair(bytes);
    expect_refused(bytes, StatusCode::kCorrupt, message);
  };
  expect_damage(kMixture, 0U, "experts: 0, expected 1 to 65536");
  expect_damage(kMixture, 4U, "expected");  // the size of the file
  expect_damage(kMixture + 4, 0U, "FFN size of experts: 0");
  expect_damage(kMixture + 8, 1U << 25, "FFN size of the shared expert: 33554432");
  expect_damage(kMixture + 12, 2U, "layer 0: whether it has experts: 2");
  expect_damage(kMixture + 12, 1U, "expected");  // the size of the file
  expect_damage(kHits, -0.5F, "hits of experts: -0.5, expected 0 to 1");
  expect_damage(kHits + 60, std::numeric_limits<float>::quiet_NaN(), "hits of experts: nan");
  expect_damage(kExpert0, std::uint64_t{65409}, "layer 1, expert 0: 65409 rows");
  expect_damage(kExpert0 + 8, -1.0F, "layer 1, expert 0: largest magnitude -1");
  expect_damage(kExpert0 + 8, std::numeric_limits<float>::quiet_NaN(), "expert 0: largest");
  expect_damage(kExpert0 + 12, -2.0F, "layer 1, expert 0: mean square -2");
  for (std::size_t n = 0; n < whole.size(); n += 3) {
    EXPECT_FALSE(decode_calibration(ByteSpan(whole).first(n), {.verify_crc = false})) << n;
  }
}

TEST_F(CalibrationFileTest, ProbesComeBackAsWritten) {
  const Calibration want = probed_calibration();
  const std::vector<std::byte> bytes = bytes_of(want);
  EXPECT_EQ(load_le<std::uint32_t>(bytes, 4), 2U);
  const auto got = decode_calibration(bytes);
  ASSERT_TRUE(got) << got.error().message();
  expect_equal(*got, want);
  EXPECT_EQ(got->n_probe_rows, 2048U);
  ASSERT_EQ(got->probes.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got->probes[i].kind, want.probes[i].kind);
    EXPECT_EQ(got->probes[i].first_layer, want.probes[i].first_layer);
    EXPECT_EQ(got->probes[i].n_layers, want.probes[i].n_layers);
    EXPECT_EQ(got->probes[i].format, want.probes[i].format);
    EXPECT_EQ(got->probes[i].divergence, want.probes[i].divergence);
  }
}

TEST_F(CalibrationFileTest, ProbesOutOfRangeAreRefused) {
  const std::vector<std::byte> good = bytes_of(probed_calibration());
  const std::size_t first = good.size() - 4 - 3 * 28;  // of the probes
  const struct {
    std::size_t at;
    std::uint32_t value;
    const char* message;
  } cases[] = {
      {first - 12, 0, "rows of the sensitivity measurement: 0"},
      {first - 4, 4, "sensitivity entries: 4, expected 3"},
      {first - 4, 0, "sensitivity entries: 0, expected 3"},
      {first, 4000, "sensitivity entry 0: unknown tensor kind 4000"},
      {first + 4, 2, "sensitivity entry 0: 1 layers from 2"},
      {first + 8, 0, "sensitivity entry 0: 0 layers"},
      {first + 8, 0xFFFFFFFFU, "sensitivity entry 0: 4294967295 layers"},
      {first + 12, 200, "sensitivity entry 0: no weight type 200"},
      {first + 12, 0x120, "sensitivity entry 0: no weight type 288"},
      {first + 16, 48, "sensitivity entry 0: no weight type 32 in blocks of 48"},
      {first + 28 + 24, 0x7FF80000U, "sensitivity entry 1: divergence"},
      {first + 28 + 24, 0xBFF00000U, "sensitivity entry 1: divergence -1"},
      {first + 28 + 24, 0x7FF00000U, "sensitivity entry 1: divergence inf"},
  };
  for (const auto& c : cases) {
    std::vector<std::byte> bytes = good;
    store_le(MutableByteSpan(bytes), c.at, c.value);
    repair(bytes);
    expect_refused(bytes, StatusCode::kCorrupt, c.message);
  }
  for (std::size_t n = good.size() - 3 * 28; n < good.size(); ++n) {
    std::vector<std::byte> bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n));
    repair(bytes);
    EXPECT_FALSE(decode_calibration(bytes)) << n;
  }
}

TEST_F(CalibrationFileTest, ThereAreAtMostSoManyProbes) {
  Calibration calibration = probed_calibration();
  calibration.probes.resize(65536, calibration.probes.front());
  EXPECT_TRUE(decode_calibration(bytes_of(calibration)));
  calibration.probes.push_back(calibration.probes.front());
  expect_refused(bytes_of(calibration), StatusCode::kCorrupt, "for its shape");
}

// docs/calibration-files.md says where every field is.
TEST_F(CalibrationFileTest, BytesAreThoseOfThePage) {
  const std::vector<std::byte> bytes = bytes_of(small_calibration());
  ASSERT_EQ(bytes.size(), 136U + 2 * (16 + 4 * (5 + 6 + 5 + 7)) + 4 * 5 + 4);
  EXPECT_EQ(as_text(ByteSpan(bytes).first(4)), "QSFC");
  EXPECT_EQ(load_le<std::uint32_t>(bytes, 4), 1U);
  EXPECT_EQ(as_text(ByteSpan(bytes).subspan(8, 6)), std::string_view("llama\0", 6));
  const std::uint32_t words[] = {2, 5, 6, 7, 90, 1, 0xFEDCBA98U, 512};
  for (std::size_t i = 0; i < std::size(words); ++i) {
    EXPECT_EQ(load_le<std::uint32_t>(bytes, 72 + 4 * i), words[i]) << i;
  }
  EXPECT_EQ(load_le<std::uint64_t>(bytes, 104), 65408U);
  EXPECT_EQ(load_le<std::uint64_t>(bytes, 112), 4088U);
  EXPECT_EQ(load_le<double>(bytes, 120), 3.625);
  EXPECT_EQ(load_le<std::uint64_t>(bytes, 128), bytes.size());
  EXPECT_EQ(load_le<double>(bytes, 136), 0.75);
  EXPECT_EQ(load_le<double>(bytes, 144), 0.5);
}

TEST_F(CalibrationFileTest, OtherFilesAreToldApart) {
  for (const std::string_view content : {"", "QSF", "Once upon a time"}) {
    ASSERT_TRUE(write_file(path_, as_bytes(content)).ok());
    const auto is_one = is_calibration_file(path_);
    ASSERT_TRUE(is_one) << is_one.error().message();
    EXPECT_FALSE(*is_one) << content;
    const auto read = read_calibration_file(path_);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code(), StatusCode::kCorrupt);
    EXPECT_THAT(std::string(read.error().message()), HasSubstr(path_));
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(is_calibration_file(path_).error().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_calibration_file(path_).error().code(), StatusCode::kNotFound);
}

TEST_F(CalibrationFileTest, EveryPrefixAndEveryFlippedBitIsRefused) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const std::vector<std::byte> whole = bytes_of(small_calibration());
  ASSERT_TRUE(decode_calibration(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(decode_calibration(ByteSpan(whole).first(n))) << n;
    // Without the checksum the sizes have to tell.
    EXPECT_FALSE(decode_calibration(ByteSpan(whole).first(n), {.verify_crc = false})) << n;
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  repair(longer);
  EXPECT_FALSE(decode_calibration(longer));
  std::size_t n_read = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_calibration(bytes)) << bit;
    // What passes without the checksum still holds to every promise of the type.
    const auto read = decode_calibration(bytes, {.verify_crc = false});
    if (!read) continue;
    ++n_read;
    EXPECT_THAT(read->layers, SizeIs(read->model.n_layers));
    EXPECT_TRUE(column_importance(*read)) << bit;
    EXPECT_THAT(layer_importance(*read), Each(AllOf(Gt(0.0F), Le(kMost)))) << bit;
    EXPECT_LE(std::fabs(read->loss), double{kMost}) << bit;
  }
  // Most bits are of fractions: any of those makes another number that can be.
  EXPECT_GT(n_read, whole.size() * 4);
}

TEST_F(CalibrationFileTest, WrongFieldsAreNamed) {
  const auto with = [](std::size_t offset, auto value) {
    std::vector<std::byte> bytes = bytes_of(small_calibration());
    store_le(MutableByteSpan(bytes), offset, value);
    repair(bytes);
    return bytes;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_refused(with(0, 'q'), StatusCode::kCorrupt, "not a calibration file");
  expect_refused(with(4, std::uint32_t{6}), StatusCode::kUnsupported, "version 6");
  expect_refused(with(4, std::uint32_t{2}), StatusCode::kCorrupt, "for its shape");
  expect_refused(with(8, '\0'), StatusCode::kCorrupt, "architecture");
  expect_refused(with(8, 'L'), StatusCode::kCorrupt, "architecture");
  expect_refused(with(71, 'x'), StatusCode::kCorrupt, "architecture");
  expect_refused(with(72, std::uint32_t{0}), StatusCode::kCorrupt, "layers: 0");
  expect_refused(with(72, std::uint32_t{4097}), StatusCode::kCorrupt, "layers: 4097");
  expect_refused(with(76, std::uint32_t{0}), StatusCode::kCorrupt, "hidden size: 0");
  expect_refused(with(80, UINT32_MAX), StatusCode::kCorrupt, "columns of queries");
  expect_refused(with(84, UINT32_MAX), StatusCode::kCorrupt, "FFN size");
  expect_refused(with(84, std::uint32_t{8}), StatusCode::kCorrupt, "for its shape");
  expect_refused(with(88, std::uint32_t{0}), StatusCode::kCorrupt, "vocabulary");
  expect_refused(with(92, std::uint32_t{2}), StatusCode::kCorrupt, "tied head: 2");
  expect_refused(with(100, std::uint32_t{0}), StatusCode::kCorrupt, "context: 0");
  expect_refused(with(104, std::uint64_t{0}), StatusCode::kCorrupt, "rows: 0");
  expect_refused(with(120, kInfinity), StatusCode::kCorrupt, "loss");
  expect_refused(with(120, -1e300), StatusCode::kCorrupt, "loss: -1e+300");
  expect_refused(with(128, std::uint64_t{1} << 40), StatusCode::kCorrupt, "for its shape");
  expect_refused(with(136, 1.5), StatusCode::kCorrupt, "layer 0: cosine 1.5");
  expect_refused(with(144, kInfinity), StatusCode::kCorrupt, "layer 0: loss when skipped");
  expect_refused(with(144, 1e300), StatusCode::kCorrupt, "layer 0: loss when skipped: 1e+300");
  expect_refused(with(152, -1.0F), StatusCode::kCorrupt, "layer 0: mean square -1");
  expect_refused(with(152 + 4 * 22, kNan), StatusCode::kCorrupt, "layer 0: mean square nan");
  expect_refused(with(136 + 2 * 108, kNan), StatusCode::kCorrupt, "head: mean square");
  std::vector<std::byte> damaged = bytes_of(small_calibration());
  damaged[152] ^= std::byte{1};
  expect_refused(damaged, StatusCode::kCorrupt, "checksum");
}

TEST(CalibrationTest, OtherModelsAreRefused) {
  const Calibration calibration = small_calibration();
  EXPECT_TRUE(check_calibrated(calibration, calibration.model).ok());
  CalibratedModel other = calibration.model;
  other.weights_crc ^= 1;
  Status status = check_calibrated(calibration, other);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("other weights"));
}

TEST(CalibrationTest, WhatDiffersOfAnotherModelIsNamed) {
  const Calibration calibration = small_calibration();
  const auto expect_named = [&](auto change, const std::string& message) {
    CalibratedModel other = calibration.model;
    other.weights_crc ^= 1;  // as another model's are
    change(other);
    const Status status = check_calibrated(calibration, other);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr("another model: " + message + ";"));
  };
  using Model = CalibratedModel;
  expect_named([](Model& m) { m.architecture = "gpt2"; }, "architecture llama, expected gpt2");
  expect_named([](Model& m) { m.n_layers = 3; }, "layers 2, expected 3");
  expect_named([](Model& m) { m.hidden = 8; }, "hidden size 5, expected 8");
  expect_named([](Model& m) { m.q_dim = 8; }, "columns of queries 6, expected 8");
  expect_named([](Model& m) { m.ffn = 8; }, "FFN size 7, expected 8");
  expect_named([](Model& m) { m.n_vocab = 8; }, "vocabulary 90, expected 8");
  expect_named([](Model& m) { m.tied_head = false; }, "tied head 1, expected 0");
  expect_named([](Model& m) { m.place_cols = placed_calibration().model.place_cols; },
               "its products in layer 0 have other columns");
  // The first of several.
  expect_named(
      [](Model& m) {
        m.ffn = 8;
        m.n_vocab = 8;
      },
      "FFN size 7, expected 8");
}

TEST(CalibrationTest, ColumnsHaveTheWeightsOfTheirInputs) {
  const Calibration calibration = small_calibration();
  const auto importance = column_importance(calibration);
  ASSERT_TRUE(importance) << importance.error().message();
  const auto expect = [&](TensorKind kind, std::uint32_t layer, const std::vector<float>& want) {
    const std::span<const float> got = importance->find({kind, layer}, want.size());
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want) << tensor_kind_name(kind);
  };
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    const auto& means = calibration.layers[layer].mean_squares;
    for (const TensorKind kind : {TensorKind::kAttnQ, TensorKind::kAttnK, TensorKind::kAttnV}) {
      expect(kind, layer, means[0]);
    }
    expect(TensorKind::kAttnO, layer, means[1]);
    expect(TensorKind::kFfnGate, layer, means[2]);
    expect(TensorKind::kFfnUp, layer, means[2]);
    expect(TensorKind::kFfnDown, layer, means[3]);
  }
  expect(TensorKind::kTokenEmbedding, 0, calibration.head_mean_squares);
  EXPECT_THAT(importance->find({TensorKind::kHead, 0}, 5), IsEmpty());
  Calibration untied = calibration;
  untied.model.tied_head = false;
  const auto with_head = column_importance(untied);
  ASSERT_TRUE(with_head);
  EXPECT_THAT(with_head->find({TensorKind::kHead, 0}, 5), SizeIs(5));
  EXPECT_THAT(with_head->find({TensorKind::kTokenEmbedding, 0}, 5), IsEmpty());
}

TEST(CalibrationTest, MatricesHaveTheWeightsOfTheirPlaces) {
  const auto importance = column_importance(placed_calibration());
  ASSERT_TRUE(importance) << importance.error().message();
  const auto expect = [&](TensorKind kind, std::uint32_t layer, std::size_t n_cols,
                          std::size_t n_values, ProductInput input) {
    const float value = 0.25F * static_cast<float>(static_cast<int>(input) + 1);
    const std::span<const float> got = importance->find({kind, layer}, n_cols);
    EXPECT_THAT(std::vector<float>(got.begin(), got.end()), AllOf(SizeIs(n_values), Each(value)))
        << tensor_kind_name(kind) << layer;
  };
  for (const TensorKind kind : {TensorKind::kMixerIn, TensorKind::kMixerGate,
                                TensorKind::kDeltaRate, TensorKind::kDeltaStep}) {
    expect(kind, 0, 5, 5, ProductInput::kQkv);
  }
  expect(TensorKind::kMixerOut, 0, 8, 8, ProductInput::kMixerOut);
  expect(TensorKind::kAttnQ, 0, 5, 5, ProductInput::kQkv);
  expect(TensorKind::kAttnQ, 1, 3, 3, ProductInput::kLatentQuery);
  expect(TensorKind::kAttnK, 1, 5, 5, ProductInput::kQkv);
  expect(TensorKind::kLatentKeys, 1, 2, 6, ProductInput::kLatentKeys);  // of three heads
  expect(TensorKind::kLatentValues, 1, 2, 4, ProductInput::kLatentValues);
  expect(TensorKind::kLayerInputOut, 1, 2, 2, ProductInput::kLayerInputOut);
  EXPECT_THAT(importance->find({TensorKind::kMixerOut, 0}, 4), IsEmpty());
  EXPECT_THAT(importance->find({TensorKind::kLatentKeys, 1}, 4), IsEmpty());
  EXPECT_THAT(importance->find({TensorKind::kFfnDown, 0}, 7), IsEmpty());
}

// 48 and 16 rows, and 16 of the mean of both: of the first column (48 * 1 + 16 * 5) / 64 = 2.
TEST(CalibrationTest, ExpertsHaveTheirOwnMeansAndRowsOfTheirLayers) {
  const auto importance = column_importance(mixture_calibration());
  ASSERT_TRUE(importance) << importance.error().message();
  const auto first = [&](TensorKind kind, std::uint16_t expert, std::size_t n_cols) {
    const std::span<const float> found = importance->find({kind, 1, expert}, n_cols);
    return found.empty() ? -1.0F : found.front();
  };
  EXPECT_FLOAT_EQ(first(TensorKind::kExpertGate, 0, 5), (48.0F * 1.0F + 16.0F * 2.0F) / 64.0F);
  EXPECT_FLOAT_EQ(first(TensorKind::kExpertUp, 1, 5), (16.0F * 5.0F + 16.0F * 2.0F) / 32.0F);
  EXPECT_FLOAT_EQ(first(TensorKind::kExpertUp, 2, 5), 2.0F);
  EXPECT_FLOAT_EQ(first(TensorKind::kExpertDown, 2, 2), 5.0F);
  EXPECT_FLOAT_EQ(first(TensorKind::kSharedDown, 0, 4), 0.5F);
  EXPECT_THAT(importance->find({TensorKind::kExpertUp, 0, 0}, 5), IsEmpty());
}

TEST(CalibrationTest, CountsExpertsThatNoRowChose) {
  const ExpertCoverage coverage = expert_coverage(mixture_calibration());
  EXPECT_EQ(coverage.n_experts, 3U);
  EXPECT_EQ(coverage.n_unused, 1U);
  EXPECT_EQ(expert_coverage(small_calibration()).n_experts, 0U);
}

TEST(CalibrationTest, UnseenColumnsKeepAShare) {
  Calibration calibration = small_calibration();
  calibration.layers[0].mean_squares[0] = {0.0F, 5.0F, 0.0F, 0.0F, 0.0F};
  calibration.layers[1].mean_squares[0] = {0.0F, 0.0F, 0.0F, 0.0F, 0.0F};
  const auto importance = column_importance(calibration);
  ASSERT_TRUE(importance);
  const std::span<const float> seen = importance->find({TensorKind::kAttnQ, 0}, 5);
  EXPECT_THAT(std::vector<float>(seen.begin(), seen.end()),
              ElementsAre(1e-4F, 5.0F, 1e-4F, 1e-4F, 1e-4F));
  // Nothing is known of rows that were all zero.
  EXPECT_THAT(importance->find({TensorKind::kAttnQ, 1}, 5), IsEmpty());
}

TEST(CalibrationTest, ImportanceOfLayersIsWhatTheyAreMissedFor) {
  Calibration calibration = small_calibration();
  EXPECT_THAT(layer_importance(calibration), ElementsAre(0.5F, kLeastImportance));
}

}  // namespace
}  // namespace qsf
