// SPDX-License-Identifier: MIT
//
// The file that remembers a disk's speed: a line for each field, read back with suspicion, since
// another version, or a disk that was full, may have written it.

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "io/atomic_file.h"
#include "io/disk_probe.h"

namespace qsf {
namespace {

constexpr std::string_view kFirstLine = "qsf disk probe 1";
constexpr std::uint64_t kMaxTextBytes = 16U << 10;
constexpr std::size_t kMaxCells = 64;
// Beyond what is ever measured.
constexpr std::uint32_t kMaxBlockBytes = 4U << 20;
constexpr unsigned kMaxProbedDepth = 32;

Status not_a_probe(const char* what) {
  return corrupt("a remembered disk probe: %s", what);
}

std::string_view take_word(std::string_view& text, char end) {
  const std::size_t length = text.find(end);
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(length == std::string_view::npos ? text.size() : length + 1);
  return word;
}

// Whole numbers alone, in range.
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
  if (take_word(rest, '\n') != kFirstLine) return not_a_probe("its first line is another");
  DiskProbe probe;
  bool has_path = false;
  for (std::string_view line = take_word(rest, '\n'); line != "end"; line = take_word(rest, '\n')) {
    if (line.empty() || probe.matrix.size() > kMaxCells) return not_a_probe("it has no end");
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
  std::filesystem::create_directories(folder, ignored);
  const std::string text = disk_probe_text(probe);
  const Status written = write_file(path, as_bytes(text));
  static_cast<void>(written.ok());  // a cache: the next start measures again
  return probe;
}

}  // namespace qsf
