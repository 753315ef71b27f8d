// SPDX-License-Identifier: MIT
//
// The cache of converted models; see model_cache.h.

#include "tools/common/model_cache.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

#include "tools/common/bundled_model.h"
#include "tools/common/tool_support.h"
#include "tools/run/run_options.h"

extern char** environ;

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".gguf";

// FNV-1a, 64 bits: names files apart that nobody chose to be alike.
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
  // Adds what tells a file from every other and from its own past.
  void add(const struct stat& about) {
    add(about.st_ino);
    add(static_cast<std::uint64_t>(about.st_size));
    add(static_cast<std::uint64_t>(about.st_mtim.tv_sec));
    add(static_cast<std::uint64_t>(about.st_mtim.tv_nsec));
  }
  std::string text() const {
    char digits[20];
    std::snprintf(digits, sizeof digits, "%016" PRIx64, hash_);
    return digits;
  }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

// An open file whose lock lasts as long as this.
class LockedFile {
 public:
  explicit LockedFile(int handle) : handle_(handle) {}
  ~LockedFile() {
    if (handle_ >= 0) ::close(handle_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  bool is_open() const { return handle_ >= 0; }

  // Waits for whoever holds the lock.
  bool lock(bool quiet) const {
    if (::flock(handle_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
    if (!quiet) print_error(kRunTool, "waiting for another qsf-run, which converts a model");
    while (::flock(handle_, LOCK_EX) != 0) {
      if (errno != EINTR) return false;
    }
    return true;
  }

 private:
  int handle_;
};

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

// Returns what tells this model from others; nothing with a reason when a part cannot be looked at.
std::optional<std::string> identify(const std::string& path, std::string& error) {
  Fingerprint print;
  for (const std::string& part : part_paths(path)) {
    struct stat about = {};
    if (::stat(part.c_str(), &about) != 0) {
      error = part + ": " + (errno == ENOENT ? "no such file" : std::strerror(errno));
      return std::nullopt;
    }
    if (!S_ISREG(about.st_mode)) {
      error = part + ": not a regular file";
      return std::nullopt;
    }
    print.add(about);
  }
  return print.text();
}

// Returns the folder of converted models, made if need be.
std::optional<std::string> cache_folder(std::string& error) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && cache[0] == '/') {
    folder = cache;
  } else if (home != nullptr && home[0] == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    error = "neither XDG_CACHE_HOME nor HOME names a folder to keep converted models in";
    return std::nullopt;
  }
  folder += "/qsf/converted";
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure) return folder;
  error = folder + ": cannot be made: " + failure.message();
  return std::nullopt;
}

bool is_file(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

// The converter to run, and how.
struct Converter {
  std::string path;
  std::string i2s_layout;
  bool quiet;
};

// Runs the converter and waits for it; returns its exit code, 128 and the signal that ended it, or
// 127 when it could not be started.
int run_converter(const Converter& converter, const std::string& from, const std::string& to) {
  std::vector<std::string> arguments = {converter.path, "--quant-type", "keep", "--i2s-layout",
                                        converter.i2s_layout};
  if (converter.quiet) arguments.emplace_back("--quiet");
  // Behind this a path may begin with a dash.
  arguments.insert(arguments.end(), {"--", from, to});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // Standard output is for the text of the model alone.
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failure =
      ::posix_spawn(&child, converter.path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return 127;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Calls visit(name) for every file of a folder.
template <typename Visit>
void for_each_file(const std::string& folder, const Visit& visit) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    visit(entry->path().filename().string());
  }
}

// Returns the name of the model file that ends like that, whatever its GGUF file was called then.
std::optional<std::string> find_ending(const std::string& folder, const std::string& ending) {
  std::optional<std::string> found;
  for_each_file(folder, [&](const std::string& name) {
    if (name.ends_with(ending) && is_file(folder + "/" + name)) found = name;
  });
  return found;
}

// Removes what earlier versions made of the same file.
void remove_older(const std::string& folder, const std::string& identity, const std::string& kept) {
  for_each_file(folder, [&](const std::string& name) {
    const bool is_of_it = name.find("-" + identity + "-") != std::string::npos;
    if (is_of_it && name != kept && name.ends_with(".qsf")) ::unlink((folder + "/" + name).c_str());
  });
}

// Removes what converters left that were killed: files as large as their models. Requires  the lock
// is held
void remove_abandoned(const std::string& folder) {
  constexpr std::string_view kMark = ".qsf.tmp-";
  for_each_file(folder, [&](const std::string& name) {
    const std::size_t mark = name.rfind(kMark);
    if (mark == std::string::npos) return;
    const long pid = std::strtol(name.c_str() + mark + kMark.size(), nullptr, 10);
    const bool is_alive = pid <= 0 || ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
    if (!is_alive) ::unlink((folder + "/" + name).c_str());
  });
}

// Makes `target`. Requires  the lock is held
bool convert(const std::string& path, const std::string& identity, const Converter& converter,
             const std::string& folder, const std::string& target, std::string& error) {
  remove_abandoned(folder);
  if (!converter.quiet) print_error(kRunTool, path + ": converting it once, to " + target);
  const int code = run_converter(converter, path, target);
  if (code != 0) {
    error = path + ": could not be converted: " + converter.path +
            (code == 127  ? " cannot be started"
             : code > 128 ? " was ended by signal " + std::to_string(code - 128)
                          : " says why above") +
            "; converted models are kept in " + folder + ", which XDG_CACHE_HOME can change";
    return false;
  }
  std::string gone;
  const auto after = identify(path, gone);
  if (after && *after == identity) return true;
  ::unlink(target.c_str());
  error = path + ": the file was changed while it was converted; run it again";
  return false;
}

}  // namespace

bool is_gguf_path(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  if (path.ends_with(kSuffix)) return true;
  if (!is_file(path)) return false;  // a pipe would keep us waiting
  char start[kMagic.size()] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(start, sizeof start);
  return std::string_view(start, sizeof start) == kMagic;
}

std::optional<std::string> converted_model(const std::string& path, const std::string& i2s_layout,
                                           bool quiet, std::string& error) {
  const auto identity = identify(path, error);
  if (!identity) return std::nullopt;
  const Converter converter = {program_folder() + "qsf-convert", i2s_layout, quiet};
  struct stat about = {};
  if (::stat(converter.path.c_str(), &about) != 0) {
    error = path + ": a GGUF file is converted before it runs, and there is no " + converter.path +
            "; convert it where there is one: qsf-convert MODEL.gguf MODEL.qsf";
    return std::nullopt;
  }
  const auto folder = cache_folder(error);
  if (!folder) {
    error = path + ": " + error;
    return std::nullopt;
  }
  Fingerprint maker;
  maker.add(qsf_version());
  maker.add(about);
  maker.add(i2s_layout);
  std::string stem = fs::path(path).stem().string();
  if (stem.size() > 100) stem.resize(100);
  const std::string ending = "-" + *identity + "-" + maker.text() + ".qsf";
  if (const auto found = find_ending(*folder, ending)) return *folder + "/" + *found;

  const std::string lock_path = *folder + "/lock";
  const LockedFile lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!lock.is_open() || !lock.lock(quiet)) {
    error = lock_path + ": " + std::strerror(errno);
    return std::nullopt;
  }
  // Another process may have made it meanwhile.
  if (const auto found = find_ending(*folder, ending)) return *folder + "/" + *found;
  const std::string target = *folder + "/" + stem + ending;
  if (!convert(path, *identity, converter, *folder, target, error)) return std::nullopt;
  remove_older(*folder, *identity, stem + ending);
  return target;
}

}  // namespace qsf_tools
