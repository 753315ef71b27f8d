// SPDX-License-Identifier: MIT
//
// Any bytes as tokenizer.json (first byte even) or tokenizer.model (odd). Needs
// qsf_import_tokenizer and qsf_tokenizer.

#include <cstddef>
#include <cstdint>
#include <string>

#include "import/hf/hf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  if (size == 0) return 0;
  HfTokenizerFiles files;
  std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  (data[0] % 2 == 0 ? files.tokenizer_json : files.tokenizer_model) = std::move(content);
  const auto tokenizer = tokenizer_from_hf(files);
  if (tokenizer) static_cast<void>(write_tokenizer_section(*tokenizer).has_value());
  return 0;
}
