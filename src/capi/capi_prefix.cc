// SPDX-License-Identifier: MIT
//
// The prefix cache of the C API; the contract is include/qsf/prefix_cache.h.

#include "capi/capi_handles.h"

namespace qsf::capi {

namespace {

Status read_prefix_stats(const QSFEngine* engine, qsf_prefix_stats* stats) {
  if (engine == nullptr) return null_argument("engine");
  const PrefixCacheStats now = engine->engine->prefix_stats();
  qsf_prefix_stats out = {};
  out.keys = static_cast<int>(now.tree.n_keys);
  out.entries = static_cast<int>(now.tree.n_entries);
  out.pages = static_cast<int>(now.tree.n_pages);
  out.idle_pages = static_cast<int>(now.tree.n_idle_pages);
  out.hits = now.tree.n_hits;
  out.hit_tokens = now.tree.n_hit_tokens;
  out.misses_no_entry = now.tree.n_no_entry;
  out.misses_other_key = now.tree.n_other_key;
  out.misses_too_short = now.tree.n_too_short;
  out.continued = now.n_continued;
  out.evicted_pages = now.tree.n_evicted_pages;
  out.folder_files = now.folder.n_files;
  out.folder_bytes = now.folder.n_bytes;
  out.folder_hits = now.n_folder_hits;
  out.folder_hit_tokens = now.n_folder_hit_tokens;
  out.folder_bytes_written = now.folder.n_written_bytes;
  out.folder_bytes_read = now.folder.n_read_bytes;
  out.folder_removed_files = now.folder.n_removed;
  out.folder_dropped_pages = now.folder.n_dropped;
  out.folder_write_errors = now.folder.n_write_errors;
  out.folder_read_errors = now.folder.n_read_errors;
  return write_struct(out, "stats", stats);
}

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void qsf_config_set_prefix_cache(QSFConfig* config, int prefix_cache) {
  if (config != nullptr) config->prefix_cache = prefix_cache != 0;
}
void qsf_config_set_reuse_answers(QSFConfig* config, int reuse_answers) {
  if (config != nullptr) config->reuse_answers = reuse_answers != 0;
}
void qsf_config_set_prefix_folder(QSFConfig* config, const char* folder, uint64_t max_bytes) {
  if (config == nullptr) return;
  const qsf_code code = guarded(nullptr, [&] {
    config->prefix_folder = folder == nullptr ? "" : folder;
    return qsf::ok_status();
  });
  config->prefix_folder_lost = code != QSF_OK;
  config->prefix_folder_bytes = max_bytes;
}

qsf_code qsf_engine_prefix_stats(const QSFEngine* engine, qsf_prefix_stats* stats,
                                 qsf_error* error) {
  return guarded(error, [&] { return read_prefix_stats(engine, stats); });
}
