// SPDX-License-Identifier: MIT

#include <windows.h>

#include <cerrno>

#include "tools/common/system_files.h"
#include "tools/common/windows_text.h"

namespace qsf_tools {
namespace {

constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

bool fail() {
  switch (::GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_INVALID_NAME:
    case ERROR_BAD_NETPATH: errno = ENOENT; break;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: errno = EEXIST; break;
    case ERROR_ACCESS_DENIED: errno = EACCES; break;
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION: errno = EBUSY; break;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL: errno = ENOSPC; break;
    default: errno = EIO;
  }
  return false;
}

bool done(BOOL succeeded) {
  return succeeded != 0 || fail();
}

HANDLE open_handle(const std::string& path, DWORD access, DWORD disposition) {
  return ::CreateFileW(wide_of(path).c_str(), access, kShareAll, nullptr, disposition,
                       FILE_FLAG_BACKUP_SEMANTICS, nullptr);
}

// A handle that closes itself.
class OpenFile {
 public:
  OpenFile(const std::string& path, DWORD access, DWORD disposition)
      : handle_(open_handle(path, access, disposition)) {
    if (!is_open()) fail();
  }
  ~OpenFile() {
    if (is_open()) ::CloseHandle(handle_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  bool is_open() const { return handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

// As the C libraries of Windows take a command line apart.
std::wstring quoted_argument(const std::string& argument) {
  std::wstring out = L"\"";
  std::size_t n_backslashes = 0;
  for (const wchar_t c : wide_of(argument)) {
    if (c == L'"') out.append(n_backslashes + 1, L'\\');
    n_backslashes = c == L'\\' ? n_backslashes + 1 : 0;
    out += c;
  }
  return out.append(n_backslashes, L'\\') + L'"';
}

// The byte that is locked, behind all that a file holds: locks of Windows keep others from reading.
OVERLAPPED lock_place() {
  OVERLAPPED place = {};
  place.OffsetHigh = 0x40000000;
  return place;
}

}  // namespace

std::optional<FileAbout> about_file(const std::string& path) {
  const OpenFile file(path, 0, OPEN_EXISTING);
  BY_HANDLE_FILE_INFORMATION about = {};
  if (!file.is_open()) return std::nullopt;
  if (::GetFileType(file.get()) != FILE_TYPE_DISK) return FileAbout{.kind = FileKind::kDevice};
  if (!done(::GetFileInformationByHandle(file.get(), &about))) return std::nullopt;
  // Counted in 100 ns since 1601.
  constexpr std::uint64_t kUnixEpoch = 116'444'736'000'000'000;
  constexpr std::uint64_t kPerSecond = 10'000'000;
  const std::uint64_t time = (std::uint64_t{about.ftLastWriteTime.dwHighDateTime} << 32 |
                              about.ftLastWriteTime.dwLowDateTime) -
                             kUnixEpoch;
  const bool is_folder = (about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
  return FileAbout{.kind = is_folder ? FileKind::kFolder : FileKind::kRegular,
                   .number = std::uint64_t{about.nFileIndexHigh} << 32 | about.nFileIndexLow,
                   .bytes = std::uint64_t{about.nFileSizeHigh} << 32 | about.nFileSizeLow,
                   .modified_s = static_cast<std::int64_t>(time / kPerSecond),
                   .modified_ns = static_cast<std::int64_t>(time % kPerSecond * 100)};
}

bool is_link(const std::string& path) {
  const DWORD attributes = ::GetFileAttributesW(wide_of(path).c_str());
  return attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0;
}

// Rights are lists that only an attempt takes into account.
bool is_writable_folder(const std::string& path) {
  const std::wstring name =
      wide_of(path + "/qsf-" + std::to_string(::GetCurrentProcessId()) + ".tmp");
  HANDLE file = ::CreateFileW(name.c_str(), GENERIC_WRITE, kShareAll, nullptr, CREATE_ALWAYS,
                              FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
  if (file == INVALID_HANDLE_VALUE) return fail();
  ::CloseHandle(file);
  return true;
}

std::optional<DiskSpace> disk_space(const std::string& path) {
  ULARGE_INTEGER ours = {};
  ULARGE_INTEGER all = {};
  if (!done(::GetDiskFreeSpaceExW(wide_of(path).c_str(), &ours, &all, nullptr))) {
    return std::nullopt;
  }
  return DiskSpace{.bytes = all.QuadPart, .free_bytes = ours.QuadPart};
}

bool read_first_bytes(const std::string& path, char* to, std::size_t n_bytes) {
  const OpenFile file(path, GENERIC_READ, OPEN_EXISTING);
  DWORD n_read = 0;
  return file.is_open() &&
         done(::ReadFile(file.get(), to, static_cast<DWORD>(n_bytes), &n_read, nullptr)) &&
         n_read == n_bytes;
}

bool write_new_file(const std::string& path, std::string_view text) {
  const OpenFile file(path, GENERIC_WRITE, CREATE_NEW);
  if (!file.is_open()) return false;
  while (!text.empty()) {
    constexpr std::size_t kMost = std::size_t{1} << 20;
    DWORD n_written = 0;
    const auto n = static_cast<DWORD>(text.size() < kMost ? text.size() : kMost);
    if (!done(::WriteFile(file.get(), text.data(), n, &n_written, nullptr))) return false;
    text.remove_prefix(n_written);
  }
  return done(::FlushFileBuffers(file.get()));
}

bool replace_file(const std::string& from, const std::string& to) {
  return done(::MoveFileExW(wide_of(from).c_str(), wide_of(to).c_str(),
                            MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH));
}

bool remove_file(const std::string& path) {
  return done(::DeleteFileW(wide_of(path).c_str()));
}

bool touch_file(const std::string& path) {
  const OpenFile file(path, FILE_WRITE_ATTRIBUTES, OPEN_EXISTING);
  FILETIME now = {};
  ::GetSystemTimeAsFileTime(&now);
  return file.is_open() && done(::SetFileTime(file.get(), nullptr, nullptr, &now));
}

std::string this_process() {
  return std::to_string(::GetCurrentProcessId());
}

bool is_running(long process) {
  HANDLE handle = ::OpenProcess(SYNCHRONIZE, FALSE, static_cast<DWORD>(process));
  if (handle == nullptr) return ::GetLastError() == ERROR_ACCESS_DENIED;
  const bool runs = ::WaitForSingleObject(handle, 0) == WAIT_TIMEOUT;
  ::CloseHandle(handle);
  return runs;
}

int run_program(const std::string& program, std::vector<std::string> arguments) {
  std::wstring line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += L' ';
    line += quoted_argument(argument);
  }
  SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
  HANDLE nothing =
      ::CreateFileW(L"NUL", GENERIC_READ, kShareAll, &inherited, OPEN_EXISTING, 0, nullptr);
  STARTUPINFOW start = {};
  start.cb = sizeof start;
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = nothing;
  start.hStdOutput = start.hStdError = ::GetStdHandle(STD_ERROR_HANDLE);
  ::SetHandleInformation(start.hStdError, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
  PROCESS_INFORMATION child = {};
  const BOOL started = ::CreateProcessW(wide_of(program).c_str(), line.data(), nullptr, nullptr,
                                        TRUE, 0, nullptr, nullptr, &start, &child);
  ::CloseHandle(nothing);
  if (started == 0) return 127;
  ::CloseHandle(child.hThread);
  ::WaitForSingleObject(child.hProcess, INFINITE);
  DWORD code = 127;
  ::GetExitCodeProcess(child.hProcess, &code);
  ::CloseHandle(child.hProcess);
  return static_cast<int>(code & 0xFFU);
}

FileLock::~FileLock() {
  if (is_open()) ::CloseHandle(reinterpret_cast<HANDLE>(handle_));
}

bool FileLock::open(const std::string& path) {
  handle_ = reinterpret_cast<std::intptr_t>(open_handle(path, GENERIC_READ, OPEN_EXISTING));
  return is_open() || fail();
}

bool FileLock::create(const std::string& path) {
  handle_ =
      reinterpret_cast<std::intptr_t>(open_handle(path, GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS));
  return is_open() || fail();
}

FileLock::Tried FileLock::try_lock(bool shared) const {
  OVERLAPPED place = lock_place();
  const DWORD flags = LOCKFILE_FAIL_IMMEDIATELY | (shared ? 0 : LOCKFILE_EXCLUSIVE_LOCK);
  if (::LockFileEx(reinterpret_cast<HANDLE>(handle_), flags, 0, 1, 0, &place) != 0) {
    return Tried::kLocked;
  }
  const DWORD error = ::GetLastError();
  fail();
  return error == ERROR_LOCK_VIOLATION || error == ERROR_IO_PENDING ? Tried::kHeldByOther
                                                                    : Tried::kFailed;
}

bool FileLock::lock() const {
  OVERLAPPED place = lock_place();
  return done(
      ::LockFileEx(reinterpret_cast<HANDLE>(handle_), LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &place));
}

}  // namespace qsf_tools
