// SPDX-License-Identifier: MIT
//
// Adapters and the models that they are for: fingerprint, architecture, matrices and shapes; and
// what an adapter adds, against the weights that it stands for.

#include "format/adapter_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/testing/temporary_path.h"
#include "format/model_fingerprint.h"
#include "format/testing/adapter_values.h"
#include "format/testing/small_models.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::PairValues;

QsfReader opened_base(const testing_support::SmallModel& model) {
  const std::string path = testing_support::temporary_path("adapter_base_" + model.name + ".qsf");
  EXPECT_TRUE(testing_support::write_small_model(model, path).ok());
  return QsfReader::open(path).value();
}

// An adapter of every matrix that a model has.
AdapterSpec whole_adapter(const QsfReader& base) {
  AdapterSpec spec{.name = "all",
                   .architecture = base.spec().architecture,
                   .base_fingerprint = model_fingerprint(base),
                   .pairs = {}};
  for (const SectionDirectory& section : base.directories()) {
    for (const TensorInfo& tensor : section.tensors) {
      if (!is_adaptable(tensor.kind)) continue;
      spec.pairs.push_back({.kind = tensor.kind,
                            .layer = section.layer,
                            .expert = tensor.expert,
                            .rank = 2,
                            .in = tensor.cols,
                            .out = tensor.rows});
    }
  }
  if (base.spec().tied_head) {
    spec.pairs.push_back({.kind = TensorKind::kHead,
                          .rank = 2,
                          .in = base.spec().hidden,
                          .out = base.spec().n_vocab});
  }
  std::sort(spec.pairs.begin(), spec.pairs.end(), comes_before);
  return spec;
}

TEST(AdapterSpecTest, FitsTheModelItIsMadeFor) {
  for (const testing_support::SmallModel& model :
       {testing_support::types_model(), testing_support::compressed_model(),
        testing_support::full_model()}) {
    const QsfReader base = opened_base(model);
    AdapterSpec spec = whole_adapter(base);
    EXPECT_GT(spec.pairs.size(), 3U);
    EXPECT_TRUE(validate(spec).ok()) << validate(spec).message();
    EXPECT_TRUE(check_adapter_fits(spec, base).ok()) << check_adapter_fits(spec, base).message();
    spec.base_fingerprint = 0;
    EXPECT_TRUE(check_adapter_fits(spec, base).ok());
  }
}

TEST(AdapterSpecTest, RefusesForeignModelsByName) {
  const QsfReader base = opened_base(testing_support::types_model());
  const AdapterSpec good = whole_adapter(base);
  const std::pair<const char*, std::function<void(AdapterSpec&)>> cases[] = {
      {"made for a gpt2", [](AdapterSpec& s) { s.architecture = "gpt2"; }},
      {"fingerprint", [](AdapterSpec& s) { s.base_fingerprint ^= 1; }},
      {"the model has", [](AdapterSpec& s) { s.pairs[0].layer = 4000; }},
      {"no such matrix", [](AdapterSpec& s) { s.pairs[0].kind = TensorKind::kMixerIn; }},
      {"no such matrix",
       [](AdapterSpec& s) {
         s.pairs[0].kind = TensorKind::kExpertUp;
         s.pairs[0].expert = 1;
       }},
      {"layer 0, attn_q: for a matrix", [](AdapterSpec& s) { s.pairs[0].in += 1; }},
      {"layer 0, attn_q: for a matrix", [](AdapterSpec& s) { s.pairs[0].out -= 1; }},
      {"head: for a matrix", [](AdapterSpec& s) { s.pairs.back().out += 1; }},
  };
  for (const auto& [message, change] : cases) {
    AdapterSpec spec = good;
    change(spec);
    const Status status = check_adapter_fits(spec, base);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_THAT(status.message(), HasSubstr("adapter \"all\""));
  }
  const QsfReader other = opened_base(testing_support::compressed_model());
  EXPECT_FALSE(check_adapter_fits(good, other).ok());
}

TEST(AdapterSpecTest, NamesAreChecked) {
  AdapterSpec spec = {.name = "a",
                      .architecture = "llama",
                      .pairs = {{.kind = TensorKind::kAttnQ, .rank = 1, .in = 1, .out = 1}}};
  EXPECT_TRUE(validate(spec).ok());
  for (const std::string& name :
       {std::string(), std::string(257, 'x'), std::string("a\0b", 3), std::string("\xC3")}) {
    spec.name = name;
    EXPECT_THAT(validate(spec).message(), HasSubstr("name: ")) << name;
  }
  spec.name = "a";
  spec.pairs.resize(kMaxAdapterPairs + 1, spec.pairs[0]);
  EXPECT_THAT(validate(spec).message(), HasSubstr("65537 matrices"));
  spec.pairs.clear();
  EXPECT_THAT(validate(spec).message(), HasSubstr("0 matrices"));
}

// y + scale * B (A x) against (W + scale * B A) x.
TEST(AdapterSpecTest, AddsWhatMergedWeightsWould) {
  const AdapterSpec spec = {
      .name = "one",
      .architecture = "llama",
      .pairs = {{.kind = TensorKind::kAttnQ, .rank = 3, .in = 7, .out = 5, .scale = -1.75F}}};
  const AdapterPair& pair = spec.pairs[0];
  const PairValues values = testing_support::random_adapter_values(spec, 3).pairs[0];
  Rng rng(4);
  std::vector<double> w(pair.in * pair.out);
  for (double& value : w) value = static_cast<double>(rng.next_normal());
  std::vector<double> x(pair.in);
  for (double& value : x) value = static_cast<double>(rng.next_normal());
  std::vector<double> y(pair.out, 0.0);
  std::vector<double> merged(pair.out, 0.0);
  for (std::uint32_t o = 0; o < pair.out; ++o) {
    for (std::uint32_t c = 0; c < pair.in; ++c) {
      double weight = w[o * pair.in + c];
      y[o] += weight * x[c];
      for (std::uint32_t r = 0; r < pair.rank; ++r) {
        weight += static_cast<double>(pair.scale) *
                  static_cast<double>(values.b[o * pair.rank + r]) *
                  static_cast<double>(values.a[r * pair.in + c]);
      }
      merged[o] += weight * x[c];
    }
  }
  testing_support::apply_adapter(pair, values, x, y);
  for (std::uint32_t o = 0; o < pair.out; ++o) EXPECT_NEAR(y[o], merged[o], 1e-12);
}

}  // namespace
}  // namespace qsf
