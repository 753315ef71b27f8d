// SPDX-License-Identifier: MIT
//
// What a path names, without leaving its pages in memory.

#include "tools/common/model_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

namespace qsf_tools {
namespace {

// A file whose pages are on the disk alone.
class FileOnDisk {
 public:
  explicit FileOnDisk(const std::string& content)
      : path_(testing::TempDir() + "qsf.model_cache_test." + std::to_string(::getpid())),
        handle_(::open(path_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600)),
        n_bytes_(content.size()) {
    EXPECT_EQ(::write(handle_, content.data(), n_bytes_), static_cast<ssize_t>(n_bytes_));
    EXPECT_EQ(::fsync(handle_), 0);
    EXPECT_EQ(::posix_fadvise(handle_, 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  ~FileOnDisk() {
    ::close(handle_);
    ::unlink(path_.c_str());
  }
  FileOnDisk(const FileOnDisk&) = delete;
  FileOnDisk& operator=(const FileOnDisk&) = delete;

  const std::string& path() const { return path_; }
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
  std::string path_;
  int handle_;
  std::size_t n_bytes_;
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
  EXPECT_FALSE(is_gguf_path(FileOnDisk("GGU").path()));
  EXPECT_FALSE(is_gguf_path(FileOnDisk("QSF1....").path()));
  EXPECT_TRUE(is_gguf_path(FileOnDisk("GGUF").path()));
}

}  // namespace
}  // namespace qsf_tools
