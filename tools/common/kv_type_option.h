// SPDX-License-Identifier: MIT
//
// The options of the types in which keys and values are stored.

#ifndef QSF_TOOLS_COMMON_KV_TYPE_OPTION_H_
#define QSF_TOOLS_COMMON_KV_TYPE_OPTION_H_

#include <CLI/CLI.hpp>

#include "qsf/qsf.h"
#include "tools/common/kv_type_choice.h"

namespace qsf_tools {

// `description`: of --kv-type, or of all three.
inline void add_kv_type_options(CLI::App& app, KvTypeChoice& choice,
                                const char* description = nullptr) {
  const auto add = [&](const char* name, std::string& value, const char* ours) {
    return app.add_option(name, value, description == nullptr ? ours : description)
        ->type_name("TYPE")
        ->check(CLI::IsMember({"f32", "f16", "8", "4", "2"}));
  };
  add("--kv-type", choice.both, "How keys and values are stored: f32, f16, or in 8, 4 or 2 bits")
      ->capture_default_str();
  add("--kv-type-k", choice.keys_alone, "How keys are stored, where not as --kv-type says");
  add("--kv-type-v", choice.values_alone, "How values are stored, where not as --kv-type says");
}

// Requires  a value that the options accept
inline qsf_kv_type kv_type_of(const std::string& value) {
  if (value == "f32") return QSF_KV_F32;
  if (value == "8") return QSF_KV_8BIT;
  if (value == "4") return QSF_KV_4BIT;
  if (value == "2") return QSF_KV_2BIT;
  return QSF_KV_F16;
}

inline void set_kv_types(QSFConfig* config, const KvTypeChoice& choice) {
  qsf_config_set_kv_types(config, kv_type_of(choice.keys()), kv_type_of(choice.values()));
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_KV_TYPE_OPTION_H_
