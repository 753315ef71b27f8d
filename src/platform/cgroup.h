// SPDX-License-Identifier: MIT
//
// The control groups that this process belongs to, as folders of files that tell their limits.
//
// A limit of any ancestor binds, so callers ask for all of them. Both versions are read: on many
// machines some controllers are still those of version 1.

#ifndef QSF_PLATFORM_CGROUP_H_
#define QSF_PLATFORM_CGROUP_H_

#include <string>
#include <string_view>
#include <vector>

namespace qsf {

struct CgroupFolder {
  std::string path;        // "/sys/fs/cgroup/memory/box"
  bool version_2 = false;  // else of the controller's own hierarchy, version 1
};

// Returns the folders of this process's group and of all its ancestors under `controller` ("cpu",
// "memory"), nearest first; folders need not exist, as in a container that sees its own part of the
// tree alone. `root` goes in front of /proc and /sys; empty on a real machine.
std::vector<CgroupFolder> cgroup_folders(const std::string& root, std::string_view controller);

// Reads a small text file of the system; empty when there is none.
std::string read_system_text(const std::string& path);

}  // namespace qsf

#endif  // QSF_PLATFORM_CGROUP_H_
