// SPDX-License-Identifier: MIT
//
// Folders are this user's alone by an access list that names no other, and takes none over from the
// folder around.

#include <windows.h>
// Need the types of windows.h.
#include <aclapi.h>
#include <sddl.h>

#include <string>

#include "tools/common/system_files.h"
#include "tools/common/windows_text.h"
#include "tools/serve/private_folder.h"

namespace qsf_tools {

namespace {

// Memory that Windows gave, freed at the end.
class LocalMemory {
 public:
  LocalMemory() = default;
  ~LocalMemory() { ::LocalFree(memory_); }
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;
  template <typename Pointer>
  Pointer as() const {
    return static_cast<Pointer>(memory_);
  }
  template <typename Pointer>
  Pointer* to() {
    return reinterpret_cast<Pointer*>(&memory_);
  }

 private:
  void* memory_ = nullptr;
};

std::string error_text(DWORD error) {
  switch (error) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND: return "No such file or directory";
    case ERROR_ACCESS_DENIED: return "Permission denied";
    case ERROR_DISK_FULL: return "No space left on device";
    default: return "Windows error " + std::to_string(error);
  }
}

// Who runs this process.
class ThisUser {
 public:
  ThisUser() {
    HANDLE token = nullptr;
    DWORD size = 0;
    if (::OpenProcessToken(::GetCurrentProcess(), TOKEN_QUERY, &token) == 0) return;
    is_known_ = ::GetTokenInformation(token, TokenUser, bytes_, sizeof bytes_, &size) != 0;
    ::CloseHandle(token);
  }
  bool is_known() const { return is_known_; }
  PSID sid() const { return reinterpret_cast<const TOKEN_USER*>(bytes_)->User.Sid; }

 private:
  alignas(TOKEN_USER) unsigned char bytes_[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE] = {};
  bool is_known_ = false;
};

// Makes a folder that its user alone may open. Returns an error of Windows, 0 for none.
DWORD make_folder(const std::string& path) {
  const ThisUser user;
  LocalMemory name;
  LocalMemory descriptor;
  if (!user.is_known() || ::ConvertSidToStringSidW(user.sid(), name.to<wchar_t*>()) == 0) {
    return ::GetLastError();
  }
  // Owner; a list that is protected from that of the folder around, and gives the user everything
  // here and in what is made inside.
  const std::wstring sid = name.as<const wchar_t*>();
  const std::wstring rule = L"O:" + sid + L"D:P(A;OICI;FA;;;" + sid + L")";
  if (::ConvertStringSecurityDescriptorToSecurityDescriptorW(
          rule.c_str(), SDDL_REVISION_1, descriptor.to<PSECURITY_DESCRIPTOR>(), nullptr) == 0) {
    return ::GetLastError();
  }
  SECURITY_ATTRIBUTES attributes = {.nLength = sizeof attributes,
                                    .lpSecurityDescriptor = descriptor.as<void*>(),
                                    .bInheritHandle = FALSE};
  return ::CreateDirectoryW(wide_of(path).c_str(), &attributes) != 0 ? 0 : ::GetLastError();
}

// Whether a folder is this user's, and its list lets nobody else in but the system and its
// administrators, who can get in anyway.
bool is_private(HANDLE folder) {
  const ThisUser user;
  LocalMemory descriptor;
  PSID owner = nullptr;
  PACL list = nullptr;
  if (!user.is_known() ||
      ::GetSecurityInfo(folder, SE_FILE_OBJECT,
                        OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION, &owner, nullptr,
                        &list, nullptr, descriptor.to<PSECURITY_DESCRIPTOR>()) != ERROR_SUCCESS ||
      list == nullptr || ::EqualSid(owner, user.sid()) == 0) {
    return false;
  }
  for (DWORD i = 0; i < list->AceCount; ++i) {
    void* entry = nullptr;
    if (::GetAce(list, i, &entry) == 0) return false;
    const auto* const allowed = static_cast<const ACCESS_ALLOWED_ACE*>(entry);
    if (allowed->Header.AceType == ACCESS_DENIED_ACE_TYPE) continue;
    if (allowed->Header.AceType != ACCESS_ALLOWED_ACE_TYPE) return false;
    PSID who = const_cast<DWORD*>(&allowed->SidStart);
    if (::EqualSid(who, user.sid()) == 0 && ::IsWellKnownSid(who, WinLocalSystemSid) == 0 &&
        ::IsWellKnownSid(who, WinBuiltinAdministratorsSid) == 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string temporary_folder() {
  std::wstring path(MAX_PATH + 1, L'\0');
  path.resize(::GetTempPathW(static_cast<DWORD>(path.size()), path.data()));
  while (!path.empty() && path.back() == L'\\') path.pop_back();
  return utf8_of(path);
}

std::string make_session_folder(const std::string& parent, std::string& path) {
  for (unsigned i = 0;; ++i) {
    // A folder that is there is that of a process which did not end by itself.
    const std::string name = parent + "/qsf-serve-" + this_process() + "-" + std::to_string(i);
    const DWORD error = make_folder(name);
    if (error == ERROR_ALREADY_EXISTS) continue;
    if (error != 0) return error_text(error);
    path = name;
    return {};
  }
}

std::string make_inner_folder(const std::string& path) {
  if (::CreateDirectoryW(wide_of(path).c_str(), nullptr) != 0) return {};
  return error_text(::GetLastError());
}

HeldFolder::~HeldFolder() {
  if (is_held()) ::CloseHandle(reinterpret_cast<HANDLE>(handle_));
}

std::string HeldFolder::hold(const std::string& path) {
  if (const DWORD error = make_folder(path); error != 0 && error != ERROR_ALREADY_EXISTS) {
    return error_text(error);
  }
  // Whoever asks for the right to add files here, and grants it to nobody else, is alone. Windows
  // does not ask for it where files are made by their path; only files of inner folders can be
  // renamed.
  HANDLE handle =
      ::CreateFileW(wide_of(path).c_str(), FILE_ADD_FILE | READ_CONTROL | FILE_READ_ATTRIBUTES,
                    FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr, OPEN_EXISTING,
                    FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
  if (handle == INVALID_HANDLE_VALUE) {
    const DWORD error = ::GetLastError();
    return error == ERROR_SHARING_VIOLATION ? "another server uses it; name another folder"
                                            : error_text(error);
  }
  BY_HANDLE_FILE_INFORMATION about = {};
  std::string wrong;
  if (::GetFileInformationByHandle(handle, &about) == 0) {
    wrong = error_text(::GetLastError());
  } else if ((about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0 ||
             (about.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) {
    wrong = "is no folder; remove it or name another folder";
  } else if (!is_private(handle)) {
    wrong = "is not this user's alone; remove it or name another folder";
  }
  if (!wrong.empty()) {
    ::CloseHandle(handle);
    return wrong;
  }
  handle_ = reinterpret_cast<std::intptr_t>(handle);
  return {};
}

}  // namespace qsf_tools
