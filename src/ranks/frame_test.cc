// SPDX-License-Identifier: MIT

#include "ranks/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks/ring_plan.h"

namespace qsf {
namespace {

using testing::HasSubstr;

TEST(FrameTest, GoesThroughBytes) {
  const FrameHeader header = {
      .kind = FrameKind::kRows, .pass = 1ULL << 40, .window = 7, .n_rows = 3, .n_cols = 2};
  const float rows[6] = {1, 2, 3, 4, 5, 6};
  const std::vector<std::byte> bytes = encode_frame(header, std::as_bytes(std::span(rows)));
  const Frame frame = decode_frame(bytes).value();
  EXPECT_EQ(frame.header.kind, header.kind);
  EXPECT_EQ(frame.header.pass, header.pass);
  EXPECT_EQ(frame.header.window, header.window);
  EXPECT_EQ(frame.header.n_rows, header.n_rows);
  EXPECT_EQ(frame.header.n_cols, header.n_cols);
  EXPECT_TRUE(std::equal(frame.payload.begin(), frame.payload.end(),
                         std::as_bytes(std::span(rows)).begin()));
}

TEST(FrameTest, AnyChangedByteIsRefused) {
  const std::byte payload[3] = {};
  const std::vector<std::byte> bytes = encode_frame({.kind = FrameKind::kPass}, payload);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{4};
    EXPECT_EQ(decode_frame(damaged).error().code(), StatusCode::kCorrupt) << i;
    EXPECT_EQ(decode_frame(ByteSpan(bytes).first(i)).error().code(), StatusCode::kCorrupt) << i;
  }
}

TEST(FrameTest, AnotherVersionIsNamed) {
  std::vector<std::byte> bytes = encode_frame({.kind = FrameKind::kEnd}, {});
  store_le<std::uint32_t>(bytes, 4, 9);
  EXPECT_THAT(decode_frame(bytes).error().message(), HasSubstr("version 9, expected 1"));
}

TEST(RingPlanTest, DealsWindowsInTurn) {
  const RingPlan plan = interleave(7, 2, 2);
  const RingPlan expected = {{0, 0, 2}, {1, 2, 4}, {0, 4, 6}, {1, 6, 7}};
  EXPECT_EQ(plan, expected);
  EXPECT_EQ(interleave(5, 1, 2), (RingPlan{{0, 0, 5}}));
  EXPECT_EQ(interleave(2, 4, 1), (RingPlan{{0, 0, 1}, {1, 1, 2}}));
}

TEST(RingPlanTest, GivesEachRankItsPart) {
  const RingPlan plan = interleave(7, 2, 2);
  const LayerCut first = cut_of(plan, 0);
  EXPECT_TRUE(first.has_ends);
  EXPECT_EQ(first.layers, (std::vector<std::uint32_t>{0, 1, 4, 5}));
  EXPECT_EQ(first.window_ends, (std::vector<std::uint32_t>{2, 4}));
  const LayerCut second = cut_of(plan, 1);
  EXPECT_FALSE(second.has_ends);
  EXPECT_EQ(second.layers, (std::vector<std::uint32_t>{2, 3, 6}));
  EXPECT_EQ(second.window_ends, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_TRUE(cut_of(plan, 2).layers.empty());
}

}  // namespace
}  // namespace qsf
