/* SPDX-License-Identifier: MIT
 *
 * The engine of C tests that run a model. For one program each, hence static.
 */
#ifndef QSF_CAPI_TESTING_CAPI_ENGINE_H_
#define QSF_CAPI_TESTING_CAPI_ENGINE_H_

#include <stdio.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

/* Opens a model with one thread and 256 positions; NULL, counted as a failure, when it cannot. */
static QSFEngine* open_small_engine(const char* path) {
  qsf_error error;
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 1);
  qsf_config_set_max_seq_len(config, 256);
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, &error) == QSF_OK);
  qsf_config_free(config);
  if (engine == NULL) fprintf(stderr, "%s\n", error.message);
  return engine;
}

#endif /* QSF_CAPI_TESTING_CAPI_ENGINE_H_ */
