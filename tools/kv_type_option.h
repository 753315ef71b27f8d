// SPDX-License-Identifier: MIT
//
// The option of the types in which keys and values are stored.

#ifndef QSF_TOOLS_KV_TYPE_OPTION_H_
#define QSF_TOOLS_KV_TYPE_OPTION_H_

#include <CLI/CLI.hpp>
#include <string>

#include "qsf/qsf.h"

namespace qsf_tools {

inline void add_kv_type_option(
    CLI::App& app, std::string& value,
    const char* description = "How keys and values are stored: f32, f16, or in 8 or 4 bits") {
  app.add_option("--kv-type", value, description)
      ->type_name("TYPE")
      ->check(CLI::IsMember({"f32", "f16", "8", "4"}))
      ->capture_default_str();
}

// Requires  a value that the option accepts
inline qsf_kv_type kv_type_of(const std::string& value) {
  if (value == "f32") return QSF_KV_F32;
  if (value == "8") return QSF_KV_8BIT;
  if (value == "4") return QSF_KV_4BIT;
  return QSF_KV_F16;
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_KV_TYPE_OPTION_H_
