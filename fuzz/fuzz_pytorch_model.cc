// SPDX-License-Identifier: MIT
//
// Any bytes as pytorch_model.bin, zip archive or legacy, opened and read in part.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "import/pytorch/pytorch_model.h"
#include "io/testing/faulty_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  qsf::MemoryFileOps ops(std::as_bytes(std::span(data, n_bytes)));
  const auto model = qsf::PytorchModel::open("model", ops);
  if (!model) return 0;
  for (const qsf::StoredTensor& tensor : model->tensors()) {
    if (model->find(tensor.name) != &tensor) std::abort();
    std::vector<float> out(std::min<std::uint64_t>(tensor.elements, 256));
    const qsf::Status status = model->read(tensor, tensor.elements - out.size(), out);
    // What was checked when the file was opened cannot be found missing now.
    if (status.code() == qsf::StatusCode::kIo) std::abort();
    if (status.message().find("truncated") != std::string::npos) std::abort();
  }
  return 0;
}
