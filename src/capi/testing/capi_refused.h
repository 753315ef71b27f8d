/* SPDX-License-Identifier: MIT
 *
 * Configurations that opening refuses. For one program each, hence static.
 */
#ifndef QSF_CAPI_TESTING_CAPI_REFUSED_H_
#define QSF_CAPI_TESTING_CAPI_REFUSED_H_

#include <string.h>

#include "capi/testing/capi_check.h"
#include "qsf/qsf.h"

/* Opens a model and frees the configuration. The error's message is to have the words `why`. */
static void expect_refused(const char* path, QSFConfig* config, qsf_code code, const char* why) {
  qsf_error error;
  QSFEngine* engine = NULL;
  CHECK(qsf_engine_open(path, config, &engine, &error) == code && engine == NULL);
  CHECK(strstr(error.message, why) != NULL);
  qsf_config_free(config);
}

#endif /* QSF_CAPI_TESTING_CAPI_REFUSED_H_ */
