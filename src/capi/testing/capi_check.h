/* SPDX-License-Identifier: MIT
 *
 * The check of the C tests: counts, and prints what failed. For one program each, hence static.
 */
#ifndef QSF_CAPI_TESTING_CAPI_CHECK_H_
#define QSF_CAPI_TESTING_CAPI_CHECK_H_

#include <stdio.h>

static int n_checks;
static int n_failures;

#define CHECK(condition)                                                      \
  do {                                                                        \
    ++n_checks;                                                               \
    if (!(condition)) {                                                       \
      ++n_failures;                                                           \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

#endif /* QSF_CAPI_TESTING_CAPI_CHECK_H_ */
