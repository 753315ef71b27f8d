// SPDX-License-Identifier: MIT
//
// Any bytes as model.safetensors, opened and read in part. Needs qsf_import_models and
// qsf_io_testing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "import/safetensors.h"
#include "io/testing/faulty_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  qsf::MemoryFileOps ops(std::as_bytes(std::span(data, n_bytes)));
  const auto model = qsf::SafetensorsModel::open("model", ops);
  if (!model) return 0;
  for (const qsf::StoredTensor& tensor : model->tensors()) {
    if (model->find(tensor.name) != &tensor) std::abort();
    std::vector<float> out(std::min<std::uint64_t>(tensor.elements, 256));
    static_cast<void>(model->read(tensor, tensor.elements - out.size(), out));
  }
  return 0;
}
