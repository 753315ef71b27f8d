// SPDX-License-Identifier: MIT
//
// Any bytes as the configuration files of a folder, parted by zero bytes: five of the model, then
// the list of its modules and those of a pooling and of two dense matrices. Needs
// qsf_import_models.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "format/model_spec.h"
#include "import/hf/hf_config.h"
#include "import/hf/hf_embedding.h"

namespace {

// Reads what follows the model by the texts of its files.
bool read_modules(std::string_view list, std::string_view pooling,
                  const std::array<std::string_view, 2>& dense, qsf::HfConfig& config) {
  const auto modules = qsf::read_hf_modules(list);
  if (!modules || !qsf::read_hf_pooling(pooling, config).ok()) return false;
  if (modules->dense.empty()) return true;
  return qsf::read_hf_dense(dense[0], /*is_first=*/true, config).ok() &&
         qsf::read_hf_dense(dense[1], /*is_first=*/false, config).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t n_bytes) {
  std::string_view rest(reinterpret_cast<const char*>(data), n_bytes);
  std::array<std::string_view, 9> texts;
  for (std::string_view& text : texts) {
    const std::size_t end = rest.find('\0');
    text = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  auto config = qsf::parse_hf_config({texts[0], texts[1], texts[2], texts[3], texts[4]});
  if (!config) return 0;
  // Whatever is accepted is a specification that the writer takes.
  if (!qsf::validate(config->spec).ok()) std::abort();
  const bool embeds = read_modules(texts[5], texts[6], {texts[7], texts[8]}, *config);
  if (embeds && !qsf::validate(config->spec).ok()) std::abort();
  return 0;
}
