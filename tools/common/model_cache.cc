// SPDX-License-Identifier: MIT

#include "tools/common/model_cache.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "qsf/qsf.h"
#include "tools/common/bundled_model.h"
#include "tools/common/file_path.h"
#include "tools/common/option_parser.h"
#include "tools/common/system_files.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntrySuffix = ".qsf";
constexpr const char* kSourceSuffix = ".source";  // behind the name of the entry
constexpr std::uint64_t kDefaultMaxBytes = 20'000'000'000;
constexpr std::uint64_t kDefaultDiskShare = 10;  // at most one part in this many of the disk

// FNV-1a, 64 bits: no protection against names that are made to collide.
class Fingerprint {
 public:
  void add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) {
      hash_ = (hash_ ^ (value >> (8 * i) & 0xFFU)) * 0x100000001B3U;
    }
  }
  void add(std::string_view text) {
    for (const char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    add(text.size());
  }
  // Adds the numbers that identify a file and change with its content.
  void add(const FileAbout& about) {
    add(about.number);
    add(about.bytes);
    add(static_cast<std::uint64_t>(about.modified_s));
    add(static_cast<std::uint64_t>(about.modified_ns));
  }
  std::string text() const {
    char digits[20];
    std::snprintf(digits, sizeof digits, "%016" PRIx64, hash_);
    return digits;
  }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

bool wait_for_lock(const FileLock& lock, bool quiet) {
  const FileLock::Tried tried = lock.try_lock(/*shared=*/false);
  if (tried != FileLock::Tried::kHeldByOther) return tried == FileLock::Tried::kLocked;
  if (!quiet) print_error(program_name(), "waiting for another process that converts a model");
  return lock.lock();
}

// Returns the paths of all parts of a model: those whose names differ in the number of
// "-00001-of-00003.gguf" alone, or the file itself.
std::vector<std::string> part_paths(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() < kPattern.size()) return {path};
  const std::size_t start = path.size() - kPattern.size();
  unsigned number = 0;
  unsigned count = 0;
  int n_read = 0;
  if (std::sscanf(path.c_str() + start, "-%5u-of-%5u.gguf%n", &number, &count, &n_read) != 2 ||
      static_cast<std::size_t>(n_read) != kPattern.size() || count == 0) {
    return {path};
  }
  std::vector<std::string> paths;
  for (unsigned i = 1; i <= count; ++i) {
    char end[32];
    std::snprintf(end, sizeof end, "-%05u-of-%05u.gguf", i, count);
    paths.push_back(path.substr(0, start) + end);
  }
  return paths;
}

