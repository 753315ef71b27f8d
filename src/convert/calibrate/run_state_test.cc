// SPDX-License-Identifier: MIT
//
// The state of a run comes back as it was written; every flipped bit and every other length is
// told.

#include "convert/calibrate/collect_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/testing/temporary_path.h"
#include "io/file.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::HasSubstr;

ModelSpec tiny_spec() {
  ModelSpec spec;
  spec.n_layers = 2;
  spec.hidden = 4;
  spec.n_heads = 2;
  spec.head_dim = 2;
  spec.ffn = 6;
  return spec;
}

RunState some_state() {
  RunState state(tiny_spec(), 3, 7);
  state.n_summed = 2;
  state.n_skipped = 1;
  state.losses = {1.5, 2.5, 0.0};
  state.skip_losses = {0.25, 0.0};
  const std::vector<float> row = {1.0F, 2.0F, 3.0F, 4.0F};
  state.sums.take_input({ProductInput::kQkv, 1}, row);
  state.sums.take_layer(0, row, row);
  return state;
}

std::vector<std::byte> bytes_in(RunState& state, const std::string& path) {
  const Status written = state.write(path);
  EXPECT_TRUE(written.ok()) << written.message();
  const auto file = File::open(path);
  EXPECT_TRUE(file) << file.error().message();
  return *file->read_all(1 << 20);
}

class RunStateTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  void overwrite(ByteSpan bytes) const { std::ofstream(path_, std::ios::binary) << as_text(bytes); }
  const std::string path_ = testing_support::temporary_path("run_state");
};

TEST_F(RunStateTest, ComesBack) {
  RunState state = some_state();
  const std::vector<std::byte> bytes = bytes_in(state, path_);
  RunState again(tiny_spec(), 3, 7);
  const Status read = again.read(path_);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(again.n_summed, 2U);
  EXPECT_EQ(again.n_skipped, 1U);
  EXPECT_EQ(again.losses, state.losses);
  EXPECT_EQ(again.skip_losses, state.skip_losses);
  EXPECT_EQ(again.sums.n_rows({ProductInput::kQkv, 1}), 1U);
  EXPECT_EQ(again.sums.mean_squares({ProductInput::kQkv, 1}),
            (std::vector<float>{1.0F, 4.0F, 9.0F, 16.0F}));
  EXPECT_EQ(again.sums.mean_cosine(0), state.sums.mean_cosine(0));
  EXPECT_EQ(bytes_in(again, path_), bytes);
}

TEST_F(RunStateTest, WithoutAFileItIsAsItWas) {
  RunState state = some_state();
  ASSERT_TRUE(state.read(path_).ok());
  EXPECT_EQ(state.n_summed, 2U);
}

TEST_F(RunStateTest, DamageAndOtherRunsAreTold) {
  RunState state = some_state();
  const std::vector<std::byte> bytes = bytes_in(state, path_);
  const auto expect_refused = [&](RunState into) {
    const Status read = into.read(path_);
    EXPECT_EQ(read.code(), StatusCode::kCorrupt);
    EXPECT_THAT(std::string(read.message()), HasSubstr("remove this file"));
  };
  expect_refused(RunState(tiny_spec(), 4, 7));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x10};
    overwrite(damaged);
    expect_refused(RunState(tiny_spec(), 3, 7));
  }
  for (const std::size_t n : {std::size_t{0}, bytes.size() - 1}) {
    overwrite(ByteSpan(bytes).first(n));
    expect_refused(RunState(tiny_spec(), 3, 7));
  }
}

TEST_F(RunStateTest, AFullDiskLeavesTheOlderFile) {
  RunState state = some_state();
  const std::vector<std::byte> bytes = bytes_in(state, path_);
  state.n_summed = 3;
  FaultyFileOps disk({.sync_errno = ENOSPC});
  EXPECT_EQ(state.write(path_, disk).code(), StatusCode::kIo);
  RunState again(tiny_spec(), 3, 7);
  ASSERT_TRUE(again.read(path_).ok());
  EXPECT_EQ(again.n_summed, 2U);
}

}  // namespace
}  // namespace qsf
