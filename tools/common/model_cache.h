// SPDX-License-Identifier: MIT
//
// The cache of converted models: a GGUF file or a Hugging Face folder is converted once, by a child
// process that runs `qsf convert`.
//
// An entry is a .qsf file in $XDG_CACHE_HOME/qsf/converted, ~/.cache/qsf/converted, on Windows
// %LOCALAPPDATA%/qsf/converted, or the folder of --cache-dir. Its name holds the name of the model
// and two numbers: one for the source (inode, size and time of change of its files) and one for the
// program that converted it and its options. A source that was moved keeps its entry, a changed
// source is converted again. Beside an entry lies NAME.qsf.source: the path of the source, changed
// at each use. Removing the folder is always safe.
//
// Threads: one. Processes may share a cache: of several that need the same entry one converts.

#ifndef QSF_TOOLS_COMMON_MODEL_CACHE_H_
#define QSF_TOOLS_COMMON_MODEL_CACHE_H_

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

namespace qsf_tools {

class OptionParser;

struct CacheSettings {
  std::string folder;           // empty: the default
  std::uint64_t max_bytes = 0;  // of all entries; 0: $QSF_CACHE_SIZE, or the default
};

// Declares --cache-dir and --cache-size.
void add_cache_options(OptionParser& parser, CacheSettings& settings);

// Returns whether a path names a GGUF file, by its first bytes or its name.
bool is_gguf_path(const std::string& path);

// Returns whether a path names a model that is converted before it runs: a GGUF file or a folder.
bool needs_conversion(const std::string& path);

// Returns what is wrong with the path of a model, as far as that can be seen without reading a
// file, so that nothing waits for a FIFO; empty for nothing.
std::string check_model_path(const std::string& path);

// Returns the .qsf file of a GGUF file or a Hugging Face folder, which is not removed from the
// cache while this process runs. Converts the model first where the cache lacks it: `i2s_layout` is
// passed to `qsf convert`, whose messages go to standard error, and `quiet` leaves errors and
// warnings. After a conversion the entries that were used longest ago are removed, until the rest
// is within settings.max_bytes. On failure returns nothing and says in `error` what is wrong and
// what to do.
std::optional<std::string> converted_model(const std::string& path, const std::string& i2s_layout,
                                           bool quiet, std::string& error,
                                           const CacheSettings& settings = {});

struct CacheEntry {
  std::string path;
  std::string source;  // empty: not known
  std::uint64_t bytes = 0;
  std::time_t last_use = 0;
};

// Returns the folder of the cache, which is not made; nothing with the reason in `error` where the
// environment names no place for it.
std::optional<std::string> cache_folder(const CacheSettings& settings, std::string& error);

// Returns the bound of a cache in `folder`.
std::uint64_t cache_limit(const CacheSettings& settings, const std::string& folder);

// Returns the entries, the newest use first. A folder that does not exist has none.
std::vector<CacheEntry> list_cache(const std::string& folder);

enum class Removal { kRemoved, kInUse, kFailed };
// Removes an entry that no process uses. kFailed: errno has the reason.
Removal remove_entry(const CacheEntry& entry);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_MODEL_CACHE_H_
