// SPDX-License-Identifier: MIT
//
// SpilledKvStore: the KV cache in a file, of which memory holds two layers.
//
// The file is laid out by layer and then by page, so that a layer's pages of a sequence are
// neighbours. Memory has two windows, each with room for every page of one layer in the layout of
// the file. While a pass computes with the layer in one window, a thread reads the next layer into
// the other. When a layer is released, its pages with new rows are written and the window is filled
// with the layer after the next. The last two releases of a pass read the first two layers for the
// next pass. Writes and reads run in the order of their requests, so a read returns what was
// written. Reasons: docs/decisions/017-kv-spill.md.

#ifndef QSF_KV_SPILLED_KV_STORE_H_
#define QSF_KV_SPILLED_KV_STORE_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/async_reader.h"
#include "io/scratch_file.h"
#include "kv/kv_page_store.h"
#include "platform/thread.h"

namespace qsf {

// Counters since the store was opened.
struct KvSpillStats {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t wait_ns = 0;  // of passes, for the file
};

class SpilledKvStore final : public KvPageStore {
 public:
  // Bytes of the file, of the windows in memory, and of the tables beside them.
  static std::uint64_t file_bytes(const KvShape& shape, std::uint32_t n_pages) noexcept;
  static std::uint64_t region_bytes(const KvShape& shape, std::uint32_t n_pages) noexcept;
  static std::uint64_t heap_bytes(std::uint32_t n_pages) noexcept;

  // Starts the thread that reads and writes.
  // Shapes    region [region_bytes()], file [file_bytes()]
  // Requires  region zeroed, 64-byte aligned, outliving the store
  // Fails     kIo when the file gives no queue; kOutOfBudget without a thread
  static Result<std::unique_ptr<SpilledKvStore>> open(const KvShape& shape, std::uint32_t n_pages,
                                                      std::unique_ptr<ScratchFile> file,
                                                      MutableByteSpan region);
  ~SpilledKvStore() override;
  SpilledKvStore(const SpilledKvStore&) = delete;
  SpilledKvStore& operator=(const SpilledKvStore&) = delete;

  const KvShape& shape() const noexcept override { return shape_; }
  void begin_pass(std::span<const Row> rows, const KvCache& kv,
                  const std::atomic<bool>* cancel) override;
  KvLayerPages acquire_layer(std::uint32_t layer) override;
  void release_layer(std::uint32_t layer) override;
  void copy_page(std::uint32_t from_page, std::uint32_t to_page) override;
  void move_rows(std::span<const RowMove> moves) override;
  Status end_pass() override;
  Status status() const override;

  // How the file is read.
  const ReadDevice& device() const noexcept { return file_->device(); }
  KvSpillStats stats() const;

 private:
  static constexpr std::uint32_t kNoLayer = UINT32_MAX;

  // The use of a page by the pass.
  enum PageUse : std::uint8_t {
    kHasRows = 1,   // of passes before
    kIsStored = 2,  // gets rows
  };
  // Layer and pages are changed by jobs, and by the computing thread while there are none.
  struct Window {
    std::byte* base = nullptr;
    std::uint32_t layer = kNoLayer;
    std::vector<std::uint8_t> holds;  // [pages]; 1: as the file has it
    unsigned n_jobs = 0;              // submitted and not done
  };
  enum class Work : std::uint8_t { kRead, kReadForNextPass, kWrite, kCopy, kMove };
  struct Job {
    Work work = Work::kRead;
    unsigned window = 0;
    std::uint32_t layer = kNoLayer;  // that is read into the window
    std::uint32_t from_page = 0;     // of a copy
    std::uint32_t to_page = 0;
  };
  // Neighbouring pages.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t n = 0;
  };

  SpilledKvStore(const KvShape& shape, std::uint32_t n_pages, std::unique_ptr<ScratchFile> file,
                 MutableByteSpan region);
  static std::uint64_t page_stride(const KvShape& shape) noexcept;

  // Of the thread that computes.
  void note_pages(std::span<const Row> rows, const KvCache& kv);
  void submit(const Job& job);
  template <typename Condition>
  bool wait_until(const Condition& done);

  // Of the thread that reads and writes.
  static void* run_thread(void* self);
  void run();
  Status do_job(const Job& job);
  Status read_pages(Window& window, std::uint32_t layer, unsigned uses);
  Status finish_read(Window& window);
  Status write_pages(Window& window);
  void copy_or_move(const Job& job);
  Status copy_layers(std::uint32_t from_page, std::uint32_t to_page);
  Status move_in_layers();
  template <typename Wanted, typename Action>
  void for_runs(const Wanted& wanted, const Action& action);
  std::uint64_t file_offset(std::uint32_t layer, std::uint32_t page) const noexcept;
  MutableByteSpan bytes_of(const Window& window, Run run) const noexcept;

  const KvShape shape_;
  const std::uint32_t n_pages_;
  const std::uint64_t stride_;  // from page to page, in the file and in a window
  const std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<AsyncReader> queue_;
  Thread thread_;

  std::vector<Window> windows_;          // two, or one of a model of one layer
  std::vector<std::uint8_t> page_uses_;  // [pages], of PageUse; changed while there are no jobs
  std::vector<std::uint8_t> is_lost_;    // [pages]; copies and moves that failed; the same
  Status lost_;                          // their last error; likewise
  std::uint64_t bytes_read_ = 0;         // of the thread that reads and writes
  std::uint64_t bytes_written_ = 0;
  unsigned next_window_ = 0;  // of the layer to be acquired next
  std::uint32_t acquired_ = kNoLayer;
  bool in_pass_ = false;
  const std::atomic<bool>* cancel_ = nullptr;  // of the pass
  bool is_cancelled_ = false;                  // the pass, in one of its waits

  mutable std::mutex mutex_;  // holds all below, and the jobs of windows
  std::condition_variable changed_;
  std::array<Job, 8> jobs_{};  // a ring
  unsigned first_job_ = 0;
  unsigned n_jobs_ = 0;
  unsigned n_writes_ = 0;  // of the jobs
  // Of the job that moves rows; changed while there is none.
  std::array<RowMove, kMaxDrafts> moves_{};
  std::uint32_t n_moves_ = 0;
  bool is_stopping_ = false;
  Status status_;
  KvSpillStats stats_;
};

}  // namespace qsf

#endif  // QSF_KV_SPILLED_KV_STORE_H_
