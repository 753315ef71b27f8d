// SPDX-License-Identifier: MIT

#include "io/disk_probe.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "io/atomic_file.h"
#include "platform/clock.h"
#include "platform/memory.h"
#include "platform/thread.h"

namespace qsf {
namespace {

constexpr std::uint64_t kProbeStride = 2'654'435'761;  // odd: spreads places over the file
constexpr std::uint32_t kLeastBlockBytes = 64U << 10;
constexpr std::uint32_t kBlockBytes = 1U << 20;
constexpr std::uint32_t kSmallBlockBytes = 256U << 10;
constexpr std::uint32_t kBlocks[] = {kSmallBlockBytes, kBlockBytes, 4U << 20};
constexpr unsigned kDepths[] = {1, 2, 4, 8, 16, 32};
constexpr std::uint64_t kQuickCellNs = 25'000'000;  // of each round
constexpr unsigned kQuickRounds = 3;
constexpr std::uint64_t kThoroughCellNs = 500'000'000;
constexpr double kGoodEnough = 0.90;

// The shared state of the threads that measure one combination.
struct Run {
  const ReadDevice* device = nullptr;
  MutableByteSpan memory;
  std::uint32_t block_bytes = 0;
  std::uint64_t n_blocks = 0;  // of the file
  std::uint64_t deadline_ns = 0;
  std::atomic<std::uint64_t> next_block{0};
  std::atomic<std::uint64_t> bytes_read{0};
};

// One thread with its queue and its part of the memory.
struct Worker {
  Run* run = nullptr;
  std::unique_ptr<AsyncReader> queue;
  MutableByteSpan memory;
  std::uint64_t next_place = 0;
  Status status;
};

// Blocks go to all of the memory in turn. Into a few blocks of memory that nobody reads a virtual
// disk copies from cache to cache, faster than into any memory that is used. A slow block may meet
// the next one in its place: what they hold does not matter.
void start_block(Worker& worker) {
  const std::uint32_t block_bytes = worker.run->block_bytes;
  const std::uint64_t block = worker.run->next_block.fetch_add(1) % worker.run->n_blocks;
  const std::uint64_t place = worker.next_place++ % (worker.memory.size() / block_bytes);
  worker.queue->start(
      {.offset = block * block_bytes,
       .to = worker.memory.subspan(static_cast<std::size_t>(place * block_bytes), block_bytes)});
}

// Keeps the queue full until the time is up, then waits for the reads in flight. Their bytes count,
// and so does their time.
void work(Worker& worker) {
  for (unsigned i = 0; i < worker.queue->depth(); ++i) start_block(worker);
  while (worker.queue->in_flight() > 0) {
    ReadDone done = worker.queue->wait();
    if (!done.status.ok()) {
      if (worker.status.ok()) worker.status = std::move(done.status);
      continue;
    }
    worker.run->bytes_read.fetch_add(worker.run->block_bytes);
    if (worker.status.ok() && monotonic_ns() < worker.run->deadline_ns) {
      start_block(worker);
    }
  }
}

void* work_entry(void* worker) {
  work(*static_cast<Worker*>(worker));
  return nullptr;
}

// Runs every worker, the first one on this thread.
Status run_workers(std::vector<Worker>& workers) {
  std::vector<Thread> threads;
  for (std::size_t i = 1; i < workers.size(); ++i) {
    Thread thread;
    if (thread.start(work_entry, &workers[i]) != 0) break;
    threads.push_back(std::move(thread));
  }
  work(workers[0]);
  for (Thread& thread : threads) thread.join();
  if (threads.size() + 1 < workers.size()) {
    return out_of_budget("probing a disk with %zu threads: the system refused one", workers.size());
  }
  for (Worker& worker : workers) QSF_RETURN_IF_ERROR(worker.status);
  return ok_status();
}

class Prober {
 public:
  Prober(const File& file, const ReadDeviceOptions& options, MutableByteSpan memory,
         std::uint64_t cell_ns)
      : file_(file), options_(options), memory_(memory), cell_ns_(cell_ns) {
    // A different place each time: a disk, or the host of a virtual one, caches recent reads.
    next_offset_ = monotonic_ns() / 1000 * kProbeStride % file.size_bytes();
    touch_pages(memory);
  }

