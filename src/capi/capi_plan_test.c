/* SPDX-License-Identifier: MIT
 *
 * Memory plans of the public interface from a C11 program, of files and of open engines.
 *
 * Usage: capi_plan_test [MODEL.qsf]. Without a model only what needs none is tested.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

static int contains(const char* text, const char* part) {
  return strstr(text, part) != NULL;
}

/* The regions add up to the sum, each rounded up to a line. */
static void test_regions(const QSFPlan* plan, const qsf_plan_info* info) {
  uint64_t sum = 0;
  const int n = qsf_plan_region_count(plan);
  for (int i = 0; i < n; ++i) {
    qsf_memory_region region = {.struct_size = sizeof region};
    CHECK(qsf_plan_region(plan, i, &region, NULL) == QSF_OK);
    CHECK(strlen(region.name) > 0 && strlen(region.reason) > 0);
    sum += region.bytes;
  }
  CHECK(n > 10 && info->planned_bytes >= sum && info->planned_bytes < sum + 64 * (uint64_t)n);
  qsf_memory_region region = {.struct_size = sizeof region};
  qsf_error error;
  CHECK(qsf_plan_region(plan, n, &region, &error) == QSF_INVALID_ARGUMENT);
  CHECK(contains(error.message, "expected 0 to"));
}

/* After a budget that is too small: one of the size that was named works. */
static void test_refusal(const char* path) {
  uint64_t needed = 0;
  uint64_t budget = 0;
  CHECK(qsf_plan_get_refusal(&needed, &budget) && budget == 1000000);
  CHECK(needed > budget && needed % 1000000 == 0);
  QSFConfig* config = qsf_config_default();
  qsf_config_set_ram_budget(config, (size_t)(needed / 1000000));
  QSFPlan* plan = NULL;
  CHECK(qsf_plan_create(path, config, &plan, NULL) == QSF_OK);
  qsf_plan_free(plan);
  qsf_config_free(config);
  CHECK(!qsf_plan_get_refusal(&needed, NULL) && needed == 0);
  CHECK(!qsf_plan_get_refusal(NULL, &budget) && budget == 0);
}

/* A plan of a file is that of the engine that opens it, and a budget that it names is kept. */
static void test_plan(const char* path) {
  qsf_error error;
  QSFConfig* config = qsf_config_default();
  QSFPlan* plan = NULL;
  qsf_config_set_ram_budget(config, 1);
  CHECK(qsf_plan_create(path, config, &plan, &error) == QSF_OUT_OF_BUDGET && plan == NULL);
  CHECK(contains(error.message, "a budget of 1 MB is too small") &&
        contains(error.message, "it needs "));
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_OUT_OF_BUDGET && engine == NULL);
  test_refusal(path);

  qsf_config_set_ram_budget(config, 400);
  qsf_config_set_kv_spill(config, "/no/such/folder/keys");
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_IO && engine == NULL);
  CHECK(contains(error.message, "/no/such/folder/keys: cannot be created"));
  qsf_config_set_kv_spill(config, NULL);
  qsf_config_set_io(config, QSF_READ_PREAD);
  qsf_config_set_preload(config, 0);
  qsf_config_set_max_seq_len(config, 256);
  CHECK(qsf_plan_create(path, config, &plan, &error) == QSF_OK);
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_OK);
  qsf_config_free(config);
  qsf_plan_info planned = {.struct_size = sizeof planned};
  qsf_plan_info opened = {.struct_size = sizeof opened};
  CHECK(qsf_plan_get_info(plan, &planned, &error) == QSF_OK);
  CHECK(qsf_plan_get_info(qsf_engine_plan(engine), &opened, &error) == QSF_OK);
  CHECK(planned.budget_bytes == 400000000 && planned.budget_named == 1);
  CHECK(planned.planned_bytes <= planned.budget_bytes);
  CHECK(opened.planned_bytes <= opened.budget_bytes);
  CHECK(planned.context == 256 && opened.context == 256);
  CHECK(opened.sequences == 1 && opened.kv_pages == 4 && opened.kv_page_positions == 64);
  CHECK(planned.max_row_delay == 0);
  CHECK(planned.rows_per_pass == 256 && opened.rows_per_pass == 256);
  CHECK(planned.everything_resident == 1 && planned.resident_share == 1.0);
  CHECK(planned.pass_read_bytes == 0 && planned.weight_bytes == opened.weight_bytes);
  CHECK(strcmp(planned.reading_mode, opened.reading_mode) == 0);
  CHECK(contains(planned.reading_mode, "resident; pread"));
  CHECK(planned.memory_bytes_per_second > 0 && planned.tokens_per_second > 0);
  test_regions(plan, &planned);
  test_regions(qsf_engine_plan(engine), &opened);
  qsf_engine_stats stats = {.struct_size = sizeof stats};
  CHECK(qsf_engine_get_stats(engine, &stats, &error) == QSF_OK);
  CHECK(stats.planned_bytes == opened.planned_bytes);
  qsf_plan_free(plan);
  qsf_free(engine);
}

/* The sequences share the pages of the KV cache. */
static void test_sequences(const char* path) {
  qsf_error error;
  QSFConfig* config = qsf_config_default();
  QSFPlan* plan = NULL;
  qsf_plan_info info = {.struct_size = sizeof info};
  qsf_config_set_max_sessions(config, 4);
  qsf_config_set_max_seq_len(config, 256);
  qsf_config_set_kv_positions(config, 600);
  qsf_config_set_rows_per_pass(config, 2);
  CHECK(qsf_plan_create(path, config, &plan, &error) == QSF_OK);
  qsf_config_free(config);
  CHECK(qsf_plan_get_info(plan, &info, &error) == QSF_OK);
  CHECK(info.sequences == 4 && info.kv_pages == 10 && info.kv_page_positions == 64);
  CHECK(info.max_row_delay == 2);
  qsf_plan_free(plan);
}

static void test_refusals(void) {
  qsf_error error;
  QSFPlan* plan = NULL;
  CHECK(qsf_plan_create("/nonexistent/model.qsf", NULL, &plan, &error) == QSF_NOT_FOUND);
  CHECK(plan == NULL && qsf_plan_region_count(NULL) == 0);
  CHECK(qsf_plan_create("/nonexistent/model.qsf", NULL, NULL, &error) == QSF_INVALID_ARGUMENT);
  qsf_plan_free(NULL);
}

int main(int argc, char** argv) {
  test_refusals();
  if (argc > 1) test_plan(argv[1]);
  if (argc > 1) test_sequences(argv[1]);
  fprintf(stderr, "%d checks, %d failed%s\n", n_checks, n_failures,
          argc > 1 ? "" : " (no model given: what needs one was not tested)");
  return n_failures == 0 ? 0 : 1;
}
