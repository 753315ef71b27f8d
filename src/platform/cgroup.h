// SPDX-License-Identifier: MIT
//
// The control groups of this process, as folders with files that hold their limits.
//
// The limits of all ancestors apply, so the list contains them. Both versions are read: on many
// machines some controllers still use version 1.

#ifndef QSF_PLATFORM_CGROUP_H_
#define QSF_PLATFORM_CGROUP_H_

#include <string>
#include <string_view>
#include <vector>

namespace qsf {

struct CgroupFolder {
  std::string path;        // "/sys/fs/cgroup/memory/box"
  bool version_2 = false;  // false: version 1, with a hierarchy for each controller
};

// Returns the folders of this process's group and of all its ancestors under `controller` ("cpu",
// "memory"), nearest first. Folders need not exist: a container sees only its own part of the tree.
// `root` is a prefix of /proc and /sys for tests; empty on a real machine.
std::vector<CgroupFolder> cgroup_folders(const std::string& root, std::string_view controller);

// Reads a small text file of the system; empty when there is none.
std::string read_system_text(const std::string& path);

}  // namespace qsf

#endif  // QSF_PLATFORM_CGROUP_H_
