/* SPDX-License-Identifier: MIT
 *
 * The prefix cache: prompts that begin alike are computed once. A part of qsf/qsf.h, which has the
 * conventions and includes it.
 *
 * The cache keeps whole pages of the KV cache, of 64 tokens each, by their tokens and by a key of
 * the caller, such as an API key: generations of different keys share nothing, so none can tell by
 * its time what others asked. A generation with a prefix_key whose session is empty begins with the
 * longest run of pages that its prompt begins with; the last token of a prompt is always computed.
 * Each part of its prompt enters once it is computed, also if the generation is cancelled later.
 *
 * Only rows of prompts enter, whose values follow from the tokens alone: a generation gives the
 * same text with any content of the cache. Rows of session files do not enter.
 *
 * Pages that leave memory can go to files of a bounded folder. A later prompt that begins with them
 * reads them instead of computing them.
 *
 * Pages that no session holds count as free ones. When pages are taken, the least recently used of
 * them are evicted; no admission and no row waits for them.
 */
#ifndef QSF_PREFIX_CACHE_H_
#define QSF_PREFIX_CACHE_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* True: plans the cache, up to 576 bytes a page of the KV cache. qsf_config_set_kv_positions
 * may then ask for more positions than all sessions can hold.
 * Errors of opening  QSF_UNSUPPORTED: a KV policy but QSF_KV_POLICY_FULL; QSF_ATTENTION_H2O or
 *                    QSF_ATTENTION_SYMMETRIC
 * Default            false */
QSF_API void qsf_config_set_prefix_cache(QSFConfig* config, int prefix_cache);
/* True: generated rows enter too, at the end of their generation, so that the next turn of a
 * conversation does not compute its last answer again. Generated rows have other values than the
 * same tokens in a prompt: a text may then depend on what is in the cache.
 * Errors of opening  QSF_INVALID_ARGUMENT without qsf_config_set_prefix_cache
 * Default            false */
QSF_API void qsf_config_set_reuse_answers(QSFConfig* config, int reuse_answers);

/* Keeps pages that leave the cache in files of `folder`, at most `max_bytes` in all, the oldest
 * removed first; NULL: drops them. The folder exists, and is no other engine's. Files are the
 * owner's alone (mode 0600) and removed when the engine is freed; keys and tokens are not in them.
 * A file that was changed is refused. An error of the disk is logged, and what is missing computed.
 * The plan gains up to 40 bytes a file, of 65,536 files at most. A step writes 8 pages and reads 8
 * at most; whoever waits for more has no rows in it (qsf_step_counts.n_reading).
 * Errors of opening  QSF_INVALID_ARGUMENT: without qsf_config_set_prefix_cache, or no room for a
 *                    page; QSF_UNSUPPORTED: with qsf_config_set_kv_spill; QSF_IO: no such folder
 * Default            NULL */
QSF_API void qsf_config_set_prefix_folder(QSFConfig* config, const char* folder,
                                          uint64_t max_bytes);

/* What the cache holds, and counts since the engine was opened. Generations are counted when they
 * are admitted, those without a prefix_key not at all. */
typedef struct qsf_prefix_stats {
  size_t struct_size;
  int keys;       /* with pages */
  int entries;    /* prefixes that no other one continues */
  int pages;      /* held, each of 64 tokens */
  int idle_pages; /* of them, held by no session: they count as free */
  uint64_t hits;  /* generations that began with at least a page */
  uint64_t hit_tokens;
  uint64_t misses_no_entry;  /* nothing begins like the prompt */
  uint64_t misses_other_key; /* its first page is there, under another key */
  uint64_t misses_too_short; /* no whole page before its last token */
  uint64_t continued;        /* the session held tokens already: no look-up */
  uint64_t evicted_pages;
  /* Of the folder. */
  uint64_t folder_files; /* held */
  uint64_t folder_bytes; /* the same */
  uint64_t folder_hits;  /* of the hits, those that read at least a page */
  uint64_t folder_hit_tokens;
  uint64_t folder_bytes_written;
  uint64_t folder_bytes_read;
  uint64_t folder_removed_files; /* for others */
  uint64_t folder_dropped_pages; /* not written: more left in one step than are written */
  uint64_t folder_write_errors;  /* pages that were lost, and so below */
  uint64_t folder_read_errors;   /* changed files included */
} qsf_prefix_stats;
/* Fills *stats, with 0 without a prefix cache. */
QSF_API qsf_code qsf_engine_prefix_stats(const QSFEngine* engine, qsf_prefix_stats* stats,
                                         qsf_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* QSF_PREFIX_CACHE_H_ */
