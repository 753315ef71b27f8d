// SPDX-License-Identifier: MIT
//
// Names of tensors with the number of their layer, such as "blk.12.attn_k.weight".

#ifndef QSF_IMPORT_LAYER_TENSOR_NAME_H_
#define QSF_IMPORT_LAYER_TENSOR_NAME_H_

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace qsf {

struct LayerTensorName {
  std::uint32_t layer;
  std::string_view rest;  // behind the point
};

// Takes a name apart; nothing where it is not `prefix`, a number as std::to_string() writes it, a
// point and the rest.
inline std::optional<LayerTensorName> parse_layer_tensor_name(std::string_view name,
                                                              std::string_view prefix) noexcept {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  LayerTensorName found{};
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found.layer);
  const auto n_digits = static_cast<std::size_t>(end - name.data());
  if (error != std::errc() || (n_digits > 1 && name[0] == '0')) return std::nullopt;
  name.remove_prefix(n_digits);
  if (!name.starts_with('.')) return std::nullopt;
  found.rest = name.substr(1);
  return found;
}

}  // namespace qsf

#endif  // QSF_IMPORT_LAYER_TENSOR_NAME_H_
