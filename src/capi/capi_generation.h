// SPDX-License-Identifier: MIT
//
// The handle of a generation, for the files of the C API that step, admit and park them.

#ifndef QSF_CAPI_CAPI_GENERATION_H_
#define QSF_CAPI_CAPI_GENERATION_H_

#include "capi/capi_handles.h"
#include "engine/generation.h"

struct QSFGeneration : qsf::capi::Owned {
  qsf::capi::GenerationRequest request;
  qsf::GenerationPtr generation;  // null once it has ended
  QSFSession* session = nullptr;  // the same
  qsf::GenerateResult result;
  qsf::Status status;

  // Leaves the session to others.
  void end();
  ~QSFGeneration() override;
};

#endif  // QSF_CAPI_CAPI_GENERATION_H_
