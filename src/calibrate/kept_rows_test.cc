// SPDX-License-Identifier: MIT
//
// Kept rows come back as they were written, each window its own; a disk that fails is told.

#include "calibrate/kept_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>

#include "io/faulty_file.h"

namespace qsf {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kWindows = 3;
constexpr std::size_t kFloats = 1500;  // no whole pages

class KeptRowsTest : public testing::Test {
 protected:
  const std::string path_ = testing::TempDir() + "qsf_kept_rows";
  FaultyFileOps disk_;
};

TEST_F(KeptRowsTest, WindowsComeBack) {
  auto rows = KeptRows::create(path_, kWindows, kFloats);
  ASSERT_TRUE(rows) << rows.error().message();
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_EQ((*rows)->window().size(), kFloats);
  for (const std::size_t i : {2U, 0U, 1U}) {
    std::ranges::fill((*rows)->window(), static_cast<float>(i) + 0.5F);
    ASSERT_TRUE((*rows)->write(i).ok());
  }
  for (const std::size_t i : {0U, 2U, 1U, 1U}) {
    std::ranges::fill((*rows)->window(), -1.0F);
    const Status read = (*rows)->read(i);
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_THAT((*rows)->window(), Each(static_cast<float>(i) + 0.5F));
  }
}

TEST_F(KeptRowsTest, AFullDiskIsToldBeforeAnythingIsWritten) {
  disk_.plan.allocate_errno = ENOSPC;
  const auto rows = KeptRows::create(path_, kWindows, kFloats, disk_);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code(), StatusCode::kIo);
  EXPECT_THAT(std::string(rows.error().message()), HasSubstr("no room"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(KeptRowsTest, WhatTheDiskRefusesIsTold) {
  auto rows = KeptRows::create(path_, kWindows, kFloats, disk_);
  ASSERT_TRUE(rows) << rows.error().message();
  const std::uint64_t second = KeptRows::memory_bytes(kFloats);
  ASSERT_TRUE((*rows)->write(0).ok());
  disk_.plan.write_error_at = second;
  EXPECT_EQ((*rows)->write(1).code(), StatusCode::kIo);
  disk_.plan.write_error_at = UINT64_MAX;
  ASSERT_TRUE((*rows)->write(1).ok());
  disk_.plan.read_error_at = second;
  EXPECT_EQ((*rows)->read(1).code(), StatusCode::kIo);
  EXPECT_TRUE((*rows)->read(0).ok());
}

}  // namespace
}  // namespace qsf