// Returns whether a file of a model folder is one that a conversion reads.
bool is_model_part(const std::string& name) {
  for (const char* suffix : {".json", ".safetensors", ".bin", ".model", ".txt", ".jinja"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// Calls visit(name) for every file of a folder.
template <typename Visit>
void for_each_file(const std::string& folder, const Visit& visit) {
  std::error_code failure;
  for (fs::directory_iterator entry(file_path(folder), failure), end; !failure && entry != end;
       entry.increment(failure)) {
    visit(path_text(entry->path().filename()));
  }
}

bool is_folder(const std::string& path) {
  const std::optional<FileAbout> about = about_file(path);
  return about && about->kind == FileKind::kFolder;
}

std::vector<std::string> source_files(const std::string& path) {
  if (!is_folder(path)) return part_paths(path);
  std::vector<std::string> files;
  for_each_file(path, [&](const std::string& name) {
    if (is_model_part(name)) files.push_back(path + "/" + name);
  });
  std::sort(files.begin(), files.end());
  return files;
}

// Returns a name for the content of a model; nothing with a reason when a file of it is no regular
// file.
std::optional<std::string> identify(const std::string& path, std::string& error) {
  Fingerprint print;
  for (const std::string& file : source_files(path)) {
    const std::optional<FileAbout> about = about_file(file);
    if (!about) {
      error = file + ": " + (errno == ENOENT ? "no such file" : std::strerror(errno));
      return std::nullopt;
    }
    if (about->kind != FileKind::kRegular) {
      error = file + ": not a regular file";
      return std::nullopt;
    }
    print.add(*about);
  }
  return print.text();
}

// How a model is converted.
struct Converter {
  std::string program;  // this one
  std::string i2s_layout;
  bool quiet;
};

// Runs `qsf convert` and waits for it, as run_program(): standard output carries the text of the
// model only.
int run_converter(const Converter& converter, const std::string& from, const std::string& to) {
  std::vector<std::string> arguments = {"qsf", "convert", "--i2s-layout", converter.i2s_layout};
  if (converter.quiet) arguments.emplace_back("--quiet");
  // A path behind "--" may begin with a dash.
  arguments.insert(arguments.end(), {"--", from, to});
  return run_program(converter.program, std::move(arguments));
}

// Returns the entry whose name ends so: the source may have had another name when it was converted.
std::optional<std::string> find_ending(const std::string& folder, const std::string& ending) {
  std::optional<std::string> found;
  for_each_file(folder, [&](const std::string& name) {
    if (name.ends_with(ending) && is_regular_file(folder + "/" + name)) found = name;
  });
  return found;
}

std::string read_source(const std::string& entry) {
  std::string source;
  std::getline(std::ifstream(file_path(entry + kSourceSuffix), std::ios::binary), source, '\0');
  return source;
}

void remove_files(const std::string& entry) {
  remove_file(entry);
  remove_file(entry + kSourceSuffix);
}

// Removes the entries that other versions of the program made of the same source.
void remove_older(const std::string& folder, const std::string& identity, const std::string& kept) {
  for_each_file(folder, [&](const std::string& name) {
    if (name == kept || !name.ends_with(kEntrySuffix)) return;
    if (name.find("-" + identity + "-") != std::string::npos) remove_files(folder + "/" + name);
  });
}

// Removes the unfinished files of converters that were killed. Requires  the lock is held
void remove_abandoned(const std::string& folder) {
  constexpr std::string_view kMark = ".qsf.tmp-";
  for_each_file(folder, [&](const std::string& name) {
    const std::size_t mark = name.rfind(kMark);
    if (mark == std::string::npos) return;
    const long pid = std::strtol(name.c_str() + mark + kMark.size(), nullptr, 10);
    if (pid > 0 && !is_running(pid)) remove_file(folder + "/" + name);
  });
}

// Removes the entries that were used longest ago until the rest is within the bound. Requires  the
// lock is held
void evict(const std::string& folder, std::uint64_t max_bytes, const std::string& kept) {
  std::vector<CacheEntry> entries = list_cache(folder);
  std::uint64_t total = 0;
  for (const CacheEntry& entry : entries) total += entry.bytes;
  for (; total > max_bytes && !entries.empty(); entries.pop_back()) {
    const CacheEntry& oldest = entries.back();
    if (oldest.path != kept && remove_entry(oldest) == Removal::kRemoved) total -= oldest.bytes;
  }
}

// Marks an entry as used now, and as in use while this process runs. Returns false where the entry
// was removed meanwhile.
bool use_entry(const std::string& entry, const std::string& source) {
  FileLock file;
  if (!file.open(entry) || file.try_lock(/*shared=*/true) != FileLock::Tried::kLocked ||
      !about_file(entry)) {
    return false;
  }
  file.keep();
  // Where the cache is read-only, the order of its entries is not kept up to date.
  const std::string source_path = entry + kSourceSuffix;
  if (!touch_file(source_path)) {
    std::error_code failure;
    std::ofstream(file_path(source_path), std::ios::binary)
        << path_text(fs::absolute(file_path(source), failure));
  }
  return true;
}

std::string how_to_move(const std::string& folder) {
  return "converted models are kept in " + folder +
         "; choose another folder with --cache-dir FOLDER or XDG_CACHE_HOME";
}

// Makes `target`. Requires  the lock is held
bool convert(const std::string& path, const std::string& identity, const Converter& converter,
             const std::string& folder, const std::string& target, std::string& error) {
  remove_abandoned(folder);
  if (!converter.quiet) print_error(program_name(), path + ": converting it once, to " + target);
  const int code = run_converter(converter, path, target);
  if (code != 0) {
    error = path + ": could not be converted: " +
            (code == 127  ? converter.program + " cannot be started"
             : code > 128 ? "the converter was ended by signal " + std::to_string(code - 128)
                          : "the reason stands above") +
            "; " + how_to_move(folder);
    return false;
  }
  std::string gone;
  const auto after = identify(path, gone);
  if (after && *after == identity) return true;
  remove_file(target);
  error = path + ": the model was changed while it was converted; run the command again";
  return false;
}

// Makes the folder of the cache if need be and checks that files can be written there.
bool prepare_folder(const std::string& folder, std::string& error) {
  std::error_code failure;
  fs::create_directories(file_path(folder), failure);
  if (failure) {
    error = folder + ": cannot be made: " + failure.message() + "; " + how_to_move(folder);
  } else if (!is_writable_folder(folder)) {
    error = folder + ": cannot be written: " + std::strerror(errno) + "; " + how_to_move(folder);
  }
  return error.empty();
}

std::uint64_t size_from_environment() {
  const char* text = std::getenv("QSF_CACHE_SIZE");
  return text == nullptr ? 0 : parse_size_in_mb(text).value_or(0);
}

}  // namespace

void add_cache_options(OptionParser& parser, CacheSettings& settings) {
  constexpr const char* kGroup = "Cache of converted models";
  parser
      .value("--cache-dir", settings.folder,
             "Folder of converted models; default: $XDG_CACHE_HOME/qsf/converted, "
             "~/.cache/qsf/converted or, on Windows, %LOCALAPPDATA%/qsf/converted")
      .type_name("FOLDER")
      .group(kGroup);
  parser
      .size_in_mb("--cache-size", settings.max_bytes,
                  "Limit on the size of that folder in MB (10^6 bytes), or with a suffix k, M or "
                  "G: after a conversion the models used longest ago are removed; default: "
                  "$QSF_CACHE_SIZE, or 20 GB and at most a tenth of the disk")
      .group(kGroup);
}

bool is_gguf_path(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  if (path.ends_with(".gguf")) return true;
  if (!is_regular_file(path)) return false;  // opening a FIFO would wait
  char start[kMagic.size()] = {};
  return read_first_bytes(path, start, sizeof start) &&
         std::string_view(start, sizeof start) == kMagic;
}

bool needs_conversion(const std::string& path) {
  return is_gguf_path(path) || is_folder(path);
}

std::string check_model_path(const std::string& path) {
  const std::optional<FileAbout> about = about_file(path);
  if (!about) {
    return path + ": " + (errno == ENOENT ? "no such file" : std::strerror(errno));
  }
  if (about->kind == FileKind::kFolder) {
    if (is_regular_file(path + "/config.json")) return {};
    return path +
           ": is a folder without config.json, expected a model file or a Hugging Face "
           "model folder";
  }
  if (about->kind == FileKind::kRegular) return {};
  return path + ": is " +
         (about->kind == FileKind::kFifo     ? "a FIFO"
          : about->kind == FileKind::kSocket ? "a socket"
                                             : "a device") +
         ", expected a regular file or a model folder";
}

std::optional<std::string> cache_folder(const CacheSettings& settings, std::string& error) {
  if (!settings.folder.empty()) return settings.folder;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const char* local = std::getenv("LOCALAPPDATA");  // on Windows
  constexpr const char* kFolder = "/qsf/converted";
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + kFolder;
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache" + kFolder;
  if (local != nullptr && local[0] != '\0') return std::string(local) + kFolder;
  error =
      "no folder for converted models: neither XDG_CACHE_HOME nor HOME is set; name one with "
      "--cache-dir FOLDER";
  return std::nullopt;
}

std::uint64_t cache_limit(const CacheSettings& settings, const std::string& folder) {
  if (settings.max_bytes != 0) return settings.max_bytes;
  if (const std::uint64_t bytes = size_from_environment(); bytes != 0) return bytes;
  const std::optional<DiskSpace> disk = disk_space(folder);
  if (!disk) return kDefaultMaxBytes;
  return std::min(kDefaultMaxBytes, disk->bytes / kDefaultDiskShare);
}

std::vector<CacheEntry> list_cache(const std::string& folder) {
  std::vector<CacheEntry> entries;
  for_each_file(folder, [&](const std::string& name) {
    CacheEntry entry;
    entry.path = folder + "/" + name;
    if (!name.ends_with(kEntrySuffix)) return;
    const std::optional<FileAbout> about = about_file(entry.path);
    if (!about || about->kind != FileKind::kRegular) return;
    const std::optional<FileAbout> source = about_file(entry.path + kSourceSuffix);
    entry.bytes = about->bytes;
    entry.last_use = (source ? *source : *about).modified_s;
    entry.source = read_source(entry.path);
    entries.push_back(std::move(entry));
  });
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return a.last_use != b.last_use ? a.last_use > b.last_use : a.path < b.path;
  });
  return entries;
}

