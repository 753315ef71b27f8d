// SPDX-License-Identifier: MIT
//
// Any bytes as the pickle of a state dict, then as the pickles that surround one in a legacy file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/bytes.h"
#include "import/pytorch/pytorch_model.h"
#include "io/testing/faulty_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

namespace {

// What the unpickler promises of every tensor: all of it lies in its storage.
void check(const qsf::PytorchStateDict& state_dict) {
  for (const qsf::NamedPickledTensor& named : state_dict.tensors) {
    const qsf::PickledTensor& tensor = named.tensor;
    if (named.name.empty() || tensor.storage >= state_dict.storages.size()) std::abort();
    if (tensor.elements == 0) continue;
    std::uint64_t last = tensor.first;
    if (tensor.strides.empty()) {
      last += tensor.elements - 1;
    } else {
      for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
        last += (tensor.shape[d] - 1) * tensor.strides[d];
      }
    }
    const std::uint64_t bytes = state_dict.storages[tensor.storage].bytes;
    if (last >= bytes / qsf::stored_type_bytes(tensor.type)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  qsf::MemoryFileOps ops(std::as_bytes(std::span(data, n_bytes)));
  const auto file = qsf::File::open("pickle", ops);
  if (!file) std::abort();
  qsf::PickleInput input(*file, 0, n_bytes);
  const auto state_dict = qsf::unpickle_state_dict(input);
  if (state_dict) check(*state_dict);
  qsf::PickleInput header(*file, 0, n_bytes);
  static_cast<void>(qsf::unpickle_legacy_header(header));
  qsf::PickleInput keys(*file, 0, n_bytes);
  static_cast<void>(qsf::unpickle_storage_keys(keys));
  return 0;
}
