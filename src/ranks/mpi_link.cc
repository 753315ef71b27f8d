// SPDX-License-Identifier: MIT

#include "ranks/mpi_link.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "platform/thread.h"
#include "ranks/started_ranks.h"

namespace qsf {
namespace {

constexpr int kDataTag = 1;
constexpr int kBeatTag = 2;
constexpr int kHostBytes = MPI_MAX_PROCESSOR_NAME;
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kBeatNs = kSecond / 2;
constexpr std::uint64_t kSilenceNs = 5 * kSecond;
constexpr std::uint64_t kStandstillNs = 5 * kSecond;  // and four times the longest step
// A message is likely within this time of the last one; then MPI is asked more often.
constexpr std::uint64_t kHotNs = kSecond / 50;
constexpr std::chrono::microseconds kHotSleep(50);
constexpr std::chrono::microseconds kIdleSleep(1000);
constexpr std::chrono::milliseconds kWatchSleep(200);
constexpr int kFaultExit = 7;

class MpiLink final : public Link {
 public:
  MpiLink(int rank, std::vector<std::string> hosts)
      : rank_(static_cast<unsigned>(rank)), hosts_(std::move(hosts)), heard_(hosts_.size()) {
    const std::uint64_t now = monotonic_ns();
    for (auto& heard : heard_) heard.store(now, std::memory_order_relaxed);
  }
  ~MpiLink() override { QSF_CHECK(!talker_.is_started() && !watcher_.is_started()); }

  Status start() {
    const auto talk = [](void* self) -> void* {
      static_cast<MpiLink*>(self)->talk();
      return nullptr;
    };
    const auto watch = [](void* self) -> void* {
      static_cast<MpiLink*>(self)->watch();
      return nullptr;
    };
    if (talker_.start(talk, this) == 0 && watcher_.start(watch, this) == 0) return ok_status();
    return io_error("rank %u: the system refuses a thread", rank_);
  }

  unsigned rank() const noexcept override { return rank_; }
  unsigned n_ranks() const noexcept override { return static_cast<unsigned>(hosts_.size()); }
  std::string host_of(unsigned rank) const override { return hosts_[rank]; }

  Status send(unsigned to, std::vector<std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    outbox_.push_back({static_cast<int>(to), kDataTag, std::move(bytes)});
    return ok_status();
  }

  Result<std::optional<LinkMessage>> receive(std::chrono::milliseconds at_most) override {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, at_most, [this] { return !inbox_.empty(); });
    if (inbox_.empty()) return std::optional<LinkMessage>();
    LinkMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    return std::optional(std::move(message));
  }

  void count_progress() noexcept override {
    const std::uint64_t now = monotonic_ns();
    const std::uint64_t before = progress_ns_.exchange(now, std::memory_order_relaxed);
    if (!working_.load(std::memory_order_relaxed)) return;
    const std::uint64_t step = now - before;
    if (step > longest_ns_.load(std::memory_order_relaxed)) {
      longest_ns_.store(step, std::memory_order_relaxed);
    }
  }
  void begin_work() noexcept override {
    progress_ns_.store(monotonic_ns(), std::memory_order_relaxed);
    working_.store(true, std::memory_order_release);
  }
  void end_work() noexcept override {
    count_progress();
    working_.store(false, std::memory_order_release);
  }

  void abandon(const std::string& reason) override { end_run(rank_, reason.c_str()); }

  void leave() override {
    leaving_.store(true, std::memory_order_release);
    talker_.join();
    watcher_.join();
    MPI_Finalize();  // by the thread that called MPI_Init, as the standard has it
  }

 private:
  struct Outgoing {
    int to;
    int tag;
    std::vector<std::byte> bytes;
  };
  struct Sending {
    MPI_Request request;
    std::vector<std::byte> bytes;
  };
  struct Receiving {
    MPI_Request request;
    MPI_Status status;
    std::vector<std::byte> bytes;
  };

