// SPDX-License-Identifier: MIT
//
// Any bytes as the five configuration files of a folder, parted by zero bytes. Needs
// qsf_import_models.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/model_spec.h"
#include "import/hf/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  std::string_view rest(reinterpret_cast<const char*>(data), n_bytes);
  std::array<std::string_view, 5> texts;
  for (std::string_view& text : texts) {
    const std::size_t end = rest.find('\0');
    text = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  const auto config = qsf::parse_hf_config({texts[0], texts[1], texts[2], texts[3], texts[4]});
  // Whatever is accepted is a specification that the writer takes.
  if (config && !qsf::validate(config->spec).ok()) std::abort();
  return 0;
}
