// SPDX-License-Identifier: MIT
//
// Files of a page: reads go to JavaScript, which answers at once (web/worker.js): by ranges of
// HTTP, from the browser's private files, or from node's. With threads there is a Worker that reads
// (io/page_reader_wasm.cc). Nothing can be written.

#include <cerrno>
#include <limits>

#include "io/file_ops.h"

// Of web/imports.js, or of io/page_reader_wasm.cc. Results are as in FileOps; sizes and offsets,
// which pass 32 bits, are doubles.
extern "C" {
int qsf_js_open(const char* path);
double qsf_js_size(int handle);
int qsf_js_read(int handle, void* to, int n_bytes, double offset);
int qsf_js_close(int handle);
}

namespace qsf {
namespace {

class WasmFileOps final : public FileOps {
 public:
  int open_read(const std::string& path) override { return ::qsf_js_open(path.c_str()); }
  int create_new(const std::string&) override { return -EROFS; }
  int create_unnamed(const std::string&) override { return -EROFS; }
  int give_name(int, const std::string&) override { return -EROFS; }
  int create_scratch(const std::string&) override { return -EROFS; }
  PathKind path_kind(const std::string& path) override {
    const int handle = open_read(path);
    if (handle < 0) return PathKind::kMissing;
    close(handle);
    return PathKind::kRegular;
  }
  int check_regular(int) override { return 0; }
  std::int64_t file_bytes(int handle) override {
    return static_cast<std::int64_t>(::qsf_js_size(handle));
  }
  int reopen(int, bool) override { return -ENOTSUP; }
  int reopen_for_writing(int, bool) override { return -EROFS; }
  FileStorage storage(int) override { return {.direct_alignment = 0, .is_remote = true}; }
  int advise(int, std::uint64_t, std::uint64_t, FileAdvice) override { return 0; }
  int map(int, std::uint64_t, ByteSpan&) override { return -ENOTSUP; }
  void unmap(ByteSpan) override {}
  int advise_mapping(ByteSpan, FileAdvice) override { return -ENOTSUP; }
  std::string_view ring_name() const noexcept override { return "reading Worker"; }
  int open_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) override {
    return open_page_ring(depth, ring);
  }
  std::int64_t read_at(int handle, MutableByteSpan to, std::uint64_t offset) override {
    if (offset > std::uint64_t{1} << std::numeric_limits<double>::digits) return 0;
    return ::qsf_js_read(handle, to.data(), static_cast<int>(to.size()),
                         static_cast<double>(offset));
  }
  std::int64_t write_at(int, ByteSpan, std::uint64_t) override { return -EROFS; }
  int allocate(int, std::uint64_t) override { return -EROFS; }
  int resize(int, std::uint64_t) override { return -EROFS; }
  int sync(int) override { return -EROFS; }
  int close(int handle) override { return ::qsf_js_close(handle); }
  int rename(const std::string&, const std::string&) override { return -EROFS; }
  int remove(const std::string&) override { return -EROFS; }
  int sync_directory_of(const std::string&) override { return -EROFS; }
};

}  // namespace

FileOps& system_file_ops() noexcept {
  static WasmFileOps ops;
  return ops;
}

}  // namespace qsf