  void talk() {
    while (!fault_.load(std::memory_order_acquire)) {
      const bool leaving = leaving_.load(std::memory_order_acquire);
      bool moved = start_sends();
      moved = finish_sends() || moved;
      moved = start_receives() || moved;
      moved = finish_receives() || moved;
      beat();
      const std::uint64_t now = monotonic_ns();
      if (moved) last_moved_ns_ = now;
      if (leaving && sending_.empty() && !moved) break;
      if (!moved) {
        std::this_thread::sleep_for(now - last_moved_ns_ < kHotNs ? kHotSleep : kIdleSleep);
      }
    }
    if (fault_.load(std::memory_order_acquire)) {
      MPI_Abort(MPI_COMM_WORLD, kFaultExit);
    } else {
      finish();
    }
    left_.store(true, std::memory_order_release);
  }

  // What still comes is taken, so that no rank waits for this one; the barrier does not spin.
  void finish() {
    MPI_Request barrier;
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    int done = 0;
    while (done == 0 && !fault_.load(std::memory_order_acquire)) {
      MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
      start_receives();
      finish_receives();
      beat();
      finish_sends();
      if (done == 0) std::this_thread::sleep_for(kIdleSleep);
    }
  }

  bool start_sends() {
    std::deque<Outgoing> taken;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(outbox_);
    }
    for (Outgoing& message : taken) post(std::move(message));
    return !taken.empty();
  }

  void post(Outgoing message) {
    Sending& sending = sending_.emplace_back();
    sending.bytes = std::move(message.bytes);
    MPI_Isend(sending.bytes.data(), static_cast<int>(sending.bytes.size()), MPI_BYTE, message.to,
              message.tag, MPI_COMM_WORLD, &sending.request);
  }

