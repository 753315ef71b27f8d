// SPDX-License-Identifier: MIT

#include "tools/convert/qsf_convert_memory.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "platform/memory_limits.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;
// What the heap takes beyond what is asked of it, the threads' stacks, directories and reports.
constexpr std::uint64_t kHeapSlackBytes = 3 * kMegabyte;
constexpr std::uint64_t kThreadSlackBytes = kMegabyte / 2;
// Reading and writing ahead of what is asked for.
constexpr std::uint64_t kMinCachedBytes = 4 * kMegabyte;
constexpr std::uint64_t kMaxCachedBytes = 256 * kMegabyte;  // more makes nothing faster
// The kernel forgets what is dropped a while after it was asked to, and reads ahead.
constexpr std::uint64_t kCachedShare = 2;

std::uint64_t needed_bytes(const qsf::ModelSource& source, const qsf::TranscodeOptions& options,
                           bool feeds_back, const qsf::ProgramMemory& program) {
  return program.file_bytes + program.anonymous_bytes + program.stack_bytes + kHeapSlackBytes +
         conversion_bytes(source, options, feeds_back);
}

}  // namespace

std::uint64_t conversion_bytes(const qsf::ModelSource& source, const qsf::TranscodeOptions& options,
                               bool feeds_back) {
  return qsf::transcode_memory_bytes(source, options, feeds_back) +
         options.n_threads * kThreadSlackBytes + kMinCachedBytes;
}

qsf::Status fit_budget(const qsf::ModelSource& source, std::uint64_t budget_bytes, bool feeds_back,
                       qsf::TranscodeOptions& options) {
  const qsf::ProgramMemory program = qsf::program_memory();
  while (options.n_threads > 1 &&
         needed_bytes(source, options, feeds_back, program) > budget_bytes) {
    --options.n_threads;
  }
  const std::uint64_t needed = needed_bytes(source, options, feeds_back, program);
  if (needed > budget_bytes) {
    return qsf::out_of_budget(
        "--ram-budget %s: this conversion takes %s with one thread; raise the budget to %llu, or "
        "lower --tile-bytes",
        megabytes(budget_bytes).c_str(), megabytes(needed).c_str(),
        static_cast<unsigned long long>(qsf::ceil_div(needed, kMegabyte)));
  }
  // What feeds errors back runs the model in all that is left.
  const std::uint64_t left = feeds_back ? 0 : budget_bytes - needed;
  options.max_cached_bytes = std::min((left + kMinCachedBytes) / kCachedShare, kMaxCachedBytes);
  return qsf::ok_status();
}

}  // namespace qsf_tools
