// SPDX-License-Identifier: MIT
//
// What a path names, without leaving its pages in memory.

#include "tools/common/model_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace qsf_tools {
namespace {

// A file of the build folder, whose pages are on the disk; removed at the end.
class FileOnDisk {
 public:
  explicit FileOnDisk(const std::string& content) {
    handle_ = ::mkstemp(path_);
    EXPECT_GE(handle_, 0);
    EXPECT_EQ(::write(handle_, content.data(), content.size()),
              static_cast<ssize_t>(content.size()));
    EXPECT_EQ(::fsync(handle_), 0);
    EXPECT_EQ(::posix_fadvise(handle_, 0, 0, POSIX_FADV_DONTNEED), 0);
    n_bytes_ = content.size();
  }
  ~FileOnDisk() {
    ::close(handle_);
    ::unlink(path_);
  }
  FileOnDisk(const FileOnDisk&) = delete;
  FileOnDisk& operator=(const FileOnDisk&) = delete;

  std::string path() const { return path_; }
  std::size_t n_cached_pages() const {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const mapping = ::mmap(nullptr, n_bytes_, PROT_READ, MAP_SHARED, handle_, 0);
    EXPECT_NE(mapping, MAP_FAILED);
    std::vector<unsigned char> cached((n_bytes_ + page - 1) / page);
    EXPECT_EQ(::mincore(mapping, n_bytes_, cached.data()), 0);
    ::munmap(mapping, n_bytes_);
    std::size_t n = 0;
    for (const unsigned char of_page : cached) n += of_page & 1U;
    return n;
  }

 private:
  char path_[32] = "model_cache_test.XXXXXX";
  int handle_ = -1;
  std::size_t n_bytes_ = 0;
};

TEST(ModelCacheTest, LooksAtTheFirstPageAlone) {
  const FileOnDisk gguf("GGUF" + std::string(1 << 20, 'x'));
  if (gguf.n_cached_pages() != 0) GTEST_SKIP() << "this file system keeps its files in memory";
  EXPECT_TRUE(is_gguf_path(gguf.path()));
  EXPECT_LE(gguf.n_cached_pages(), 1U);
}

TEST(ModelCacheTest, TellsGgufByItsFirstBytes) {
  EXPECT_TRUE(is_gguf_path("missing.gguf"));
  EXPECT_FALSE(is_gguf_path("missing"));
  EXPECT_FALSE(is_gguf_path("."));
  const FileOnDisk shorter("GGU");
  EXPECT_FALSE(is_gguf_path(shorter.path()));
  const FileOnDisk qsf("QSF1....");
  EXPECT_FALSE(is_gguf_path(qsf.path()));
}

}  // namespace
}  // namespace qsf_tools