  bool finish_sends() {
    const auto complete = [](Sending& sending) {
      int done = 0;
      MPI_Test(&sending.request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    };
    const auto rest = std::remove_if(sending_.begin(), sending_.end(), complete);
    const bool moved = rest != sending_.end();
    sending_.erase(rest, sending_.end());
    return moved;
  }

  bool start_receives() {
    bool moved = false;
    while (true) {
      int found = 0;
      MPI_Message message;
      MPI_Status status;
      MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &message, &status);
      if (found == 0) return moved;
      int n_bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &n_bytes);
      Receiving& receiving = receiving_.emplace_back();
      receiving.status = status;
      receiving.bytes.resize(static_cast<std::size_t>(n_bytes));
      MPI_Imrecv(receiving.bytes.data(), n_bytes, MPI_BYTE, &message, &receiving.request);
      moved = true;
    }
  }

  // In the order of their arrival, which is that of sending for each rank.
  bool finish_receives() {
    bool moved = false;
    while (!receiving_.empty()) {
      Receiving& first = receiving_.front();
      int done = 0;
      MPI_Test(&first.request, &done, MPI_STATUS_IGNORE);
      if (done == 0) break;
      const auto from = static_cast<unsigned>(first.status.MPI_SOURCE);
      heard_[from].store(monotonic_ns(), std::memory_order_relaxed);
      if (first.status.MPI_TAG == kDataTag) {
        const std::lock_guard lock(mutex_);
        inbox_.push_back({from, std::move(first.bytes)});
        arrived_.notify_one();
        moved = true;
      }
      receiving_.pop_front();
    }
    return moved;
  }

  void beat() {
    const std::uint64_t now = monotonic_ns();
    if (now - last_beat_ns_ < kBeatNs) return;
    last_beat_ns_ = now;
    for (unsigned rank = 0; rank < n_ranks(); ++rank) {
      if (rank != rank_) post({static_cast<int>(rank), kBeatTag, {}});
    }
  }

  void watch() {
    std::uint64_t last = monotonic_ns();
    while (!left_.load(std::memory_order_acquire)) {
      std::this_thread::sleep_for(kWatchSleep);
      const std::uint64_t now = monotonic_ns();
      // After a stop of this process it is the others that know better.
      if (now - last > kSecond) forgive(now);
      last = now;
      for (unsigned rank = 0; rank < n_ranks(); ++rank) {
        const std::uint64_t heard = heard_[rank].load(std::memory_order_relaxed);
        if (rank == rank_ || now < heard + kSilenceNs) continue;
        end_run(rank, "silent for 5 seconds: killed, stopped, or its network is down");
      }
      const std::uint64_t longest = longest_ns_.load(std::memory_order_relaxed);
      const std::uint64_t progress = progress_ns_.load(std::memory_order_relaxed);
      if (working_.load(std::memory_order_acquire) &&
          now > progress + kStandstillNs + 4 * longest) {
        end_run(rank_, "no layer was computed in four times the longest time so far and 5 seconds");
      }
    }
  }

  void forgive(std::uint64_t now) {
    for (auto& heard : heard_) heard.store(now, std::memory_order_relaxed);
    progress_ns_.store(now, std::memory_order_relaxed);
  }

  [[noreturn]] void end_run(unsigned rank, const char* reason) {
    std::fprintf(stderr, "qsf: rank %u on %s: %s\n", rank, hosts_[rank].c_str(), reason);
    std::fflush(stderr);
    fault_.store(true, std::memory_order_release);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::_Exit(kFaultExit);
  }

  const unsigned rank_;
  const std::vector<std::string> hosts_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<LinkMessage> inbox_;
  std::deque<Outgoing> outbox_;
  // Of the thread that talks.
  std::deque<Sending> sending_;
  std::deque<Receiving> receiving_;
  std::uint64_t last_moved_ns_ = 0;
  std::uint64_t last_beat_ns_ = 0;
  std::vector<std::atomic<std::uint64_t>> heard_;  // by rank
  std::atomic<std::uint64_t> progress_ns_{0};
  std::atomic<std::uint64_t> longest_ns_{0};
  std::atomic<bool> working_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> fault_{false};
  std::atomic<bool> left_{false};
  Thread talker_;
  Thread watcher_;
};

// Unless the user chose otherwise: TCP even on one host takes less memory, and a waiting thread
// gives way. Read by MPI_Init.
void choose_transport() {
  setenv("OMPI_MCA_pml", "ob1", 0);
  setenv("OMPI_MCA_btl", "tcp,self", 0);
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

}  // namespace

Result<std::unique_ptr<Link>> join_ranks() {
  const unsigned n_started = started_ranks();
  if (n_started <= 1) return std::unique_ptr<Link>();
  choose_transport();
  int threads = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads) != MPI_SUCCESS) {
    return io_error("MPI cannot start");
  }
  int n_ranks = 1;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (threads < MPI_THREAD_SERIALIZED || n_ranks != static_cast<int>(n_started)) {
    MPI_Finalize();
    if (threads < MPI_THREAD_SERIALIZED) return unsupported("this MPI serves one thread only");
    return unsupported(
        "started as one of %u processes, but MPI sees %d; start them with mpirun, inside salloc or "
        "sbatch under Slurm",
        n_started, n_ranks);
  }
  char name[kHostBytes] = {};
  int n_bytes = 0;
  MPI_Get_processor_name(name, &n_bytes);
  std::vector<char> names(static_cast<std::size_t>(n_ranks) * kHostBytes);
  MPI_Allgather(name, kHostBytes, MPI_CHAR, names.data(), kHostBytes, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> hosts;
  for (int i = 0; i < n_ranks; ++i) {
    hosts.emplace_back(names.data() + static_cast<std::size_t>(i) * kHostBytes);
  }
  auto link = std::make_unique<MpiLink>(rank, std::move(hosts));
  QSF_RETURN_IF_ERROR(link->start());
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace qsf