  DiskProbe& probe() noexcept { return probe_; }

  // Whether memory, file and time suffice for a combination: on a slow disk, reads must not be in
  // flight for longer than the measurement.
  bool is_possible(unsigned depth, std::uint32_t block_bytes) const {
    const std::uint64_t in_flight = std::uint64_t{depth} * block_bytes;
    if (in_flight > memory_.size() || block_bytes > file_.size_bytes()) return false;
    double rate = 0;
    for (const ProbeCell& cell : probe_.matrix) rate = std::max(rate, cell.bytes_per_second);
    return rate == 0 || static_cast<double>(in_flight) / rate * 1e9 < static_cast<double>(cell_ns_);
  }

  Status measure(unsigned depth, std::uint32_t block_bytes) {
    ReadDeviceOptions options = options_;
    options.depth = depth;
    QSF_ASSIGN_OR_RETURN(const ReadDevice device, ReadDevice::open(file_, options));
    probe_.path = device.path();
    probe_.is_direct = device.is_direct();
    const unsigned n_queues = device.path() == ReadPath::kMmap ? depth : device.n_queues();
    Run run;
    run.device = &device;
    run.block_bytes = block_bytes;
    run.n_blocks = file_.size_bytes() / block_bytes;
    run.next_block = next_offset_ / block_bytes;
    std::vector<Worker> workers(n_queues);
    const std::size_t share = memory_.size() / n_queues / kDirectAlign * kDirectAlign;
    for (unsigned i = 0; i < n_queues; ++i) {
      workers[i].run = &run;
      workers[i].memory = memory_.subspan(i * share, share);
      QSF_ASSIGN_OR_RETURN(workers[i].queue, device.make_queue(workers[i].memory));
    }
    const std::uint64_t begin_ns = monotonic_ns();
    run.deadline_ns = begin_ns + cell_ns_;
    QSF_RETURN_IF_ERROR(run_workers(workers));
    const std::uint64_t took_ns = std::max<std::uint64_t>(monotonic_ns() - begin_ns, 1);
    next_offset_ = run.next_block % run.n_blocks * block_bytes;
    const double rate = static_cast<double>(run.bytes_read) * 1e9 / static_cast<double>(took_ns);
    take({.depth = depth, .block_bytes = block_bytes, .bytes_per_second = rate});
    return ok_status();
  }

  Status measure_if_possible(unsigned depth, std::uint32_t block_bytes) {
    return is_possible(depth, block_bytes) ? measure(depth, block_bytes) : ok_status();
  }

  void choose() {
    double fastest = 0;
    for (const ProbeCell& cell : probe_.matrix) fastest = std::max(fastest, cell.bytes_per_second);
    probe_.best = {};
    const auto in_flight = [](const ProbeCell& cell) {
      return std::uint64_t{cell.depth} * cell.block_bytes;
    };
    for (const ProbeCell& cell : probe_.matrix) {
      if (cell.bytes_per_second < kGoodEnough * fastest) continue;
      if (probe_.best.depth == 0 || in_flight(cell) < in_flight(probe_.best)) probe_.best = cell;
    }
  }

 private:
  // Keeps the best measurement of a combination.
  void take(const ProbeCell& cell) {
    for (ProbeCell& known : probe_.matrix) {
      if (known.depth != cell.depth || known.block_bytes != cell.block_bytes) continue;
      known.bytes_per_second = std::max(known.bytes_per_second, cell.bytes_per_second);
      return;
    }
    probe_.matrix.push_back(cell);
  }

