// SPDX-License-Identifier: MIT
//
// What the tools ask of the system about files and other programs, beyond std::filesystem.
// Functions that fail leave the reason in errno.

#ifndef QSF_TOOLS_COMMON_SYSTEM_FILES_H_
#define QSF_TOOLS_COMMON_SYSTEM_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qsf_tools {

enum class FileKind { kRegular, kFolder, kFifo, kSocket, kDevice };

struct FileAbout {
  FileKind kind = FileKind::kRegular;
  std::uint64_t number = 0;  // of the file on its disk
  std::uint64_t bytes = 0;
  std::int64_t modified_s = 0;
  std::int64_t modified_ns = 0;  // on top of these seconds
};

// Returns what is at a path, links followed; nothing with errno.
std::optional<FileAbout> about_file(const std::string& path);

// Whether a path is a symbolic link or, on Windows, any other name for something elsewhere (a
// junction); the C++ library sees none there.
bool is_link(const std::string& path);

// Whether this user can make files in a folder.
bool is_writable_folder(const std::string& path);

struct DiskSpace {
  std::uint64_t bytes = 0;
  std::uint64_t free_bytes = 0;  // for this user
};
std::optional<DiskSpace> disk_space(const std::string& path);

// Reads the first bytes of a file, and nothing behind them into the page cache.
bool read_first_bytes(const std::string& path, char* to, std::size_t n_bytes);

// Writes a file that must not exist yet, down to the disk.
bool write_new_file(const std::string& path, std::string_view text);
// Gives a file another name, in place of a file of that name.
bool replace_file(const std::string& from, const std::string& to);
bool remove_file(const std::string& path);
// Sets the time of the last change to now.
bool touch_file(const std::string& path);

// The number of this process, and whether one of that number runs.
std::string this_process();
bool is_running(long process);

// Runs a program with `arguments`, of which the first is its name, without input and with standard
// error as its output, and waits for it. Returns its exit code, 128 and the signal that ended it,
// or 127 when it could not be started.
int run_program(const std::string& program, std::vector<std::string> arguments);

// An open file whose lock lasts as long as this, or as the process after keep().
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Opens a file that exists, or makes it. Requires  not open
  bool open(const std::string& path);
  bool create(const std::string& path);
  bool is_open() const { return handle_ != -1; }

  enum class Tried { kLocked, kHeldByOther, kFailed };
  Tried try_lock(bool shared) const;
  // Waits for the process that holds the lock.
  bool lock() const;
  void keep() { handle_ = -1; }

 private:
  std::intptr_t handle_ = -1;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_SYSTEM_FILES_H_
