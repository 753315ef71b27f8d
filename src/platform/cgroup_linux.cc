// SPDX-License-Identifier: MIT
//
// Finding control groups by /proc/self/cgroup.

#include <algorithm>
#include <cstdio>

#include "platform/cgroup.h"

namespace qsf {

std::string read_system_text(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return {};
  std::string text(16384, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

std::vector<CgroupFolder> cgroup_folders(const std::string& root, std::string_view controller) {
  std::vector<CgroupFolder> folders;
  const std::string wanted = "," + std::string(controller) + ",";
  // Lines are "hierarchy:controllers:path"; version 2 has no controllers.
  const std::string groups = read_system_text(root + "/proc/self/cgroup");
  std::string_view rest = groups;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(wanted) == controllers.npos) continue;
    const std::string mount =
        root + "/sys/fs/cgroup" + (version_2 ? "" : "/" + std::string(controller));
    std::string path(line.substr(second + 1));
    while (!path.empty() && path != "/") {
      folders.push_back({mount + path, version_2});
      path.resize(std::min(path.find_last_of('/'), path.size() - 1));
    }
    folders.push_back({mount, version_2});
  }
  return folders;
}

}  // namespace qsf
