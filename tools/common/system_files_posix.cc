// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tools/common/posix_calls.h"
#include "tools/common/system_files.h"

extern char** environ;

namespace qsf_tools {
namespace {

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kRegular;
  if (S_ISDIR(mode)) return FileKind::kFolder;
  if (S_ISFIFO(mode)) return FileKind::kFifo;
  return S_ISSOCK(mode) ? FileKind::kSocket : FileKind::kDevice;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n_written = ::write(fd, text.data(), text.size());
    if (n_written < 0 && errno == EINTR) continue;
    if (n_written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n_written));
  }
  return ::fsync(fd) == 0;
}

}  // namespace

std::optional<FileAbout> about_file(const std::string& path) {
  struct stat about = {};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  const timespec modified = modification_time(about);
  return FileAbout{.kind = kind_of(about.st_mode),
                   .number = about.st_ino,
                   .bytes = static_cast<std::uint64_t>(about.st_size),
                   .modified_s = modified.tv_sec,
                   .modified_ns = modified.tv_nsec};
}

bool is_link(const std::string& path) {
  struct stat about = {};
  return ::lstat(path.c_str(), &about) == 0 && S_ISLNK(about.st_mode);
}

bool is_writable_folder(const std::string& path) {
  return ::access(path.c_str(), W_OK | X_OK) == 0;
}

std::optional<DiskSpace> disk_space(const std::string& path) {
  struct statvfs disk = {};
  if (::statvfs(path.c_str(), &disk) != 0) return std::nullopt;
  return DiskSpace{.bytes = std::uint64_t{disk.f_blocks} * disk.f_frsize,
                   .free_bytes = std::uint64_t{disk.f_bavail} * disk.f_frsize};
}

bool read_first_bytes(const std::string& path, char* to, std::size_t n_bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  // The kernel must not read ahead: its mark on a page would make the engine's first reads fetch
  // megabytes into the page cache, which counts against the memory budget.
  forbid_readahead(file);
  const ssize_t n_read = ::pread(file, to, n_bytes, 0);
  ::close(file);
  return n_read == static_cast<ssize_t>(n_bytes);
}

bool write_new_file(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  const bool written = write_all(fd, text);
  const int write_error = errno;
  ::close(fd);
  errno = write_error;
  return written;
}

bool replace_file(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0;
}

bool remove_file(const std::string& path) {
  return ::unlink(path.c_str()) == 0;
}

bool touch_file(const std::string& path) {
  return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0;
}

std::string this_process() {
  return std::to_string(::getpid());
}

bool is_running(long process) {
  return ::kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH;
}

int run_program(const std::string& program, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failure =
      ::posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return 127;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return 127;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

FileLock::~FileLock() {
  if (is_open()) ::close(static_cast<int>(handle_));
}

bool FileLock::open(const std::string& path) {
  handle_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return is_open();
}

bool FileLock::create(const std::string& path) {
  handle_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  return is_open();
}

FileLock::Tried FileLock::try_lock(bool shared) const {
  if (::flock(static_cast<int>(handle_), (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) {
    return Tried::kLocked;
  }
  return errno == EWOULDBLOCK ? Tried::kHeldByOther : Tried::kFailed;
}

bool FileLock::lock() const {
  while (::flock(static_cast<int>(handle_), LOCK_EX) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace qsf_tools