  const File& file_;
  ReadDeviceOptions options_;
  MutableByteSpan memory_;
  std::uint64_t cell_ns_;
  std::uint64_t next_offset_ = 0;
  DiskProbe probe_;
};

// Measures in rounds, so that a moment of slowness does not hit only one combination. Blocks are at
// most as large as a usual tile, the largest single read.
Status measure_quickly(Prober& prober, std::uint32_t block_bytes) {
  for (unsigned round = 0; round < kQuickRounds; ++round) {
    for (const unsigned depth : {1U, 2U, 4U, 8U, 16U}) {
      QSF_RETURN_IF_ERROR(prober.measure_if_possible(depth, block_bytes));
    }
    if (block_bytes <= kSmallBlockBytes) continue;
    for (const unsigned depth : {4U, 8U, 16U}) {
      QSF_RETURN_IF_ERROR(prober.measure_if_possible(depth, kSmallBlockBytes));
    }
  }
  return ok_status();
}

Status measure_thoroughly(Prober& prober) {
  for (const std::uint32_t block : kBlocks) {
    for (const unsigned depth : kDepths) {
      QSF_RETURN_IF_ERROR(prober.measure_if_possible(depth, block));
    }
  }
  return ok_status();
}

}  // namespace

Result<double> measure_disk(const File& file, const DiskProbeOptions& options,
                            const ProbeCell& wished, MutableByteSpan memory) {
  Prober prober(file, options.device, memory,
                options.cell_ns != 0 ? options.cell_ns : kThoroughCellNs);
  if (wished.depth == 0 || wished.block_bytes == 0 ||
      !prober.is_possible(wished.depth, wished.block_bytes)) {
    return invalid_argument(
        "%s: %u reads of %u bytes at once need more than %zu bytes of memory, or more than the "
        "file "
        "has; measure with fewer or smaller ones",
        file.path().c_str(), wished.depth, wished.block_bytes, memory.size());
  }
  QSF_RETURN_IF_ERROR(prober.measure(wished.depth, wished.block_bytes));
  return prober.probe().matrix.front().bytes_per_second;
}

Result<DiskProbe> probe_disk(const File& file, const DiskProbeOptions& options,
                             MutableByteSpan memory) {
  const std::uint64_t available = std::min<std::uint64_t>(file.size_bytes(), memory.size());
  if (available < kLeastBlockBytes) {
    return invalid_argument(
        "%s: %llu bytes of file and %zu bytes of memory are too few to measure "
        "a disk with; at least %u of each are needed",
        file.path().c_str(), static_cast<unsigned long long>(file.size_bytes()), memory.size(),
        kLeastBlockBytes);
  }
  const std::uint64_t usual_ns = options.thorough ? kThoroughCellNs : kQuickCellNs;
  Prober prober(file, options.device, memory, options.cell_ns != 0 ? options.cell_ns : usual_ns);
  // The largest power of two that is there, where a whole block is not.
  std::uint32_t block_bytes = kBlockBytes;
  while (block_bytes > available) block_bytes /= 2;
  if (options.thorough) QSF_RETURN_IF_ERROR(measure_thoroughly(prober));
  if (prober.probe().matrix.empty()) QSF_RETURN_IF_ERROR(measure_quickly(prober, block_bytes));
  prober.choose();
  return std::move(prober.probe());
}

// The file that remembers a measurement: a line for each field. It is checked when it is read,
// since another version or a full disk may have written it.

namespace {

constexpr std::string_view kFirstLine = "qsf disk probe 2";
constexpr std::uint64_t kMaxTextBytes = 16U << 10;
constexpr std::size_t kMaxCells = 64;
// Upper bounds of the measured values.
constexpr std::uint32_t kMaxBlockBytes = 4U << 20;
constexpr unsigned kMaxProbedDepth = 32;

Status not_a_probe(const char* what) {
  return corrupt("saved disk probe: %s", what);
}

std::string_view take_word(std::string_view& text, char end) {
  const std::size_t length = text.find(end);
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(length == std::string_view::npos ? text.size() : length + 1);
  return word;
}

// Parses a whole number in range.
template <typename T>
bool parse_number(std::string_view word, T least, T most, T& value) {
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
  return result.ec == std::errc() && result.ptr == word.data() + word.size() && value >= least &&
         value <= most;
}

bool parse_cell(std::string_view line, ProbeCell& cell) {
  std::uint64_t rate = 0;
  const bool ok =
      parse_number(take_word(line, ' '), 1U, kMaxProbedDepth, cell.depth) &&
      parse_number(take_word(line, ' '), kDirectAlign, kMaxBlockBytes, cell.block_bytes) &&
      parse_number(line, std::uint64_t{1}, std::uint64_t{1} << 50, rate) &&
      cell.block_bytes % kDirectAlign == 0;
  cell.bytes_per_second = static_cast<double>(rate);
  return ok;
}

void append_cell(const char* key, const ProbeCell& cell, std::string& text) {
  char line[96];
  std::snprintf(line, sizeof line, "%s %u %u %.0f\n", key, cell.depth, cell.block_bytes,
                cell.bytes_per_second);
  text += line;
}

std::string file_in(const std::string& folder, const ReadDevice& device) {
  char name[64];
  std::snprintf(
      name, sizeof name, "/disk-%llx-%s%s", static_cast<unsigned long long>(device.disk_id()),
      std::string(read_path_name(device.path())).c_str(), device.is_direct() ? "-direct" : "");
  return folder + name;
}

std::optional<DiskProbe> recall(const std::string& path) {
  const Result<File> file = File::open(path);
  if (!file.has_value()) return std::nullopt;
  const Result<std::vector<std::byte>> bytes = file.value().read_all(kMaxTextBytes);
  if (!bytes.has_value()) return std::nullopt;
  Result<DiskProbe> probe = parse_disk_probe(std::string(as_text(bytes.value())));
  if (!probe.has_value()) return std::nullopt;
  return std::move(probe).value();
}

}  // namespace

std::string default_probe_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/qsf";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/qsf";
  return {};
}

