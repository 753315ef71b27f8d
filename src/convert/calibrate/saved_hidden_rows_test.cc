// SPDX-License-Identifier: MIT
//
// Saved hidden rows come back as they were written, each window its own, in a folder for another
// process too; a disk that fails is told.

#include "convert/calibrate/saved_hidden_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "base/testing/temporary_path.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kWindows = 3;
constexpr std::size_t kFloats = 1500;  // no whole pages

class SavedHiddenRowsTest : public testing::Test {
 protected:
  const std::string path_ = testing_support::temporary_path("saved_hidden_rows");
  FaultyFileOps disk_;
};

TEST_F(SavedHiddenRowsTest, WindowsComeBack) {
  auto rows = SavedHiddenRows::create(path_, kWindows, kFloats);
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

TEST_F(SavedHiddenRowsTest, AFullDiskIsToldBeforeAnythingIsWritten) {
  disk_.plan.allocate_errno = ENOSPC;
  const auto rows = SavedHiddenRows::create(path_, kWindows, kFloats, disk_);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code(), StatusCode::kIo);
  EXPECT_THAT(std::string(rows.error().message()), HasSubstr("no room"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SavedHiddenRowsTest, WhatTheDiskRefusesIsTold) {
  auto rows = SavedHiddenRows::create(path_, kWindows, kFloats, disk_);
  ASSERT_TRUE(rows) << rows.error().message();
  const std::uint64_t second = SavedHiddenRows::memory_bytes(kFloats);
  ASSERT_TRUE((*rows)->write(0).ok());
  disk_.plan.write_error_at = second;
  EXPECT_EQ((*rows)->write(1).code(), StatusCode::kIo);
  disk_.plan.write_error_at = UINT64_MAX;
  ASSERT_TRUE((*rows)->write(1).ok());
  disk_.plan.read_error_at = second;
  EXPECT_EQ((*rows)->read(1).code(), StatusCode::kIo);
  EXPECT_TRUE((*rows)->read(0).ok());
}

class SavedHiddenRowsFolderTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<SavedHiddenRows> open(std::size_t n_windows = kWindows) {
    auto rows = SavedHiddenRows::open_in(folder_, n_windows, kFloats, disk_);
    EXPECT_TRUE(rows) << rows.error().message();
    return std::move(*rows);
  }
  // Runs from `first` to `last`, and writes `value` into every window.
  static void run(SavedHiddenRows& rows, std::uint32_t first, std::uint32_t begin,
                  std::uint32_t last, float value) {
    const auto started = rows.start(first);
    ASSERT_TRUE(started) << started.error().message();
    EXPECT_EQ(*started, begin);
    for (std::size_t i = 0; i < kWindows; ++i) {
      std::ranges::fill(rows.window(), value + static_cast<float>(i));
      ASSERT_TRUE(rows.write(i).ok());
    }
    const Status finished = rows.finish(last);
    ASSERT_TRUE(finished.ok()) << finished.message();
  }
  static void expect_window(SavedHiddenRows& rows, std::size_t index, float value) {
    ASSERT_TRUE(rows.read(index).ok());
    EXPECT_THAT(rows.window(), Each(value + static_cast<float>(index)));
  }
  const std::string folder_ = testing_support::temporary_path("saved_hidden_rows_folder");
  FaultyFileOps disk_;
};

TEST_F(SavedHiddenRowsFolderTest, RowsOfARunAreThereForTheNext) {
  run(*open(), 0, 0, 2, 10.0F);
  const auto rows = open();
  const auto begin = rows->start(2);
  ASSERT_TRUE(begin);
  EXPECT_EQ(*begin, 2U);
  expect_window(*rows, 2, 10.0F);
  expect_window(*rows, 0, 10.0F);
}

// A run that ends in the middle leaves the rows it began with, whatever it has written.
TEST_F(SavedHiddenRowsFolderTest, AnUnfinishedRunIsAsIfItHadNotBegun) {
  run(*open(), 0, 0, 2, 10.0F);
  run(*open(), 2, 2, 4, 20.0F);
  {
    const auto rows = open();
    const auto begin = rows->start(4);  // writes where those of layer 2 were
    ASSERT_TRUE(begin);
    EXPECT_EQ(*begin, 4U);
    std::ranges::fill(rows->window(), -1.0F);
    ASSERT_TRUE(rows->write(0).ok());
  }
  const auto rows = open();
  EXPECT_EQ(rows->start(3).value(), 0U) << "those of layer 2 are written over";
  // Nor does a run that needs none of them take the place of what is kept.
  std::ranges::fill(rows->window(), -1.0F);
  ASSERT_TRUE(rows->write(0).ok());
  EXPECT_EQ(rows->start(5).value(), 4U);
  expect_window(*rows, 0, 20.0F);
}

TEST_F(SavedHiddenRowsFolderTest, BeginsWithTheLastRowsInFrontOfALayer) {
  run(*open(), 0, 0, 2, 10.0F);
  run(*open(), 2, 2, 4, 20.0F);
  const auto rows = open();
  EXPECT_EQ(rows->start(3).value(), 2U);
  expect_window(*rows, 1, 10.0F);
  EXPECT_EQ(open()->start(1).value(), 0U);
}

TEST_F(SavedHiddenRowsFolderTest, FilesOfOtherSizesAreReplaced) {
  const auto bytes = [&] { return std::filesystem::file_size(folder_ + "/rows-a"); };
  for (const std::size_t n_windows : {kWindows, kWindows + 1, kWindows - 1}) {
    open(n_windows);
    EXPECT_EQ(bytes(), n_windows * SavedHiddenRows::memory_bytes(kFloats));
  }
}

// What stands in a place is held to what was written: a file that was damaged, or lost and made
// anew, is not taken for rows.
TEST_F(SavedHiddenRowsFolderTest, OtherRowsThanWereWrittenAreTold) {
  run(*open(), 0, 0, 2, 10.0F);
  run(*open(), 2, 2, 4, 20.0F);
  for (const char* place : {"/rows-a", "/rows-b"}) std::filesystem::remove(folder_ + place);
  const auto rows = open();
  ASSERT_EQ(rows->start(4).value(), 4U);
  const Status read = rows->read(1);
  EXPECT_EQ(read.code(), StatusCode::kCorrupt);
  EXPECT_THAT(std::string(read.message()), HasSubstr("remove " + folder_ + "/rows and run again"));
  std::filesystem::remove(folder_ + "/rows");
  EXPECT_EQ(open()->start(4).value(), 0U);
}

TEST_F(SavedHiddenRowsFolderTest, DamageAndAFullDiskAreTold) {
  run(*open(), 0, 0, 2, 10.0F);
  {
    const auto rows = open();
    ASSERT_TRUE(rows->start(2));
    disk_.plan.sync_errno = ENOSPC;
    EXPECT_EQ(rows->finish(4).code(), StatusCode::kIo);
    disk_.plan.sync_errno = 0;
  }
  EXPECT_EQ(open()->start(4).value(), 2U);
  const std::string state = folder_ + "/rows";
  for (const std::uintmax_t n_bytes : {15U, 64U}) {
    std::filesystem::resize_file(state, n_bytes);
    const auto rows = SavedHiddenRows::open_in(folder_, kWindows, kFloats);
    ASSERT_FALSE(rows);
    EXPECT_EQ(rows.error().code(), StatusCode::kCorrupt);
  }
}

}  // namespace
}  // namespace qsf
