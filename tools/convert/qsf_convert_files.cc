// SPDX-License-Identifier: MIT

#include "tools/convert/qsf_convert_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"

namespace qsf_tools {

namespace fs = std::filesystem;

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code failure;
  if (fs::equivalent(a, b, failure)) return true;
  const fs::path whole_a = fs::weakly_canonical(fs::absolute(a, failure), failure);
  const fs::path whole_b = fs::weakly_canonical(fs::absolute(b, failure), failure);
  return !whole_a.empty() && whole_a == whole_b;
}

qsf::Status check_writable(const std::string& path) {
  auto file = qsf::AtomicFile::create(path);
  return file ? qsf::ok_status() : std::move(file).error();
}

}  // namespace qsf_tools
