// SPDX-License-Identifier: MIT
//
// qsf cache: lists and removes the models that `qsf run` has converted.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/common/file_path.h"
#include "tools/common/model_cache.h"
#include "tools/common/option_parser.h"
#include "tools/common/programs.h"
#include "tools/common/tool_support.h"

namespace qsf_tools {
namespace {

namespace fs = std::filesystem;

struct CacheOptions {
  CacheSettings settings;
  bool clear = false;
  std::string model;  // empty: all
};

std::string text_of(std::time_t time) {
  char text[32];
  const std::tm* const local = std::localtime(&time);  // nobody else asks meanwhile
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", local);
  return text;
}

std::string file_name(const std::string& path) {
  return path_text(file_path(path).filename());
}

// Whether a user who types `model` means this entry: by its source, or by the name of either file.
bool is_meant(const CacheEntry& entry, const std::string& model) {
  std::error_code failure;
  return model.empty() || entry.source == path_text(fs::absolute(file_path(model), failure)) ||
         file_name(entry.source) == model || file_name(entry.path) == file_name(model);
}

void list(const std::string& folder, const std::vector<CacheEntry>& entries,
          const CacheOptions& options) {
  std::uint64_t total = 0;
  std::printf("%12s  %-16s  %s\n", "size", "last use", "source");
  for (const CacheEntry& entry : entries) {
    total += entry.bytes;
    const std::string source = entry.source.empty() ? file_name(entry.path) : entry.source;
    std::printf("%12s  %-16s  %s\n", megabytes(entry.bytes).c_str(),
                text_of(entry.last_use).c_str(), for_terminal(valid_utf8(source)).c_str());
  }
  std::printf("%12s  of at most %s in %s\n", megabytes(total).c_str(),
              megabytes(cache_limit(options.settings, folder)).c_str(), folder.c_str());
}

int clear(const std::vector<CacheEntry>& entries) {
  std::uint64_t removed_bytes = 0;
  int exit_code = kSuccess;
  for (const CacheEntry& entry : entries) {
    switch (remove_entry(entry)) {
      case Removal::kRemoved: removed_bytes += entry.bytes; break;
      case Removal::kInUse:
        print_error(program_name(), entry.path + ": in use, not removed");
        exit_code = kFailure;
        break;
      case Removal::kFailed:
        print_error(program_name(), entry.path + ": " + std::strerror(errno));
        exit_code = kFailure;
        break;
    }
  }
  std::printf("removed %s\n", megabytes(removed_bytes).c_str());
  return exit_code;
}

int run(const CacheOptions& options) {
  std::string problem;
  const auto folder = cache_folder(options.settings, problem);
  if (!folder) {
    print_error(program_name(), problem);
    return kFailure;
  }
  std::vector<CacheEntry> entries = list_cache(*folder);
  std::erase_if(entries, [&](const CacheEntry& entry) { return !is_meant(entry, options.model); });
  if (entries.empty() && !options.model.empty()) {
    print_error(program_name(),
                options.model + ": no such model in " + *folder + "; qsf cache lists them");
    return kFailure;
  }
  int exit_code = kSuccess;
  if (options.clear) {
    exit_code = clear(entries);
  } else {
    list(*folder, entries, options);
  }
  if (std::fflush(stdout) == 0) return exit_code;
  print_error(program_name(), "standard output: cannot be written");
  return kFailure;
}

}  // namespace

int cache_main(int argc, char** argv) {
  CacheOptions options;
  OptionParser parser(
      "Lists the models that qsf run has converted, with size, last use and source, or removes "
      "them.\nqsf run converts a GGUF file or a Hugging Face folder once, into this cache, and "
      "removes the models used longest ago when the cache exceeds its limit.");
  parser.flag("--clear", options.clear, "Remove the models, except those in use");
  parser
      .value("-m,--model", options.model,
             "List or remove one model: the path of its source, or a file name that the list shows")
      .type_name("MODEL");
  add_cache_options(parser, options.settings);
  if (const auto exit_code = parser.parse(argc, argv)) return *exit_code;
  return run(options);
}

}  // namespace qsf_tools
