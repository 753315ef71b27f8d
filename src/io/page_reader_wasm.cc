// SPDX-License-Identifier: MIT
//
// Files of a module with threads: a Worker of their own (web/reader.js) reads them while others
// compute. What is asked of it lies in a mailbox in the module's memory, whose layout
// web/mailbox.js repeats; who asks waits for the answer there. Without threads there is no ring.

#include <cerrno>

#include "io/read_ring.h"

#ifdef __EMSCRIPTEN_PTHREADS__

#include <emscripten/emscripten.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

namespace qsf {
namespace {

constexpr std::size_t kSlots = 40;
constexpr unsigned kMaxRingDepth = 32;  // which leaves some for threads that wait for one read

enum class Call : std::uint32_t { kOpen = 1, kSize, kRead, kClose };
enum class State : std::uint32_t { kFree, kAsked, kAnswered };

struct Slot {
  std::atomic<State> state{State::kFree};
  Call call{};
  std::uint32_t number = 0;  // calls are answered in the order of their numbers
  int handle = 0;
  std::uint32_t address = 0;  // of the path, or where bytes go
  std::uint32_t n_bytes = 0;
  double offset = 0;
  double result = 0;
};

struct Mailbox {
  std::atomic<int> n_asked{0};     // the reader waits for it to change
  std::atomic<int> n_answered{0};  // and who asked for this one
  std::atomic<int> stop{0};
  std::uint32_t n_slots = kSlots;
  std::array<Slot, kSlots> slots;
  std::array<char, 1024> description{};  // of the reader, as JSON
  std::array<char, 1024> error{};        // of the last call that failed
};
static_assert(sizeof(Slot) == 40 && offsetof(Mailbox, slots) == 16);

Mailbox mailbox;
std::mutex asking;  // guards free slots and the numbers

int* word(std::atomic<int>& value) noexcept {
  return reinterpret_cast<int*>(&value);
}

void wait_for_answers(int seen) noexcept {
  __builtin_wasm_memory_atomic_wait32(word(mailbox.n_answered), seen, -1);
}

// Returns null where all slots are taken.
Slot* ask(Call call, int handle, const void* address, std::size_t n_bytes, double offset) {
  const std::lock_guard lock(asking);
  for (Slot& slot : mailbox.slots) {
    if (slot.state.load() != State::kFree) continue;
    slot.call = call;
    slot.number = static_cast<std::uint32_t>(mailbox.n_asked.load());
    slot.handle = handle;
    slot.address = reinterpret_cast<std::uintptr_t>(address);
    slot.n_bytes = static_cast<std::uint32_t>(n_bytes);
    slot.offset = offset;
    slot.state.store(State::kAsked);
    mailbox.n_asked.fetch_add(1);
    __builtin_wasm_memory_atomic_notify(word(mailbox.n_asked), 1);
    return &slot;
  }
  return nullptr;
}

double take_answer(Slot& slot) noexcept {
  const double result = slot.result;
  slot.state.store(State::kFree);
  return result;
}

double call(Call name, int handle, const void* address, std::size_t n_bytes, double offset) {
  for (;;) {
    const int seen = mailbox.n_answered.load();
    Slot* slot = ask(name, handle, address, n_bytes, offset);
    if (slot == nullptr) {
      wait_for_answers(seen);
      continue;
    }
    for (int last = seen; slot->state.load() != State::kAnswered;) {
      wait_for_answers(last);
      last = mailbox.n_answered.load();
    }
    return take_answer(*slot);
  }
}

class PageRing final : public ReadRing {
 public:
  explicit PageRing(unsigned depth) : reads_(depth) {}
  ~PageRing() override {
    RingDone ignored;
    while (n_in_flight_ > 0) wait(ignored);
  }

  int register_memory(MutableByteSpan) override { return 0; }

  int submit(int handle, MutableByteSpan to, std::uint64_t offset, std::uint64_t tag) override {
    for (Read& read : reads_) {
      if (read.slot != nullptr) continue;
      read.slot = ask(Call::kRead, handle, to.data(), to.size(), static_cast<double>(offset));
      if (read.slot == nullptr) return -EAGAIN;
      read.tag = tag;
      ++n_in_flight_;
      return 0;
    }
    return -EBUSY;
  }

  int wait(RingDone& done) override {
    for (;;) {
      const int seen = mailbox.n_answered.load();
      for (Read& read : reads_) {
        if (read.slot == nullptr || read.slot->state.load() != State::kAnswered) continue;
        done = {.tag = read.tag, .result = static_cast<std::int64_t>(take_answer(*read.slot))};
        read.slot = nullptr;
        --n_in_flight_;
        return 0;
      }
      wait_for_answers(seen);
    }
  }

 private:
  struct Read {
    Slot* slot = nullptr;
    std::uint64_t tag = 0;
  };
  std::vector<Read> reads_;
  unsigned n_in_flight_ = 0;
};

}  // namespace

int open_page_ring(unsigned depth, std::unique_ptr<ReadRing>& ring) {
  if (depth > kMaxRingDepth) return -EINVAL;
  ring = std::make_unique<PageRing>(depth);
  return 0;
}

}  // namespace qsf

// What web/imports.js has in the module without threads (io/file_ops_wasm.cc).
extern "C" {

int qsf_js_open(const char* path) {
  return static_cast<int>(qsf::call(qsf::Call::kOpen, 0, path, 0, 0));
}

double qsf_js_size(int handle) {
  return qsf::call(qsf::Call::kSize, handle, nullptr, 0, 0);
}

int qsf_js_read(int handle, void* to, int n_bytes, double offset) {
  return static_cast<int>(
      qsf::call(qsf::Call::kRead, handle, to, static_cast<std::size_t>(n_bytes), offset));
}

int qsf_js_close(int handle) {
  return static_cast<int>(qsf::call(qsf::Call::kClose, handle, nullptr, 0, 0));
}

EMSCRIPTEN_KEEPALIVE void* qsf_page_mailbox() {
  return &qsf::mailbox;
}

}  // extern "C"

#else

namespace qsf {

int open_page_ring(unsigned, std::unique_ptr<ReadRing>&) {
  return -ENOSYS;
}

}  // namespace qsf

#endif
