// SPDX-License-Identifier: MIT
//
// Where the model that comes with the project is, for tests.

#ifndef QSF_ENGINE_TESTING_BUNDLED_PATH_H_
#define QSF_ENGINE_TESTING_BUNDLED_PATH_H_

#include <string>

namespace qsf::testing_support {

inline const std::string kBundled = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_BUNDLED_PATH_H_
