// SPDX-License-Identifier: MIT

#include "tools/convert/convert_checks.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "io/atomic_file.h"
#include "io/file.h"
#include "platform/memory_limits.h"
#include "tools/common/file_path.h"
#include "tools/common/system_files.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace fs = std::filesystem;

namespace {

// Recognises a GGUF file by its name or its first bytes.
qsf::Result<bool> is_gguf(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  if (path.ends_with(".gguf")) return true;
  QSF_ASSIGN_OR_RETURN(const qsf::File file, qsf::File::open(path));
  std::byte start[kMagic.size()];
  if (file.size_bytes() < sizeof start) return false;
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, start));
  return qsf::as_text(start) == kMagic;
}

}  // namespace

qsf::Status check_input(const std::string& input) {
  std::error_code failure;
  const fs::file_status status = fs::status(file_path(input), failure);
  if (status.type() == fs::file_type::not_found) {
    return qsf::not_found("%s: no such file or folder", input.c_str());
  }
  if (status.type() == fs::file_type::directory) return qsf::ok_status();
  if (status.type() != fs::file_type::regular) {
    return qsf::invalid_argument("%s: neither a file nor a folder; expected a model",
                                 input.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const bool gguf, is_gguf(input));
  if (gguf) return qsf::ok_status();
  return qsf::invalid_argument(
      "%s: not a folder and not a GGUF file; expected a GGUF file, or a folder with config.json "
      "and safetensors or pytorch_model.bin",
      input.c_str());
}

qsf::Status check_output(const std::string& input, const std::string& output) {
  std::error_code failure;
  if (!fs::exists(file_path(output), failure)) return qsf::ok_status();
  const bool is_folder = fs::is_directory(file_path(input), failure);
  const fs::path folder =
      is_folder ? file_path(input) : fs::absolute(file_path(input), failure).parent_path();
  const auto is_input = [&](const fs::path& path) {
    std::error_code ignored;
    if (is_folder) return path.extension() != ".qsf";
    return path.extension() == ".gguf" || fs::equivalent(path, file_path(input), ignored);
  };
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    std::error_code ignored;
    if (is_input(entry->path()) && fs::equivalent(entry->path(), file_path(output), ignored)) {
      return qsf::invalid_argument("%s: this is a file of the input; choose another output",
                                   output.c_str());
    }
  }
  return qsf::ok_status();
}

qsf::Status check_report_file(const ConvertOptions& options) {
  if (options.report.empty()) return qsf::ok_status();
  QSF_RETURN_IF_ERROR(check_output(options.input, options.report).with_context("--report"));
  for (const std::string& other : {options.output, options.calibration, options.calibration_out}) {
    if (!other.empty() && is_same_file(options.report, other)) {
      return qsf::invalid_argument("--report %s: this is %s; choose another name",
                                   options.report.c_str(), other.c_str());
    }
  }
  return check_writable(options.report).with_context("--report");
}

qsf::Status check_room(const std::string& output, std::uint64_t file_bytes) {
  std::error_code failure;
  const std::string folder = path_text(fs::absolute(file_path(output), failure).parent_path());
  const std::optional<DiskSpace> disk = disk_space(folder);
  // A file system that does not say fails when it is written to.
  if (failure || !disk || disk->bytes == 0) return qsf::ok_status();
  const std::uint64_t free_bytes = disk->free_bytes;
  if (free_bytes >= file_bytes) return qsf::ok_status();
  return qsf::io_error(
      "%s: no room: the file takes %s, and %s has %s free; make room there, or write to another "
      "disk",
      output.c_str(), megabytes(file_bytes).c_str(), folder.c_str(), megabytes(free_bytes).c_str());
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code failure;
  if (fs::equivalent(file_path(a), file_path(b), failure)) return true;
  const fs::path whole_a = fs::weakly_canonical(fs::absolute(file_path(a), failure), failure);
  const fs::path whole_b = fs::weakly_canonical(fs::absolute(file_path(b), failure), failure);
  return !whole_a.empty() && whole_a == whole_b;
}

qsf::Status check_writable(const std::string& path) {
  auto file = qsf::AtomicFile::create(path);
  return file ? qsf::ok_status() : std::move(file).error();
}

namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;
// Heap overhead, stacks of threads, directories and reports.
constexpr std::uint64_t kHeapSlackBytes = 3 * kMegabyte;
constexpr std::uint64_t kThreadSlackBytes = kMegabyte / 2;
// Read-ahead and write-back of the kernel.
constexpr std::uint64_t kMinCachedBytes = 4 * kMegabyte;
constexpr std::uint64_t kMaxCachedBytes = 256 * kMegabyte;  // more makes nothing faster
// The kernel drops pages a while after it was asked to, and reads ahead.
constexpr std::uint64_t kCachedShare = 2;

std::uint64_t needed_bytes(const qsf::ModelSource& source, const qsf::TranscodeOptions& options,
                           bool gptq, const qsf::ProgramMemory& program) {
  return program.file_bytes + program.anonymous_bytes + program.stack_bytes + kHeapSlackBytes +
         conversion_bytes(source, options, gptq);
}

}  // namespace

std::uint64_t program_bytes(unsigned n_threads) {
  const qsf::ProgramMemory program = qsf::program_memory();
  return program.file_bytes + program.anonymous_bytes + program.stack_bytes + kHeapSlackBytes +
         n_threads * kThreadSlackBytes + kMinCachedBytes;
}

std::uint64_t conversion_bytes(const qsf::ModelSource& source, const qsf::TranscodeOptions& options,
                               bool gptq) {
  return qsf::transcode_memory_bytes(source, options, gptq) +
         options.n_threads * kThreadSlackBytes + kMinCachedBytes;
}

qsf::Status fit_budget(const qsf::ModelSource& source, std::uint64_t budget_bytes, bool gptq,
                       qsf::TranscodeOptions& options) {
  const qsf::ProgramMemory program = qsf::program_memory();
  while (options.n_threads > 1 && needed_bytes(source, options, gptq, program) > budget_bytes) {
    --options.n_threads;
  }
  const std::uint64_t needed = needed_bytes(source, options, gptq, program);
  if (needed > budget_bytes) {
    return qsf::out_of_budget(
        "--ram-budget %s: too small: this conversion takes %s with one thread; raise the budget to "
        "%llu, or lower --tile-bytes",
        megabytes(budget_bytes).c_str(), megabytes(needed).c_str(),
        static_cast<unsigned long long>(qsf::ceil_div(needed, kMegabyte)));
  }
  // GPTQ runs the model in all of the memory that is left.
  const std::uint64_t left = gptq ? 0 : budget_bytes - needed;
  options.max_cached_bytes = std::min((left + kMinCachedBytes) / kCachedShare, kMaxCachedBytes);
  return qsf::ok_status();
}

}  // namespace qsf_tools