Removal remove_entry(const CacheEntry& entry) {
  FileLock file;
  if (file.open(entry.path) && file.try_lock(/*shared=*/false) != FileLock::Tried::kLocked) {
    return Removal::kInUse;
  }
  if (!remove_file(entry.path)) return Removal::kFailed;
  remove_file(entry.path + kSourceSuffix);
  return Removal::kRemoved;
}

std::optional<std::string> converted_model(const std::string& path, const std::string& i2s_layout,
                                           bool quiet, std::string& error,
                                           const CacheSettings& settings) {
  const auto identity = identify(path, error);
  if (!identity) return std::nullopt;
  const Converter converter = {program_path(), i2s_layout, quiet};
  const std::optional<FileAbout> about = about_file(converter.program);
  if (!about) {
    error = path + ": cannot be converted: the path of this program is not known; convert the " +
            "model first: qsf convert MODEL MODEL.qsf";
    return std::nullopt;
  }
  const auto folder = cache_folder(settings, error);
  if (!folder) {
    error = path + ": " + error;
    return std::nullopt;
  }
  Fingerprint maker;
  maker.add(qsf_version());
  maker.add(*about);
  maker.add(i2s_layout);
  std::string stem =
      path_text(file_path(path.substr(0, path.find_last_not_of('/') + 1)).filename());
  if (stem.ends_with(".gguf")) stem.resize(stem.size() - 5);
  if (stem.size() > 100) stem.resize(100);
  const std::string ending = "-" + *identity + "-" + maker.text() + ".qsf";
  const auto find = [&]() -> std::optional<std::string> {
    const auto found = find_ending(*folder, ending);
    if (!found || !use_entry(*folder + "/" + *found, path)) return std::nullopt;
    return *folder + "/" + *found;
  };
  if (auto found = find()) return found;
  if (!prepare_folder(*folder, error)) {
    error = path + ": " + error;
    return std::nullopt;
  }
  const std::string lock_path = *folder + "/lock";
  FileLock lock;
  if (!lock.create(lock_path) || !wait_for_lock(lock, quiet)) {
    error = lock_path + ": " + std::strerror(errno);
    return std::nullopt;
  }
  // Another process may have converted the model meanwhile.
  if (auto found = find()) return found;
  const std::string target = *folder + "/" + stem + ending;
  if (!convert(path, *identity, converter, *folder, target, error)) return std::nullopt;
  remove_older(*folder, *identity, stem + ending);
  use_entry(target, path);
  evict(*folder, cache_limit(settings, *folder), target);
  return target;
}

}  // namespace qsf_tools
