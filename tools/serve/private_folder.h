// SPDX-License-Identifier: MIT
//
// Folders of the server, for its user alone.

#ifndef QSF_TOOLS_SERVE_PRIVATE_FOLDER_H_
#define QSF_TOOLS_SERVE_PRIVATE_FOLDER_H_

#include <cstdint>
#include <string>

namespace qsf_tools {

// Returns the folder that the system has for temporary files.
std::string temporary_folder();

// Makes a folder of a new name in `parent`: "qsf-serve-" and more. Writes it to `path`.
// Returns what is wrong, empty for nothing.
std::string make_session_folder(const std::string& parent, std::string& path);

// Makes a folder in one that is this user's alone. Returns what is wrong, empty for nothing.
std::string make_inner_folder(const std::string& path);

// A folder of this user alone that one process at a time holds.
class HeldFolder {
 public:
  HeldFolder() = default;
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  // Makes the folder where it is missing, and holds it. Returns what is wrong, empty for nothing.
  std::string hold(const std::string& path);
  bool is_held() const noexcept { return handle_ != -1; }

 private:
  std::intptr_t handle_ = -1;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_PRIVATE_FOLDER_H_
