// SPDX-License-Identifier: MIT
//
// Any bytes as a GGUF file, down to its tokenizer. Needs qsf_import_tokenizer and qsf_tokenizer.

#include <cstddef>
#include <cstdint>

#include "import/gguf/gguf_reader.h"
#include "import/gguf/gguf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace qsf;
  const auto gguf = GgufReader::parse(std::as_bytes(std::span(data, size)), size);
  if (!gguf) return 0;
  for (const GgufKey& key : gguf->keys()) {
    static_cast<void>(gguf->get_unsigned(key.name).has_value());
    static_cast<void>(gguf->get_float(key.name).has_value());
    static_cast<void>(gguf->get_strings(key.name).has_value());
    static_cast<void>(gguf->get_floats(key.name).has_value());
    static_cast<void>(gguf->get_integers(key.name).has_value());
  }
  const auto tokenizer = tokenizer_from_gguf(*gguf);
  if (tokenizer) static_cast<void>(write_tokenizer_section(*tokenizer).has_value());
  return 0;
}
