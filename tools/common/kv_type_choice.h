// SPDX-License-Identifier: MIT
//
// What --kv-type, --kv-type-k and --kv-type-v say.

#ifndef QSF_TOOLS_COMMON_KV_TYPE_CHOICE_H_
#define QSF_TOOLS_COMMON_KV_TYPE_CHOICE_H_

#include <string>

namespace qsf_tools {

struct KvTypeChoice {
  std::string both = "f16";
  std::string keys_alone;  // empty: as `both`
  std::string values_alone;

  const std::string& keys() const { return keys_alone.empty() ? both : keys_alone; }
  const std::string& values() const { return values_alone.empty() ? both : values_alone; }
  bool is_default() const { return keys() == "f16" && values() == "f16"; }
  // "f16", or "8 for keys, 2 for values".
  std::string text() const {
    return keys() == values() ? keys() : keys() + " for keys, " + values() + " for values";
  }
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_COMMON_KV_TYPE_CHOICE_H_
