// SPDX-License-Identifier: MIT

#include "import/tensor_formats.h"

#include <string>

namespace qsf {

Status TensorFormats::set(TensorKind kind, std::uint32_t layer, BlockFormat format) {
  if (!is_valid(format)) {
    return invalid_argument("%s, layer %u: blocks of %u columns, which %s does not have",
                            std::string(tensor_kind_name(kind)).c_str(), layer, format.block,
                            std::string(quant_type_name(format.type)).c_str());
  }
  formats_.insert_or_assign({kind, layer}, format);
  return ok_status();
}

std::optional<BlockFormat> TensorFormats::find(TensorKind kind, std::uint32_t layer) const {
  const auto found = formats_.find({kind, layer});
  if (found == formats_.end()) return std::nullopt;
  return found->second;
}

}  // namespace qsf
