// SPDX-License-Identifier: MIT
//
// Tells a program that something happened to its console, as Windows does: by a thread in it that
// runs CtrlRoutine. Wine does not tell when its consoles are closed.
//
//   console_event PROGRAM EVENT    EVENT: 0 Ctrl-C, 1 Ctrl-Break, 2 closed, 5 logged off, 6 shut
//   down
//
// PROGRAM is a file name; of several of that name, the first is told. Exit status 0: it was told.

#include <windows.h>
// Needs the types of windows.h.
#include <tlhelp32.h>

#include <cstdio>
#include <cstdlib>
#include <cwchar>

namespace {

// Returns the number of a running program, 0 for none.
DWORD find_program(const wchar_t* name) {
  HANDLE all = ::CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
  PROCESSENTRY32W entry = {};
  entry.dwSize = sizeof entry;
  DWORD found = 0;
  for (BOOL more = ::Process32FirstW(all, &entry); more != 0 && found == 0;
       more = ::Process32NextW(all, &entry)) {
    if (::_wcsicmp(entry.szExeFile, name) == 0) found = entry.th32ProcessID;
  }
  ::CloseHandle(all);
  return found;
}

}  // namespace

int wmain(int argc, wchar_t** argv) {
  if (argc != 3) return 2;
  const DWORD number = find_program(argv[1]);
  HANDLE program = ::OpenProcess(PROCESS_ALL_ACCESS, FALSE, number);
  // At the same address in every process.
  FARPROC routine = ::GetProcAddress(::GetModuleHandleW(L"kernelbase"), "CtrlRoutine");
  if (number == 0 || program == nullptr || routine == nullptr) {
    std::fprintf(stderr, "console_event: no such program, or no CtrlRoutine\n");
    return EXIT_FAILURE;
  }
  const auto event = static_cast<ULONG_PTR>(std::wcstoul(argv[2], nullptr, 10));
  HANDLE thread = ::CreateRemoteThread(
      program, nullptr, 0,
      reinterpret_cast<LPTHREAD_START_ROUTINE>(reinterpret_cast<void*>(routine)),
      reinterpret_cast<void*>(event), 0, nullptr);
  return thread == nullptr ? EXIT_FAILURE : EXIT_SUCCESS;
}
