// SPDX-License-Identifier: MIT
//
// Checks that a conversion makes before it works for hours: the input is a model, the outputs can
// be written and are no files of the input, the disk has room, and the memory budget is large
// enough.

#ifndef QSF_TOOLS_CONVERT_CONVERT_CHECKS_H_
#define QSF_TOOLS_CONVERT_CONVERT_CHECKS_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "convert/encode/transcode.h"
#include "import/model_source.h"
#include "tools/convert/convert_options.h"

namespace qsf_tools {

// Refuses a path that is no folder and no GGUF file. Opens regular files only, so that it never
// waits for a FIFO.
// Fails  kNotFound, kIo, kInvalidArgument
qsf::Status check_input(const std::string& input);

// Refuses an output that is one of the files of the input: of a folder every file but .qsf files;
// of a GGUF file the file itself and, because a model may be in parts, every GGUF file beside it.
qsf::Status check_output(const std::string& input, const std::string& output);

// Refuses a --report that is one of the other files, or cannot be written.
qsf::Status check_report_file(const ConvertOptions& options);

// Refuses a disk that has less room than the file takes.
// Fails  kIo
qsf::Status check_room(const std::string& output, std::uint64_t file_bytes);

// Returns whether two names name one file, which need not exist.
bool is_same_file(const std::string& a, const std::string& b);

// Returns whether a file can be created under a name: makes one, and removes it.
qsf::Status check_writable(const std::string& path);

// Returns the bytes of the program as it is now, of threads, and of the smallest useful page cache.
std::uint64_t program_bytes(unsigned n_threads);

// Returns the bytes that a conversion takes beside the program and its inputs: tiles, rows, threads
// and the smallest useful page cache.
std::uint64_t conversion_bytes(const qsf::ModelSource& source, const qsf::TranscodeOptions& options,
                               bool gptq);

// Lowers options.n_threads and sets max_cached_bytes so that the whole process stays below the
// budget. `gptq`: error compensation takes all of the budget that conversion_bytes() leaves.
// Fails  kOutOfBudget, naming the smallest budget, where not even one thread fits
qsf::Status fit_budget(const qsf::ModelSource& source, std::uint64_t budget_bytes, bool gptq,
                       qsf::TranscodeOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_CONVERT_CONVERT_CHECKS_H_
