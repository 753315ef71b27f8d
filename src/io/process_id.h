// SPDX-License-Identifier: MIT

#ifndef QSF_IO_PROCESS_ID_H_
#define QSF_IO_PROCESS_ID_H_

#include <string>

namespace qsf {

// Returns the number of this process, which no other process of this machine has while it runs:
// for names of temporary files. Threads  any
std::string process_id();

}  // namespace qsf

#endif  // QSF_IO_PROCESS_ID_H_