std::string disk_probe_text(const DiskProbe& probe) {
  std::string text(kFirstLine);
  text += "\npath ";
  text += read_path_name(probe.path);
  text += probe.is_direct ? "\ndirect 1\n" : "\ndirect 0\n";
  append_cell("best", probe.best, text);
  for (const ProbeCell& cell : probe.matrix) append_cell("cell", cell, text);
  return text + "end\n";
}

Result<DiskProbe> parse_disk_probe(const std::string& text) {
  std::string_view rest = text;
  if (take_word(rest, '\n') != kFirstLine)
    return not_a_probe("its first line is not \"qsf disk probe 2\"");
  DiskProbe probe;
  bool has_path = false;
  for (std::string_view line = take_word(rest, '\n'); line != "end"; line = take_word(rest, '\n')) {
    if (line.empty() || probe.matrix.size() > kMaxCells)
      return not_a_probe("its last line is missing");
    const std::string_view key = take_word(line, ' ');
    ProbeCell cell;
    if (key == "path") {
      for (const ReadPath path : {ReadPath::kUring, ReadPath::kPread, ReadPath::kMmap}) {
        if (line != read_path_name(path)) continue;
        probe.path = path;
        has_path = true;
      }
    } else if (key == "direct" && (line == "0" || line == "1")) {
      probe.is_direct = line == "1";
    } else if (key == "best" && parse_cell(line, cell)) {
      probe.best = cell;
    } else if (key == "cell" && parse_cell(line, cell)) {
      probe.matrix.push_back(cell);
    } else {
      return not_a_probe("a line is unknown or out of range");
    }
  }
  if (!has_path || probe.best.depth == 0 || !rest.empty()) return not_a_probe("it is incomplete");
  return probe;
}

Result<DiskProbe> remembered_disk_probe(const File& file, const DiskProbeOptions& options,
                                        MutableByteSpan memory, const std::string& folder) {
  if (folder.empty() || file.size_bytes() < kLeastRememberedBytes) {
    return probe_disk(file, options, memory);
  }
  std::string path;
  {
    QSF_ASSIGN_OR_RETURN(const ReadDevice device, ReadDevice::open(file, options.device));
    if (device.disk_id() == 0) return probe_disk(file, options, memory);
    path = file_in(folder, device);
  }
  if (std::optional<DiskProbe> known = recall(path)) return *std::move(known);
  QSF_ASSIGN_OR_RETURN(DiskProbe probe, probe_disk(file, options, memory));
  std::error_code ignored;
  // UTF-8, which std::filesystem takes for the code page of Windows unless told.
  std::filesystem::create_directories(std::u8string(folder.begin(), folder.end()), ignored);
  const std::string text = disk_probe_text(probe);
  const Status written = write_file(path, as_bytes(text));
  static_cast<void>(written.ok());  // a cache: the next start measures again
  return probe;
}

}  // namespace qsf
