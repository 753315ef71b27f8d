// SPDX-License-Identifier: MIT
//
// Holds the keys of embeddings to docs/format-metadata.md.

#include "format/embedding_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "format/qsf_layout.h"
#include "format/spec_keys.h"
#include "format/testing/small_models.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::embedding_spec;

Result<ModelSpec> decoded(const ModelSpec& spec, const Metadata& metadata) {
  std::array<std::byte, kHeaderBytes> header{};
  encode_spec_header(spec, header);
  return decode_spec(header, metadata);
}

TEST(EmbeddingSpecTest, SurvivesHeaderAndMetadata) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst}) {
    ModelSpec spec = embedding_spec();
    spec.pooling = pooling;
    const Metadata metadata = encode_spec_metadata(spec);
    for (const char* key :
         {keys::kEmbeddingPooling, keys::kEmbeddingOnly, keys::kAttentionBidirectional,
          keys::kEmbeddingDense, keys::kNormStream}) {
      const MetadataEntry* const entry = metadata.find(key);
      ASSERT_NE(entry, nullptr) << key;
      EXPECT_TRUE(entry->required) << key;
    }
    const auto back = decoded(spec, metadata);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(*back, spec);
  }
}

TEST(EmbeddingSpecTest, OtherModelsHaveNoSuchKey) {
  ModelSpec spec = embedding_spec();
  spec.pooling.reset();
  spec.embeds_only = spec.bidirectional = spec.norms_stream = false;
  spec.embedding_dense = 0;
  const Metadata metadata = encode_spec_metadata(spec);
  EXPECT_FALSE(metadata.contains(keys::kEmbeddingPooling));
  EXPECT_FALSE(metadata.contains(keys::kEmbeddingOnly));
  EXPECT_FALSE(metadata.contains(keys::kAttentionBidirectional));
  EXPECT_FALSE(metadata.contains(keys::kEmbeddingDense));
  EXPECT_FALSE(metadata.contains(keys::kNormStream));
}

TEST(EmbeddingSpecTest, RefusesWhatItDoesNotKnow) {
  const ModelSpec spec = embedding_spec();
  Metadata metadata = encode_spec_metadata(spec);
  metadata.set_text(keys::kEmbeddingPooling, "weighted", true);
  const auto unknown = decoded(spec, metadata);
  EXPECT_EQ(unknown.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(unknown.error().message(), HasSubstr("embedding.pooling: \"weighted\""));
  ModelSpec headed = spec;
  headed.tied_head = false;
  EXPECT_THAT(validate(headed).message(), HasSubstr("head of its own"));
  for (const std::uint32_t columns : {1U, (1U << 20) + 1}) {
    ModelSpec dense = spec;
    dense.embedding_dense = columns;
    EXPECT_THAT(validate(dense).message(), HasSubstr("columns between dense layers"));
  }
  for (void (*change)(ModelSpec&) :
       {+[](ModelSpec& s) { s.embeds_only = false; },
        +[](ModelSpec& s) {
          s.chunked_windows = true;
          s.sliding_window = {8};
        },
        +[](ModelSpec& s) { s.positions = PositionEncoding::kAlibi; }}) {
    ModelSpec bidirectional = spec;
    change(bidirectional);
    EXPECT_THAT(validate(bidirectional).message(), HasSubstr("bidirectional attention"));
  }
}

}  // namespace
}  // namespace qsf
